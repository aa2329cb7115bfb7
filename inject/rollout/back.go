// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"encoding/json"
	"fmt"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// If a content of a template has failed, pods can go back to the content that each of them had before. A pod records it: while
// its change is not proved, in the record of the injection, and then in an annotation next to that.

// WayBack is what pods go back to.
type WayBack struct {
	Template string // its name
	Failed   string // the revision that has failed
	// Earlier returns an injector with the content of an earlier revision, or nil and why there is none.
	Earlier func(revision string) (i *inject.Injector, why string)
}

// Revision returns the revision that a pod with these annotations has to have, or "" if it was created with the failed one or
// has no sidecar of the template. Recorded is set if the pod records the failed one.
func (w *WayBack) Revision(annotations map[string]string) (revision string, recorded bool) {
	record := w.Template + "." + templates.Domain + "/" + templates.AnnotationInjected
	if annotations[record] != w.Failed {
		return annotations[record], false
	}
	return annotations[beforeOf(record)], true
}

// PlanBack returns what a running pod needs to go back. Owner is as for [Planner.Plan]. The injector of the planner is not used.
func (p *Planner) PlanBack(pod, owner []byte, w *WayBack) (*Pod, error) {
	m := &meta{}
	if err := json.Unmarshal(pod, m); err != nil {
		return nil, fmt.Errorf("%w: %w", errNotAPod, err)
	}
	out := newPod(p.Namespace.Name, m)
	revision, recorded := w.Revision(m.Metadata.Annotations)
	switch {
	case !m.counts(), revision == "" && !recorded:
		return out, nil
	case revision == "":
		return out.leave("it was created with the content that has failed"), nil
	}
	injector, why := w.Earlier(revision)
	if injector == nil {
		if !recorded && !managersOf(m.Metadata.CreationTimestamp.Time, m.Metadata.ManagedFields).wrote() {
			return out, nil // no rollout has changed it
		}
		return out.leave(why), nil
	}
	back := *p
	back.Injector = injector
	return back.Plan(pod, owner)
}
