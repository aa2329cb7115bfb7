// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// The API server accepts pods that the kubelet does not start. If a pod starts without a template, it must start with the template,
// too. The rules in this file are those of the kubelet that depend on the pod and the template together. They are about
// the final pod: what templates add, what the pod keeps, and what containers inherit. A template is not to blame for
// what is wrong without it, so each rule concerns something that a template has added. The module e2e/validity
// compares the rules with the kubelet's own code, and e2e/node with a running kubelet.

// checkStarts reports a conflict if the kubelet would not start the pod, or a container, because of additions.
func (p *planner) checkStarts() {
	if len(p.conflicts) > 0 {
		return // they may be the cause
	}
	s := &startChecker{planner: p, spec: p.subject.pod.Get("spec")}
	s.serviceLinks = s.spec.Get("enableServiceLinks").Kind() != jsontree.False
	s.volumes = podVolumes{subject: p.subject, spec: s.spec, serviceLinks: s.serviceLinks}
	s.checkVolumes()
	for _, list := range schema.ContainerLists() {
		items := s.spec.Get(list).Items()
		for i := range items {
			s.at, s.isNew = p.subject.at.Member("spec").Member(list).Item(items, i), items[i].IsNew()
			if items[i].HasNew() {
				s.checkContainer(&items[i])
			}
		}
	}
	s.checkDevices()
	s.checkHugePages()
}

// startChecker checks whether the kubelet would start a pod. At and isNew are about the container that is checked.
type startChecker struct {
	planner      *planner
	spec         *jsontree.Node
	serviceLinks bool

	at    schema.Pointer // to the container
	isNew bool           // whether a template added the container

	volumes podVolumes
}

// reportConflict records a conflict. Pod is the value at the place, and fragment is what conflicts with it. Other reports whether
// a template adds a part of what is wrong; then the message names that template. It is nil if no other template can.
func (s *startChecker) reportConflict(at schema.Pointer, pod, fragment *jsontree.Node, other func(*candidate) bool, why string) {
	if other != nil {
		if owner := s.planner.findContributor(other); owner != "" {
			why = fmt.Sprintf("together with the template %s, %s", owner, why)
		}
	}
	s.planner.reportConflict(at, pod, fragment, "%s", why)
}

// isAdded reports whether a template added one of these values, or the container.
func (s *startChecker) isAdded(nodes ...*jsontree.Node) bool {
	return s.isNew || slices.ContainsFunc(nodes, (*jsontree.Node).IsNew)
}

// unlessAdded returns a value of the container, or nil if a template has added it.
func (s *startChecker) unlessAdded(n *jsontree.Node) *jsontree.Node {
	if s.isAdded(n) {
		return nil
	}
	return n
}

// checkContainer reports what is wrong with one container, apart from its devices.
func (s *startChecker) checkContainer(c *jsontree.Node) {
	name := c.Get("name").Text()
	s.checkUser(c, name)
	for _, fault := range validation.UnknownPorts(c) {
		if s.isAdded(fault.Nodes...) {
			s.reportConflict(s.at.Member("ports"), s.unlessAdded(c.Get("ports")), nil, nil, fmt.Sprintf("in the container %s, %s", name, fault.Message))
		}
	}
	s.checkSubPaths(c, name)
	if s.planner.subject.os == string(corev1.Linux) {
		s.checkMounts(c, name)
	}
	env := c.Get("env")
	if !s.isNew && !env.HasNew() {
		return
	}
	vars := env.Items()
	for i := range vars {
		if other := vars[i].At("valueFrom", "resourceFieldRef", "containerName").Text(); other != "" && s.isAdded(env, &vars[i]) && !s.hasContainer(other) {
			s.reportConflict(s.at.Member("env").Member("-"), nil, &vars[i], nil, fmt.Sprintf("the variable %s of the container %s reads a resource of the container %s, which the pod does not have, so the kubelet would not start it; correct containerName",
				vars[i].Get("name").Text(), name, other))
		}
	}
}

// checkSubPaths finds mounts whose subPathExpr cannot be expanded to a valid path. A template can cause this in the container's own
// mounts: a variable that it adds hides a variable of envFrom with the same name.
func (s *startChecker) checkSubPaths(c *jsontree.Node, name string) {
	env, mounts := c.Get("env"), c.Get("volumeMounts")
	anyNew := s.isNew || env.HasNew()
	if !anyNew && !mounts.HasNew() || !slices.ContainsFunc(mounts.Items(), func(m jsontree.Node) bool { return m.Get("subPathExpr") != nil }) {
		return // as for most containers, so that their other lists are not parsed
	}
	concerns := func(mount *jsontree.Node) bool { return anyNew || mount.IsNew() }
	wasThere := func(v *jsontree.Node) bool { return !v.IsNew() && (!env.IsNew() || v == c.Get("envFrom")) }
	for _, fault := range validation.UnusableSubPaths(c, s.serviceLinks, concerns, func(*jsontree.Node) bool { return true }) {
		mount := fault.Nodes[0]
		one := func(other *jsontree.Node) bool { return other == mount }
		if !s.isAdded(mount) && len(validation.UnusableSubPaths(c, s.serviceLinks, one, wasThere)) > 0 {
			continue // it is wrong without the template, too
		}
		s.reportConflict(s.at.Member("env"), s.unlessAdded(env), nil, nil, fmt.Sprintf("in the container %s, %s", name, fault.Message))
	}
}

// checkUser finds a container that runs as root although runAsNonRoot is true for it (verifyRunAsNonRoot in
// pkg/kubelet/kuberuntime). A container's own fields win over those of the pod. The user of an image is not known.
func (s *startChecker) checkUser(c *jsontree.Node, name string) {
	own, pod := c.Get("securityContext"), s.spec.Get("securityContext")
	nonRoot, ownNonRoot := effectiveField(own, pod, "runAsNonRoot")
	if nonRoot.Kind() != jsontree.True {
		return
	}
	field := "runAsUser"
	ownUser, podUser := own, pod
	if s.planner.subject.os == string(corev1.Windows) {
		field, ownUser, podUser = "runAsUserName", own.Get("windowsOptions"), pod.Get("windowsOptions")
	}
	user, isOwn := effectiveField(ownUser, podUser, field)
	if !isRoot(user) || !s.isAdded(own, ownUser, own.Get("runAsNonRoot"), ownUser.Get(field)) {
		return
	}
	if before := own.Get("runAsNonRoot"); !s.isNew && isRoot(podUser.Get(field)) && (before == nil || !before.IsNew()) {
		return // it would be root without the template, too
	}
	whose := map[bool]string{true: "its", false: "the pod's"}
	at, place := s.planner.subject.beside.Member("spec").Member("securityContext").Member("runAsNonRoot"), nonRoot
	if ownNonRoot {
		at, place = s.at.Member("securityContext").Member("runAsNonRoot"), nonRoot
		if s.isAdded(own, nonRoot) {
			place = nil
		}
	}
	do := "set runAsNonRoot: false for this container, or leave this template out"
	if s.isNew {
		do = "in the template, set another " + field + " for this container, or runAsNonRoot: false"
	}
	s.reportConflict(at, place, user, func(o *candidate) bool { return o.changesUser(name) }, fmt.Sprintf("the kubelet would not start the container %s: %s runAsNonRoot is true, but %s %s is %s, which is root; %s", name, whose[ownNonRoot], whose[isOwn], field, user, do))
}

// effectiveField returns the value of a field of a container, or else of the pod.
func effectiveField(own, pod *jsontree.Node, field string) (value *jsontree.Node, isOwn bool) {
	if value = own.Get(field); value != nil && value.Kind() != jsontree.Null {
		return value, true
	}
	return pod.Get(field), false
}

// isRoot reports whether a user is root: 0, or an administrator of Windows.
func isRoot(user *jsontree.Node) bool {
	return user.Kind() == jsontree.Number && schema.IsZero(user) || strings.EqualFold(user.Text(), "ContainerAdministrator")
}

// changesUser reports whether the template may decide as which user a container runs.
func (c *candidate) changesUser(container string) bool {
	return c.t.Brings(container) || slices.ContainsFunc(c.apps, func(app appContainer) bool {
		return slices.ContainsFunc(app.fragments, func(f jsontree.Node) bool {
			s := f.Get("securityContext")
			return s.Get("runAsUser") != nil || s.Get("runAsNonRoot") != nil
		})
	})
}

// hasContainer reports whether the pod has a container with that name.
func (s *startChecker) hasContainer(name string) bool {
	for _, list := range schema.ContainerLists() {
		if slices.ContainsFunc(s.spec.Get(list).Items(), func(c jsontree.Node) bool { return c.Get("name").IsText(name) }) {
			return true
		}
	}
	return false
}

// checkMounts finds what keeps the container from starting because of its mounts.
func (s *startChecker) checkMounts(c *jsontree.Node, name string) {
	mounts := c.Get("volumeMounts")
	if !s.isNew && !mounts.HasNew() && !c.Get("terminationMessagePath").IsNew() && !c.Get("workingDir").IsNew() {
		return
	}
	for _, fault := range s.volumes.impossibleMounts(c) {
		ofNewList := mounts.IsNew() && (isOf(mounts, fault.mount) || isOf(mounts, fault.within))
		if !ofNewList && !s.isAdded(fault.parts...) {
			continue
		}
		pod, fragment := s.unlessAdded(fault.mount), fault.within
		if pod == nil {
			pod, fragment = s.unlessAdded(fault.within), fault.mount
		}
		s.reportConflict(s.at.Member("volumeMounts"), pod, fragment, func(o *candidate) bool {
			return o.t.Brings(name) || fault.mount != nil && o.addsMount(fault.mount) || fault.within != nil && o.addsMount(fault.within)
		}, fmt.Sprintf("the container %s could not start: %s; %s", name, fault.why, fault.advice))
	}
}

// isOf reports whether a node is an item of a list.
func isOf(list, item *jsontree.Node) bool {
	items := list.Items()
	for i := range items {
		if item == &items[i] {
			return true
		}
	}
	return false
}

// checkVolumes finds volumes that read resources of a container that the pod does not have. The kubelet cannot make them
// (ExtractResourceValueByContainerName in pkg/api/v1/resource), so no container starts.
func (s *startChecker) checkVolumes() {
	volumes := s.spec.Get("volumes").Items()
	for i := range volumes {
		if !volumes[i].IsNew() {
			continue
		}
		s.checkDownwardAPI(&volumes[i], volumes[i].Get("downwardAPI"))
		sources := volumes[i].At("projected", "sources").Items()
		for j := range sources {
			s.checkDownwardAPI(&volumes[i], sources[j].Get("downwardAPI"))
		}
	}
}

func (s *startChecker) checkDownwardAPI(volume, downwardAPI *jsontree.Node) {
	files := downwardAPI.Get("items").Items()
	for i := range files {
		if other := files[i].At("resourceFieldRef", "containerName").Text(); other != "" && !s.hasContainer(other) {
			s.reportConflict(s.volumesAt().Member("-"), nil, volume, nil, fmt.Sprintf("the volume %s reads a resource of the container %s, which the pod does not have, so the kubelet would start no container; correct containerName",
				volume.Get("name").Text(), other))
		}
	}
}

func (s *startChecker) volumesAt() schema.Pointer {
	return s.planner.subject.beside.Member("spec").Member("volumes")
}

// volumeUse is a mount or a device of a container.
type volumeUse struct {
	container *jsontree.Node
	item      *jsontree.Node
}

func (u *volumeUse) isNew() bool { return u.container.IsNew() || u.item.IsNew() }

// checkDevices finds claims that containers use both as a device and as a directory. A claim can only be used in one of these ways, so
// the kubelet would start no container (pkg/kubelet/volumemanager/populator).
func (s *startChecker) checkDevices() {
	var devices map[string]volumeUse // by claim
	s.eachUse("volumeDevices", func(claim string, u volumeUse) {
		if devices == nil {
			devices = map[string]volumeUse{}
		}
		if first, known := devices[claim]; !known || !first.isNew() && u.isNew() {
			devices[claim] = u
		}
	})
	if devices == nil {
		return
	}
	s.eachUse("volumeMounts", func(claim string, mount volumeUse) {
		device, ok := devices[claim]
		if !ok || !mount.isNew() && !device.isNew() {
			return
		}
		delete(devices, claim)
		a, b := mount.container.Get("name").Text(), device.container.Get("name").Text()
		other := func(o *candidate) bool {
			return o.t.Brings(a) || o.t.Brings(b) || o.addsMount(mount.item) || o.addsMount(device.item)
		}
		s.reportConflict(s.volumesAt(), nil, nil, other, fmt.Sprintf("the container %s mounts the volume %s as a directory, and the container %s uses the same claim as a device (volume %s), so the kubelet would start no container; correct one of them",
			a, mount.item.Get("name").Text(), b, device.item.Get("name").Text()))
	})
}

// eachUse calls yield for each item of volumeMounts or volumeDevices in the pod's containers. Claim identifies the
// PersistentVolumeClaim that the item uses, or else its volume.
func (s *startChecker) eachUse(list string, yield func(claim string, u volumeUse)) {
	for _, containers := range schema.ContainerLists() {
		items := s.spec.Get(containers).Items()
		for i := range items {
			uses := items[i].Get(list).Items()
			for j := range uses {
				claim := "volume " + uses[j].Get("name").Text()
				if name := s.volumes.volumeOf(&uses[j]).At("persistentVolumeClaim", "claimName").Text(); name != "" {
					claim = "claim " + name
				}
				yield(claim, volumeUse{&items[i], &uses[j]})
			}
		}
	}
}

// checkHugePages finds volumes of huge pages whose size no container requests, or for which containers request several
// (getPageSizeMountOption in pkg/volume/emptydir).
func (s *startChecker) checkHugePages() {
	var before, after map[int64]bool
	volumes := s.spec.Get("volumes").Items()
	for i := range volumes {
		medium, name := volumes[i].At("emptyDir", "medium").Text(), volumes[i].Get("name").Text()
		if !strings.HasPrefix(medium, string(corev1.StorageMediumHugePages)) {
			continue
		}
		if after == nil {
			before, after = s.pageSizes(false), s.pageSizes(true)
		}
		why := noPages(medium, after)
		if why == "" || !volumes[i].IsNew() && noPages(medium, before) != "" {
			continue
		}
		s.reportConflict(s.volumesAt(), nil, nil, nil, fmt.Sprintf("the volume %s has the medium %s, but %s, so the kubelet would start no container; change the medium, for example to HugePages-2Mi, or the resources", name, medium, why))
	}
}

// noPages returns why the kubelet cannot make a volume with this medium, or "".
func noPages(medium string, sizes map[int64]bool) string {
	size, sized := strings.CutPrefix(medium, string(corev1.StorageMediumHugePagesPrefix))
	switch {
	case sized:
		if q, err := values.ParseQuantity(size); err != nil || !sizes[q.Value()] {
			return "no container requests hugepages-" + size
		}
	case len(sizes) == 0:
		return "no container requests huge pages"
	case len(sizes) > 1:
		return "containers request huge pages of several sizes"
	}
	return ""
}

// pageSizes returns the sizes of huge pages that the pod and its containers request, in bytes. The API server sets a
// request that is missing to the limit.
func (s *startChecker) pageSizes(withNew bool) map[int64]bool {
	sizes := map[int64]bool{}
	add := func(resources *jsontree.Node) {
		for _, section := range [...]string{"requests", "limits"} {
			members := resources.Get(section).Members()
			for i := range members {
				size, ok := strings.CutPrefix(members[i].Name(), corev1.ResourceHugePagesPrefix)
				if q, err := values.ParseQuantity(size); ok && err == nil && (withNew || !members[i].IsNew()) {
					sizes[q.Value()] = true
				}
			}
		}
	}
	add(s.spec.Get("resources"))
	for _, list := range schema.ContainerLists() {
		items := s.spec.Get(list).Items()
		for i := range items {
			if withNew || !items[i].IsNew() {
				add(items[i].Get("resources"))
			}
		}
	}
	return sizes
}
