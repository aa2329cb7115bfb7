// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// canaryChoice are the templates that replace each other.
type canaryChoice struct {
	replaced   []*loaded
	candidates []candidate // by the index of the template
	wanted     []*loaded   // those of the replaced templates that would be for the pod if no canary took their place
}

// chooseForPod decides which of the templates that replace each other are for the pod, before the others are rendered. A
// template is replaced by the first one, in order, that applies and can be rendered.
func (r *canaryChoice) chooseForPod(s *subject, decisions []Decision, render func(*loaded, *Decision, *candidate)) {
	s.taken, s.fallbacks = map[*loaded]*loaded{}, map[*loaded]*loaded{}
	r.candidates = slices.Grow(r.candidates[:0], len(s.templates))[:len(s.templates)]
	for _, base := range r.replaced {
		for _, t := range base.canaries {
			if s.request.isGone() {
				return
			}
			d := &decisions[t.index]
			render(t, d, &r.candidates[t.index])
			switch {
			case d.Code == "":
				s.taken[base] = t
			case d.Code.Failed() && s.cameWithRecords(t):
				s.keepCanary(base, t, d)
			case d.Code.Failed() && s.fallbacks[base] == nil:
				s.fallbacks[base] = t
			}
		}
	}
}

// cameWithRecords reports whether the pod came with the records that the injection of a canary leaves.
func (s *subject) cameWithRecords(t *loaded) bool {
	return s.hasRecords(t) && !s.annotation(t.injected).Added()
}

// keepCanary leaves a canary in the place of another template, although it cannot be injected: the pod says that it has it, so
// the other template would come in addition. Neither of them is in the pod then, and the stricter mode counts.
func (s *subject) keepCanary(base, canary *loaded, d *Decision) {
	if s.taken[base] != nil {
		return
	}
	s.taken[base] = canary
	if base.Spec.Validate.Mode == v1alpha1.Deny {
		d.Mode = v1alpha1.Deny
	}
}

// fallBack decides about the canaries that cannot be injected: if the other template, or another canary, is
// for the pod, that is enough. Otherwise a broken canary could cost a pod a required template, or its admission.
func (r *canaryChoice) fallBack(s *subject, decisions []Decision) {
	for _, base := range r.replaced {
		in := s.taken[base]
		if in == nil && decisions[base.index].Code == "" {
			in = base
		}
		if in == nil || decisions[in.index].Code.Failed() {
			continue
		}
		for _, t := range base.canaries {
			d := &decisions[t.index]
			if d.Code.Failed() {
				d.Message = fmt.Sprintf("%s is injected instead, because this template cannot be: %s", in.Name, d.Sentence())
				d.Code, d.Obstacles = CodeFellBack, nil
				d.recordNote(d.Message)
			}
			if d.Code == CodeHasReplaced && s.request.detail && decisions[in.index].NewPods == "" {
				decisions[in.index].NewPods = t.Name
			}
		}
		if _, named := s.requested.lookupName(in.Name); in != base && s.request.detail && !named && !s.isInShare(in) && decisions[in.index].NewPods == "" {
			decisions[in.index].NewPods = base.Name
		}
	}
}

// findFailed returns the canaries that could not be planned, or that no longer apply after they were injected, with
// the reasons. They must be left out, the latter ones from the beginning.
func (r *canaryChoice) findFailed(s *subject, decisions []Decision) (toLeaveOut map[string]string, always bool) {
	for _, base := range r.replaced {
		for _, t := range base.canaries {
			d, why := &decisions[t.index], ""
			switch injected := s.annotation(t.injected).Added(); {
			case injected && !d.Code.Succeeded():
				why, always = fmt.Sprintf("its expressions read additions, and then it is %s", d.Code), true
			case s.cameWithRecords(t):
			case (d.Code == CodeConflict || d.Code == CodeRenderFailed) && s.taken[base] == t && slices.Contains(r.wanted, base):
				why = d.Message
			}
			if why != "" {
				if toLeaveOut == nil {
					toLeaveOut = map[string]string{}
				}
				toLeaveOut[t.Name] = why
			}
		}
	}
	return toLeaveOut, always
}
