// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// A canary is a template with spec.replaces. It takes the place of the other template in the pods that it
// matches, in a share of the workloads. Three things decide, in this order:
//
//   - The pod's records. A pod that has one of the two templates keeps that one. So another round, a second
//     admission and the validating webhook agree, whatever was added in between.
//   - The pod's annotation pillion.dev/templates, if it names the canary itself.
//   - The share, see shareBucket.
//
// If the canary cannot be injected, the other template is injected, see [canaryChoice.fallBack].

// canaryChoice is the choice between templates and the canaries that replace them. A base is a template that canaries replace.
type canaryChoice struct {
	replaced    []*loaded   // the bases
	candidates  []candidate // of canaries, by the index of the template
	wantedBases []*loaded   // the bases that would be for the pod if no canary took their place
}

// chooseForPod decides about all canaries, before other templates are rendered. A base is replaced by its first canary, in order,
// that applies and can be rendered.
func (r *canaryChoice) chooseForPod(s *subject, decisions []Decision, render func(*loaded, *Decision, *candidate)) {
	s.canaryOf, s.failedCanaryOf = map[*loaded]*loaded{}, map[*loaded]*loaded{}
	r.candidates = slices.Grow(r.candidates[:0], len(s.templates))[:len(s.templates)]
	for _, base := range r.replaced {
		for _, t := range base.canaries {
			if s.request.isGone() {
				return
			}
			d := &decisions[t.index]
			render(t, d, &r.candidates[t.index])
			switch {
			case d.Code == "": // the rule replacedByCanary stops all further canaries
				s.canaryOf[base] = t
			case d.Code.Failed() && s.cameWithRecords(t):
				s.keepCanary(base, t, d)
			case d.Code.Failed() && s.failedCanaryOf[base] == nil:
				s.failedCanaryOf[base] = t
			}
		}
	}
}

// cameWithRecords reports whether the pod had the records that the injection of a canary leaves before this run.
func (s *subject) cameWithRecords(t *loaded) bool {
	return s.hasRecords(t) && !s.annotation(t.injected).Added()
}

// keepCanary leaves a canary in the place of its base, although the canary cannot be injected. The pod records the canary, so the
// base would be injected beside what the pod has of the canary. Then neither of them is injected, and the stricter of their modes
// counts.
func (s *subject) keepCanary(base, canary *loaded, d *Decision) {
	if s.canaryOf[base] != nil {
		return
	}
	s.canaryOf[base] = canary
	if base.Spec.Validate.Mode == v1alpha1.Deny {
		d.Mode = v1alpha1.Deny
	}
}

// fallBack changes the decisions about canaries that cannot be injected. If their base or another canary is for the pod instead, that
// is enough, and they do not count as failed. Without this rule, a broken canary could cause the validating webhook to deny a pod
// that has the base.
func (r *canaryChoice) fallBack(s *subject, decisions []Decision) {
	for _, base := range r.replaced {
		in := s.canaryOf[base]
		if in == nil && decisions[base.index].Code == "" {
			in = base
		}
		if in == nil || decisions[in.index].Code.Failed() {
			continue
		}
		for _, t := range base.canaries {
			d := &decisions[t.index]
			if d.Code.Failed() {
				d.Message = fmt.Sprintf("%s takes its place, because this template cannot be injected: %s", in.Name, d.Sentence())
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

// findFailed returns the canaries that must be left out, with the reasons: those that could not be planned although their base is for
// the pod, and those that no longer apply after they were injected. Always reports whether there are some of the second kind, which
// must be left out of all passes.
func (r *canaryChoice) findFailed(s *subject, decisions []Decision) (toLeaveOut map[string]string, always bool) {
	for _, base := range r.replaced {
		for _, t := range base.canaries {
			d, why := &decisions[t.index], ""
			switch injected := s.annotation(t.injected).Added(); {
			case injected && !d.Code.Succeeded():
				why, always = fmt.Sprintf("its expressions read additions, and then it is %s", d.Code), true
			case s.cameWithRecords(t):
			case (d.Code == CodeConflict || d.Code == CodeRenderFailed) && s.canaryOf[base] == t && slices.Contains(r.wantedBases, base):
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

// replacedByCanary reports whether a canary takes the place of the template, which may be a canary too.
func replacedByCanary(s *subject, t *loaded) (bool, string) {
	by := s.canaryOf[t.baseOrSelf()]
	if by == nil || by == t {
		return false, ""
	}
	if t.base != nil {
		return true, fmt.Sprintf("the template %s, which is applied earlier, replaces %s here", by.Name, t.base.Name)
	}
	return true, fmt.Sprintf("the template %s replaces it here", by.Name)
}

func whyNotReplaced(_ *subject, t *loaded) string {
	if t.base == nil && len(t.canaries) == 0 {
		return ""
	}
	return "no other template takes its place"
}

// hasBase reports whether the pod records the template that a canary would replace, and not the canary.
func hasBase(s *subject, t *loaded) (bool, string) {
	if t.base == nil || s.annotation(t.base.injected) == nil || s.hasRecords(t) {
		return false, ""
	}
	return true, fmt.Sprintf("the pod already has %s, which it keeps; new pods get this template instead", t.base.Name)
}

// fellBack reports whether the pod records that the canary could not be injected into it.
func fellBack(s *subject, t *loaded) (bool, string) {
	if !s.annotation(t.base.insteadKey).IsText(t.insteadValue) {
		return false, ""
	}
	return true, fmt.Sprintf("the pod has %s, because this template could not be injected when the pod was created", t.base.Name)
}
