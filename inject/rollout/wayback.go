// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"

	"github.com/pillion-dev/pillion/inject"
)

// If a content of a template has failed, pods can go back to the content that each of them had before. A pod records it: while
// its change is not proved, in the record of the injection, and then in an annotation next to that.

// WayBack is what pods go back to.
type WayBack struct {
	Template string // its name
	Replaces string // the template that it replaces, or ""
	Failed   string // the revision that has failed
	// Earlier returns an injector with the content of an earlier revision, or nil and why there is none. Of the revision "", it
	// has no content of the template: a pod that had the template that it replaces gets that again.
	Earlier func(revision string) (i *inject.Injector, why string)
}

// Revision returns the revision that a pod with these annotations has to have, or "" if it was created with the failed one or
// had no sidecar of the template. Recorded is set if the pod records the failed one.
func (w *WayBack) Revision(annotations map[string]string) (revision string, recorded bool) {
	if annotations[recordOf(w.Template)] != w.Failed {
		return annotations[recordOf(w.Template)], false
	}
	return annotations[beforeOf(recordOf(w.Template))], true
}

// replacedRevision returns the revision of the template that a canary replaces which a pod with these annotations had before, or "".
func (w *WayBack) replacedRevision(annotations map[string]string, recorded bool) string {
	switch {
	case w.Replaces == "":
		return ""
	case recorded:
		return annotations[beforeOf(recordOf(w.Replaces))]
	}
	return annotations[recordOf(w.Replaces)]
}

// PlanBack returns what a running pod needs to go back. Owner is as for [Planner.Plan]. The injector of the planner is not used.
func (p *Planner) PlanBack(pod, owner []byte, w *WayBack) (*Pod, error) {
	m := &meta{}
	if err := json.Unmarshal(pod, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotAPod, err)
	}
	out := newPod(p.Namespace.Name, m)
	revision, recorded := w.Revision(m.Metadata.Annotations)
	other := ""
	if revision == "" {
		other = w.replacedRevision(m.Metadata.Annotations, recorded)
	}
	switch {
	case !m.isConsidered(), !recorded && (revision == "" && other == "" || !managersOf(m.Metadata.CreationTimestamp.Time, m.Metadata.ManagedFields).wroteContainer()):
		return out, nil // no rollout has changed it
	case revision == "" && other == "":
		return out.leaveBecause("it was created with the content that has failed"), nil
	}
	back, why := *p, ""
	if back.Injector, why = w.Earlier(revision); back.Injector == nil {
		return out.leaveBecause(why), nil
	}
	if revision != "" {
		return back.Plan(pod, owner)
	}
	back.Only = w.Replaces
	now, err := back.Plan(pod, owner)
	switch to := ""; {
	case err != nil:
		return nil, err
	case !recorded && now.State.IsBehind(): // the other template has changed, which is no matter of this one
		return out, nil
	default:
		if to = now.Records[recordOf(w.Replaces)]; to != "" && to != other {
			return out.leaveBecause("the template " + w.Replaces + ", which it had before, has changed"), nil
		}
	}
	return now, nil
}
