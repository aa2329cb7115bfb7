// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/validation"
)

// noToken returns the empty volume that is mounted in place of an API token.
func noToken() jsontree.Node {
	return jsontree.Members(jsontree.Field("name", jsontree.Text(validation.NoTokenVolume)), jsontree.Field(validation.NoTokenSource, jsontree.Members()))
}

// prepareFragment adds to the fragment what Pillion itself adds for this pod: the record of the injection, and the mount at the path
// of the API token. It also removes fields that the pod does not allow, and resources if the pod has pod-level resources.
func (c *candidate) prepareFragment() {
	c.recordInjection()
	spec := c.fragment.Get("spec")
	if spec == nil {
		return
	}
	prepared, token, used := *spec, c.tokenMount(), false
	for _, list := range schema.ContainerLists() {
		old := spec.Get(list).Items()
		if len(old) == 0 {
			continue
		}
		containers := c.subject.nodes.Nodes(len(old))
		for i := range old {
			container, mounted := c.prepareContainer(&old[i], token)
			containers = append(containers, container)
			used = used || mounted
		}
		prepared = c.subject.nodes.With(&prepared, list, jsontree.Items(containers...))
	}
	if used && token.Get("name").IsText(validation.NoTokenVolume) {
		prepared = c.subject.withItem(&prepared, "volumes", noToken())
	}
	c.fragment = c.subject.nodes.With(&c.fragment, "spec", prepared)
}

// recordInjection adds the annotation that records the injected revision. An existing annotation
// stays, whatever its value is.
func (c *candidate) recordInjection() {
	s, t := c.subject, c.t
	switch failed := s.failedCanaryOf[t]; {
	case s.annotation(t.injected) != nil:
	case t.base != nil:
		c.fragment = t.withRecord(s.nodes, &c.fragment, t.injected, t.revision)
		if s.annotation(t.base.injected) == nil { // so that the base knows the pod when the canary has been deleted
			c.fragment = t.withRecord(s.nodes, &c.fragment, t.base.injected, t.revision)
		}
	case t.recorded != nil && failed == nil:
		c.fragment = *t.recorded
	default:
		c.fragment = t.withRecord(s.nodes, &c.fragment, t.injected, t.revision)
		if failed != nil && s.annotation(t.insteadKey) == nil {
			c.fragment = t.withRecord(s.nodes, &c.fragment, t.insteadKey, jsontree.Text(failed.insteadValue))
		}
	}
}

// tokenMount returns the mount for each container of the template at the path where the ServiceAccount plugin would mount the
// token, or nil. With this mount, the plugin has nothing to add. This saves the second call that the API server
// makes if a plugin changes the pod.
func (c *candidate) tokenMount() *jsontree.Node {
	known := &c.subject.tokens[0]
	if c.t.Spec.ServiceAccountToken == v1alpha1.Inherit {
		known = &c.subject.tokens[1]
	}
	if *known == nil {
		*known = new(c.newTokenMount())
	}
	if (*known).Kind() != jsontree.Object {
		return nil
	}
	return *known
}

// newTokenMount computes tokenMount. It returns a node that is not an object instead of nil.
func (c *candidate) newTokenMount() jsontree.Node {
	if c.subject.pod.At("spec", "automountServiceAccountToken").Kind() == jsontree.False {
		return jsontree.Node{}
	}
	volume := validation.NoTokenVolume
	if c.t.Spec.ServiceAccountToken == v1alpha1.Inherit && !c.tokenDeclined() {
		if volume = c.tokenVolume(); volume == "" {
			return jsontree.Node{}
		}
	}
	return jsontree.Members(append(c.subject.nodes.Nodes(3),
		jsontree.Field("name", jsontree.Text(volume)),
		jsontree.Field("readOnly", jsontree.Bool(true)),
		jsontree.Field("mountPath", jsontree.Text(validation.TokenPath)))...)
}

// tokenVolume returns the name of the volume that the ServiceAccount plugin made for the API token, or "" if there is none. If only
// another volume has such a name, the plugin would mount that volume in a container without a mount at this path. Then it returns
// the name of the empty volume, so that the containers of templates do not get the other volume.
func (c *candidate) tokenVolume() string {
	volumes, forged := c.subject.pod.At("spec", "volumes").Items(), false
	for i := range volumes {
		if name := volumes[i].Get("name").Text(); strings.HasPrefix(name, validation.TokenVolumePrefix) {
			if c.subject.IsTokenVolume(name) {
				return name
			}
			forged = true
		}
	}
	if forged {
		return validation.NoTokenVolume
	}
	return ""
}

// tokenDeclined reports whether the pod gets no token because each of its containers mounts
// something else at that path. A template that inherits the token then gets none either: otherwise, the plugin would add a
// token for the new container alone.
func (c *candidate) tokenDeclined() bool {
	if c.tokenVolume() != "" {
		return false
	}
	declined := false
	for _, list := range schema.ContainerLists() {
		containers := c.subject.pod.At("spec", list).Items()
		for i := range containers {
			if c.subject.isOfTemplate(&containers[i]) {
				continue // it does not show what the user wants
			}
			if !hasMountAt(&containers[i], validation.TokenPath) {
				return false
			}
			declined = true
		}
	}
	return declined
}

// prepareContainer returns a container of the template as prepareFragment describes, and whether the token's mount was added.
func (c *candidate) prepareContainer(container, token *jsontree.Node) (prepared jsontree.Node, mounted bool) {
	prepared = schema.WithoutDisallowed(c.subject.nodes, c.subject.pod, *container)
	if mounted = token != nil && !hasMountAt(container, validation.TokenPath) && !c.leavesTokenPath(container); mounted {
		prepared = c.subject.withItem(&prepared, "volumeMounts", *token)
	}
	if c.subject.podResources() {
		prepared = c.withoutResources(prepared, container.Get("name").Text())
	}
	return prepared, mounted
}

// leavesTokenPath reports whether the pod's container of that name stays unchanged at the token's path, because it has a mount there
// from the plugin, the user or an earlier round, or because the user wrote it and the plugin adds the mount. With
// serviceAccountToken None, that is true only for containers that the user wrote: a template's own container must not keep a
// credential that the plugin added.
func (c *candidate) leavesTokenPath(container *jsontree.Node) bool {
	isUsers := c.subject.annotation(c.t.customize).IsText("true")
	if c.t.Spec.ServiceAccountToken != v1alpha1.Inherit && !isUsers {
		return false
	}
	for _, list := range schema.ContainerLists() {
		if !c.subject.hasContainer(container.Get("name").Text()) {
			break
		}
		existing := c.subject.pod.At("spec", list).Items()
		if i := c.subject.schema.At("spec").At(list).Find(existing, container); i >= 0 {
			return isUsers && !existing[i].Added() || hasMountAt(&existing[i], validation.TokenPath)
		}
	}
	return false
}

// isOfTemplate reports whether a template added a container, and the user did not write it.
func (s *subject) isOfTemplate(container *jsontree.Node) bool {
	name := container.Get("name").Text()
	return s.isBrought(name) && (container.Added() || slices.ContainsFunc(s.templates, func(t *loaded) bool {
		return t.Brings(name) && s.annotation(t.injected) != nil && !s.annotation(t.customize).IsText("true")
	}))
}

// withoutResources returns a container without cpu, memory and huge pages, for a pod with pod-level resources
// (KEP-2837), which its containers share. The API server would reject the pod if its containers requested more in total.
func (c *candidate) withoutResources(container jsontree.Node, name string) jsontree.Node {
	resources := container.Get("resources")
	if resources == nil {
		return container
	}
	reduced, found := c.subject.withoutShared(resources)
	if !found {
		return container
	}
	c.recordNote(fmt.Sprintf("the pod has its own resources, which the container %s shares, so Pillion adds no cpu and memory to it", name))
	return c.subject.nodes.With(&container, "resources", reduced)
}

// withoutShared returns resources without those that containers may share, and whether there were
// any.
func (s *subject) withoutShared(resources *jsontree.Node) (reduced jsontree.Node, found bool) {
	reduced = *resources
	for _, section := range []string{"requests", "limits"} {
		members := reduced.Get(section).Members()
		for i := range members {
			if isShared(members[i].Name()) {
				reduced, found = s.nodes.With(&reduced, section, s.nodes.Without(reduced.Get(section), members[i].Name())), true
			}
		}
		if n := reduced.Get(section); n != nil && len(n.Members()) == 0 {
			reduced = s.nodes.Without(&reduced, section)
		}
	}
	return reduced, found
}

// isShared reports whether a pod may have that resource for all of its containers.
func isShared(resource string) bool {
	return resource == "cpu" || resource == "memory" || strings.HasPrefix(resource, corev1.ResourceHugePagesPrefix)
}
