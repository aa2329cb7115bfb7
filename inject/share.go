// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// A canary is a template with spec.replaces. It takes the place of the other template in the pods that it
// matches, in a share of the workloads. Three things decide, in this order:
//
//   - The pod's records. A pod that has one of the two templates keeps it, so another look, a second
//     admission and the validating webhook agree, whatever was added in between.
//   - The pod's annotation pillion.dev/templates, if it names the canary itself.
//   - The share, see hundredth.
//
// If the canary cannot be injected, the other template is, see [run.fallBack].

// hundredth returns a number from 0 to 99 for a workload and a template. It is the first eight bytes of the SHA-256
// of namespace, kind and name of the workload, and the name of the template, each followed by a zero byte, modulo
// 100. The template takes the workload if the number is less than its share. The number never changes, so a
// greater share keeps the workloads of a smaller one.
func hundredth(namespace string, of Owner, template string) int {
	text := make([]byte, 0, 256)
	for _, part := range [...]string{namespace, of.Kind, of.Name, template} {
		text = append(append(text, part...), 0)
	}
	sum := sha256.Sum256(text)
	return int(binary.BigEndian.Uint64(sum[:8]) % 100)
}

// notInShare applies to canaries.
func notInShare(s *subject, t *loaded) (bool, string) {
	if t.base == nil || s.annotation(t.injected) != nil {
		return false, ""
	}
	if _, wanted := s.requested.says(t.Name); wanted || s.selects(t) {
		return false, ""
	}
	of := s.owner()
	return true, fmt.Sprintf("it replaces %s in %d of 100 workloads, and %s/%s is not one of them", t.base.Name, t.Share(), of.Kind, of.Name)
}

func whyInShare(s *subject, t *loaded) string {
	_, named := s.requested.says(t.Name)
	of := s.owner()
	switch {
	case t.base == nil:
		return ""
	case s.annotation(t.injected) != nil:
		return "the pod has it already"
	case named:
		return fmt.Sprintf("the pod's annotation %s names it", AnnotationTemplates)
	}
	return fmt.Sprintf("it replaces %s in %d of 100 workloads, and %s/%s is one of them", t.base.Name, t.Share(), of.Kind, of.Name)
}

// selects reports whether the share of a canary includes the pod's workload.
func (s *subject) selects(t *loaded) bool {
	return t.Share() == 100 || hundredth(s.asked.namespace.Name, s.owner(), t.Name) < t.Share()
}

// owner returns the workload that the pod belongs to.
func (s *subject) owner() Owner { return ownerOf(s.pod, s.asked.owner) }

// replaced reports whether a canary takes the place of the template, which may be a canary too.
func replaced(s *subject, t *loaded) (bool, string) {
	by := s.taken[t.place()]
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

// hasBase reports whether the pod has the template that a canary would replace.
func hasBase(s *subject, t *loaded) (bool, string) {
	if t.base == nil || s.annotation(t.injected) != nil || s.annotation(t.base.injected) == nil {
		return false, ""
	}
	return true, fmt.Sprintf("the pod already has %s, which it keeps; new pods get this template instead", t.base.Name)
}

// fellBack reports whether the pod records that the canary could not be injected into it.
func fellBack(s *subject, t *loaded) (bool, string) {
	if !s.annotation(t.base.instead).IsText(t.asInstead) {
		return false, ""
	}
	return true, fmt.Sprintf("the pod has %s, because this template could not be injected when the pod was created", t.base.Name)
}

// place returns the template that is replaced here, or the template itself.
func (t *loaded) place() *loaded {
	if t.base != nil {
		return t.base
	}
	return t
}

// isCanarys reports whether the pod's record of the template is that of a canary, which took its place.
func (s *subject) isCanarys(t *loaded) bool {
	for _, c := range t.canaries {
		if s.annotation(c.injected) != nil {
			return true
		}
	}
	return false
}

// choose decides which of the templates that replace each other are for the pod, before the others are rendered. A
// template is replaced by the first one, in order, that applies and can be rendered.
func (r *run) choose(decisions []Decision) {
	s := &r.subject
	if len(r.injector.replaced) == 0 {
		return
	}
	s.taken, s.instead = map[*loaded]*loaded{}, map[*loaded]*loaded{}
	r.canaries = slices.Grow(r.canaries[:0], len(s.templates))[:len(s.templates)]
	for _, base := range r.injector.replaced {
		for _, t := range base.canaries {
			if s.asked.gone() {
				return
			}
			d := &decisions[t.index]
			r.render(t, d, &r.canaries[t.index])
			switch {
			case d.Code == "":
				s.taken[base] = t
			case d.Code.Failed() && s.instead[base] == nil:
				s.instead[base] = t
			}
		}
	}
}

// fallBack decides about the canaries that cannot be injected: if the other template, or another canary, is
// for the pod, that is enough. Otherwise a broken canary could cost a pod a required template, or its admission.
func (r *run) fallBack(decisions []Decision) {
	s := &r.subject
	for _, base := range r.injector.replaced {
		in := s.taken[base]
		if in == nil && decisions[base.index].Code == "" {
			in = base
		}
		if in == nil {
			continue
		}
		for _, t := range base.canaries {
			d := &decisions[t.index]
			if d.Code.Failed() {
				d.Message = fmt.Sprintf("%s is injected instead, because this template cannot be: %s", in.Name, d.Sentence())
				d.Code, d.Obstacles = CodeFellBack, nil
				d.note(d.Message)
			}
			if d.Code == CodeHasReplaced && s.asked.detail && decisions[in.index].NewPods == "" {
				decisions[in.index].NewPods = t.Name
			}
		}
		if _, named := s.requested.says(in.Name); in != base && s.asked.detail && !named && !s.selects(in) && decisions[in.index].NewPods == "" {
			decisions[in.index].NewPods = base.Name
		}
	}
}

// failing returns the canaries that could not be planned, or that no longer apply after they were injected, with
// the reasons. They must be left out, the latter ones from the beginning.
func (r *run) failing(decisions []Decision) (culprits map[string]string, always bool) {
	s := &r.subject
	for _, base := range r.injector.replaced {
		for _, t := range base.canaries {
			d, why := &decisions[t.index], ""
			switch injected := s.annotation(t.injected).Added(); {
			case injected && !d.Code.Succeeded():
				why, always = fmt.Sprintf("its expressions read additions, and then it is %s", d.Code), true
			case (d.Code == CodeConflict || d.Code == CodeRenderFailed) && s.taken[base] == t && r.wants(base):
				why = d.Message
			}
			if why != "" {
				if culprits == nil {
					culprits = map[string]string{}
				}
				culprits[t.Name] = why
			}
		}
	}
	return culprits, always
}

// wants reports whether a template would be for the pod if no canary took its place.
func (r *run) wants(base *loaded) bool {
	taken := r.subject.taken[base]
	delete(r.subject.taken, base)
	defer func() { r.subject.taken[base] = taken }()
	var d Decision
	var c candidate
	r.render(base, &d, &c)
	return d.Code == ""
}
