// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/pillion-dev/pillion/inject/workloads"
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

// shareBucket returns a number from 0 to 99 for a workload and a template. It is the first eight bytes of the SHA-256
// of namespace, kind and name of the workload, and the name of the template, each followed by a zero byte, modulo
// 100. The template takes the workload if the number is less than its share. The number never changes, so a
// greater share keeps the workloads of a smaller one.
func shareBucket(namespace string, of workloads.Owner, template string) int {
	text := make([]byte, 0, 256)
	for _, part := range [...]string{namespace, of.Kind, of.Name, template} {
		text = append(append(text, part...), 0)
	}
	sum := sha256.Sum256(text)
	return int(binary.BigEndian.Uint64(sum[:8]) % 100)
}

// notInShare reports whether a canary is not for the pod because the pod's workload is not in its share. Records of the pod and its
// annotation take precedence over the share.
func notInShare(s *subject, t *loaded) (bool, string) {
	if t.base == nil || s.annotation(t.injected) != nil {
		return false, ""
	}
	if _, wanted := s.requested.lookupName(t.Name); wanted || s.isInShare(t) {
		return false, ""
	}
	return true, fmt.Sprintf("it replaces %s in %d of 100 workloads, and not in this one", t.base.Name, t.Share())
}

func whyInShare(s *subject, t *loaded) string {
	_, named := s.requested.lookupName(t.Name)
	of := s.findOwner()
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

// isInShare reports whether the share of a canary includes the pod's workload.
func (s *subject) isInShare(t *loaded) bool {
	return t.Share() == 100 || shareBucket(s.request.namespace.Name, s.findOwner(), t.Name) < t.Share()
}

// findOwner returns the workload that the pod belongs to.
func (s *subject) findOwner() workloads.Owner { return workloads.OfPod(s.pod, s.request.owner) }

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

// hasRecords reports whether the pod has both records of a canary. One alone may come from a copied manifest.
func (s *subject) hasRecords(t *loaded) bool {
	own, base := s.annotation(t.injected), s.annotation(t.base.injected)
	return own != nil && base != nil && own.SameText(base)
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
