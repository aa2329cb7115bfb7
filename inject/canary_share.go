// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/pillion-dev/pillion/inject/workloads"
)

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
