// SPDX-License-Identifier: Apache-2.0

package status

import (
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// CompareRunning compares the running pods of an owner with new ones. It returns nil if the owner has no pods. Call
// [Count.ConsiderRestart] first, which decides whether a restart helps. If it is unknown what new pods would be, unsure is the
// reason, and no restart is suggested.
func (c *Count) CompareRunning(o Owner, kubectl, unsure string) *explain.Running {
	g := c.owners[o]
	if g == nil {
		return nil
	}
	slices.SortStableFunc(g.reasons, compareReasons)
	r := &explain.Running{Pods: g.pods.Pods, Behind: slices.Clone(g.reasons)}
	if unsure == "" && g.changesInPlace(o) {
		r.InPlace = 1
	}
	switch {
	case len(r.Behind) == 0 || o.restartArgument() == "":
	case unsure != "":
		r.Hold = unsure
	case g.holdReason() != "":
		r.Hold = g.holdReason()
	default:
		r.Restart = []string{kubectl + " rollout restart " + strings.ToLower(o.Kind) + "/" + o.Name + " -n " + c.scope.Namespace.Name}
	}
	return r
}
