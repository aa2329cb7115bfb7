// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/inject/kubelet"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// checkStarts reports a conflict if the kubelet would not start the pod, or a container, because of additions. If another template has
// added a part of what is wrong, the message names that template.
func (p *planner) checkStarts() {
	if len(p.conflicts) > 0 {
		return // they may be the cause
	}
	pod := kubelet.Pod{Spec: p.subject.pod.Get("spec"), OS: p.subject.os, Volumes: p.subject}
	for _, f := range pod.FindFaults(maxConflicts) {
		why := f.Why
		if len(f.Parts.Containers) > 0 {
			if owner := p.findContributor(func(c *candidate) bool { return c.addsPart(&f.Parts) }); owner != "" {
				why = fmt.Sprintf("together with the template %s, %s", owner, why)
			}
		}
		p.reportConflict(f.At, f.Pod, f.Fragment, "%s", why)
	}
}

// addsPart reports whether the template adds a part of what keeps a pod from starting.
func (c *candidate) addsPart(parts *kubelet.Parts) bool {
	return slices.ContainsFunc(parts.Containers, c.t.Brings) ||
		slices.ContainsFunc(parts.Mounts, func(mount *jsontree.Node) bool { return mount != nil && c.addsMount(mount) }) ||
		parts.User && c.setsUser()
}

// setsUser reports whether the template may decide as which user the user's containers run.
func (c *candidate) setsUser() bool {
	return slices.ContainsFunc(c.apps, func(app appContainer) bool {
		return slices.ContainsFunc(app.fragments, func(f jsontree.Node) bool {
			s := f.Get("securityContext")
			return s.Get("runAsUser") != nil || s.Get("runAsNonRoot") != nil
		})
	})
}

// FindVolume returns the pod's volume of a mount, or nil.
func (s *subject) FindVolume(mount *jsontree.Node) *jsontree.Node {
	all := s.pod.At("spec", "volumes")
	if i := s.findByKey(s.schema.At("spec").At("volumes").Schema, all, mount); i >= 0 { // mounts refer to volumes by name
		return &all.Items()[i]
	}
	return nil
}

// GetsToken reports whether the ServiceAccount plugin has not run for the pod yet and will mount the token in its containers
// (shouldAutomount in plugin/pkg/admission/serviceaccount). If the ServiceAccount is not known, the plugin is assumed to do so.
func (s *subject) GetsToken() bool {
	if !s.request.file && s.request.owner.Kind == "" {
		return false
	}
	switch s.pod.At("spec", "automountServiceAccountToken").Kind() {
	case jsontree.True:
		return true
	case jsontree.False:
		return false
	}
	return !s.request.namespace.ServiceAccount(s.pod).NoToken
}
