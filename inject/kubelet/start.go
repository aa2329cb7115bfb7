// SPDX-License-Identifier: Apache-2.0

// Package kubelet finds out whether the kubelet would start a pod to which templates have added something.
package kubelet

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

// Fault is a reason why the kubelet would not start a pod, or a container of it. The reason is new: it concerns something that a
// template has added.
type Fault struct {
	At            schema.Pointer
	Pod, Fragment *jsontree.Node // the pod's value at the place, and what conflicts with it; both may be nil
	Why           string         // one sentence, with what to do
	Parts         Parts
}

// Parts are the parts of the pod that cause a fault together. Another template may have added one of them. A fault without parts has
// only one cause.
type Parts struct {
	Containers []string         // names of containers
	Mounts     []*jsontree.Node // mounts and devices; items may be nil
	User       bool             // whether the user as which a container runs is one of them
}

// FindFaults returns what would keep the kubelet from starting the pod, because of additions. Most is the maximum number of faults.
func (p *Pod) FindFaults(most int) []Fault {
	s := &startChecker{pod: p, most: most}
	s.serviceLinks = p.Spec.Get("enableServiceLinks").Kind() != jsontree.False
	s.mounts.podVolumes = podVolumes{pod: p, serviceLinks: s.serviceLinks}
	s.checkVolumes()
	for _, list := range schema.ContainerLists() {
		items := p.Spec.Get(list).Items()
		for i := range items {
			if items[i].HasNew() {
				s.list, s.index, s.isNew = list, i, items[i].IsNew()
				s.checkContainer(&items[i])
			}
		}
	}
	s.checkDevices()
	s.checkHugePages()
	return s.faults
}

// startChecker checks whether the kubelet would start a pod. List, index and isNew are about the container that is checked.
type startChecker struct {
	pod          *Pod
	faults       []Fault // found so far
	most         int     // maximum number of faults
	serviceLinks bool

	list  string // of containers
	index int    // in the list
	isNew bool   // whether a template added the container

	mounts mountChecker
}

// reportFault records a fault, unless there are enough.
func (s *startChecker) reportFault(f Fault) {
	if len(s.faults) < s.most {
		s.faults = append(s.faults, f)
	}
}

// containerAt returns a pointer to the container that is checked.
func (s *startChecker) containerAt() schema.Pointer {
	return schema.Pointer{}.Member("spec").Member(s.list).Item(s.pod.Spec.Get(s.list).Items(), s.index)
}

// isAdded reports whether a template added one of these values, or the container.
func (s *startChecker) isAdded(nodes ...*jsontree.Node) bool {
	return s.isNew || slices.ContainsFunc(nodes, (*jsontree.Node).IsNew)
}

// unlessAdded returns a value of the container, or nil if a template has added it. A fault shows only values of the pod's own.
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
			s.reportFault(Fault{At: s.containerAt().Member("ports"), Pod: s.unlessAdded(c.Get("ports")), Why: fmt.Sprintf("in the container %s, %s", name, fault.Message)})
		}
	}
	s.checkSubPaths(c, name)
	if s.pod.OS == string(corev1.Linux) {
		s.checkMounts(c, name)
	}
	env := c.Get("env")
	if !s.isNew && !env.HasNew() {
		return
	}
	vars := env.Items()
	for i := range vars {
		if other := vars[i].At("valueFrom", "resourceFieldRef", "containerName").Text(); other != "" && s.isAdded(env, &vars[i]) && !s.hasContainer(other) {
			s.reportFault(Fault{At: s.containerAt().Member("env").Member("-"), Fragment: &vars[i], Why: fmt.Sprintf("the variable %s of the container %s reads a resource of the container %s, which the pod does not have, so the kubelet would not start it; correct containerName",
				vars[i].Get("name").Text(), name, other)})
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
	// The variables of a list that is new as a whole are not marked as new themselves.
	wasThere := func(v *jsontree.Node) bool { return !v.IsNew() && (!env.IsNew() || v == c.Get("envFrom")) }
	for _, fault := range validation.UnusableSubPaths(c, s.serviceLinks, concerns, func(*jsontree.Node) bool { return true }) {
		mount := fault.Nodes[0]
		one := func(other *jsontree.Node) bool { return other == mount }
		if !s.isAdded(mount) && len(validation.UnusableSubPaths(c, s.serviceLinks, one, wasThere)) > 0 {
			continue // it is wrong without the template, too
		}
		s.reportFault(Fault{At: s.containerAt().Member("env"), Pod: s.unlessAdded(env), Why: fmt.Sprintf("in the container %s, %s", name, fault.Message)})
	}
}

// checkUser finds a container that runs as root although runAsNonRoot is true for it (verifyRunAsNonRoot in
// pkg/kubelet/kuberuntime). A container's own fields win over those of the pod. The user of an image is not known.
func (s *startChecker) checkUser(c *jsontree.Node, name string) {
	own, pod := c.Get("securityContext"), s.pod.Spec.Get("securityContext")
	field, ownUser, podUser := "runAsUser", own, pod
	if s.pod.OS == string(corev1.Windows) {
		field, ownUser, podUser = "runAsUserName", own.Get("windowsOptions"), pod.Get("windowsOptions")
	}
	nonRoot, ownNonRoot := effectiveField(own, pod, "runAsNonRoot")
	user, isOwn := effectiveField(ownUser, podUser, field)
	if nonRoot.Kind() != jsontree.True || !isRoot(user) {
		return
	}
	nonRootBefore, userBefore := nonRoot, user // templates do not add these two to the pod itself
	if s.isAdded(own, own.Get("runAsNonRoot")) {
		nonRootBefore = pod.Get("runAsNonRoot")
	}
	if s.isAdded(own, ownUser, ownUser.Get(field)) {
		userBefore = podUser.Get(field)
	}
	if !s.isNew && nonRootBefore.Kind() == jsontree.True && isRoot(userBefore) {
		return // it is wrong without the template, too
	}
	whose := map[bool]string{true: "its", false: "the pod's"}
	at, place := schema.Pointer{}.Member("spec").Member("securityContext").Member("runAsNonRoot"), nonRoot
	if ownNonRoot {
		at, place = s.containerAt().Member("securityContext").Member("runAsNonRoot"), nonRoot
		if s.isAdded(own, nonRoot) {
			place = nil
		}
	}
	do := "set runAsNonRoot: false for this container, or leave this template out"
	if s.isNew {
		do = "in the template, set another " + field + " for this container, or runAsNonRoot: false"
	}
	why := fmt.Sprintf("the kubelet would not start the container %s: %s runAsNonRoot is true, but %s %s is %s, which is root; %s", name, whose[ownNonRoot], whose[isOwn], field, user, do)
	s.reportFault(Fault{at, place, user, why, Parts{Containers: []string{name}, User: true}})
}

// effectiveField returns the value of a field of a container, or else of the pod.
func effectiveField(own, pod *jsontree.Node, field string) (value *jsontree.Node, isOwn bool) {
	if value = own.Get(field); value != nil {
		return value, true
	}
	return pod.Get(field), false
}

// isRoot reports whether a user is root: 0, or an administrator of Windows.
func isRoot(user *jsontree.Node) bool {
	return user.Kind() == jsontree.Number && schema.IsZero(user) || strings.EqualFold(user.Text(), "ContainerAdministrator")
}

// hasContainer reports whether the pod has a container with that name.
func (s *startChecker) hasContainer(name string) bool {
	for _, list := range schema.ContainerLists() {
		if slices.ContainsFunc(s.pod.Spec.Get(list).Items(), func(c jsontree.Node) bool { return c.Get("name").IsText(name) }) {
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
	for _, fault := range s.mounts.impossibleMounts(c) {
		// The mounts of a list that is new as a whole are not marked as new themselves.
		ofNewList := mounts.IsNew() && (isItemOf(mounts, fault.mount) || isItemOf(mounts, fault.within))
		if !ofNewList && !s.isAdded(fault.parts...) {
			continue
		}
		pod, fragment := s.unlessAdded(fault.mount), fault.within
		if pod == nil { // then the mount around it may be the pod's own
			pod, fragment = s.unlessAdded(fault.within), fault.mount
		}
		s.reportFault(Fault{
			s.containerAt().Member("volumeMounts"), pod, fragment, fmt.Sprintf("the container %s could not start: %s; %s", name, fault.why, fault.advice),
			Parts{Containers: []string{name}, Mounts: []*jsontree.Node{fault.mount, fault.within}},
		})
	}
}

// isItemOf reports whether a node is an item of a list.
func isItemOf(list, item *jsontree.Node) bool {
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
	volumes := s.pod.Spec.Get("volumes").Items()
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
			s.reportFault(Fault{At: volumesAt().Member("-"), Fragment: volume, Why: fmt.Sprintf("the volume %s reads a resource of the container %s, which the pod does not have, so the kubelet would start no container; correct containerName",
				volume.Get("name").Text(), other)})
		}
	}
}

// volumesAt returns a pointer to the volumes of the pod.
func volumesAt() schema.Pointer { return schema.Pointer{}.Member("spec").Member("volumes") }

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
		why := fmt.Sprintf("the container %s mounts the volume %s as a directory, and the container %s uses the same claim as a device (volume %s), so the kubelet would start no container; correct one of them",
			a, mount.item.Get("name").Text(), b, device.item.Get("name").Text())
		s.reportFault(Fault{At: volumesAt(), Why: why, Parts: Parts{Containers: []string{a, b}, Mounts: []*jsontree.Node{mount.item, device.item}}})
	})
}

// eachUse calls yield for each item of volumeMounts or volumeDevices in the pod's containers. Claim identifies the
// PersistentVolumeClaim that the item uses, or else its volume.
func (s *startChecker) eachUse(list string, yield func(claim string, u volumeUse)) {
	for _, containers := range schema.ContainerLists() {
		items := s.pod.Spec.Get(containers).Items()
		for i := range items {
			uses := items[i].Get(list).Items()
			for j := range uses {
				claim := "volume " + uses[j].Get("name").Text()
				if name := s.mounts.volumeOf(&uses[j]).At("persistentVolumeClaim", "claimName").Text(); name != "" {
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
	volumes := s.pod.Spec.Get("volumes").Items()
	for i := range volumes {
		medium, name := volumes[i].At("emptyDir", "medium").Text(), volumes[i].Get("name").Text()
		if !strings.HasPrefix(medium, string(corev1.StorageMediumHugePages)) {
			continue
		}
		if after == nil {
			before, after = s.pageSizes(false), s.pageSizes(true)
		}
		why := whyNoPages(medium, after)
		if why == "" || !volumes[i].IsNew() && whyNoPages(medium, before) != "" {
			continue
		}
		s.reportFault(Fault{At: volumesAt(), Why: fmt.Sprintf("the volume %s has the medium %s, but %s, so the kubelet would start no container; change the medium, for example to HugePages-2Mi, or the resources", name, medium, why)})
	}
}

// whyNoPages returns why the kubelet cannot make a volume with this medium, or "".
func whyNoPages(medium string, sizes map[int64]bool) string {
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
	add(s.pod.Spec.Get("resources"))
	for _, list := range schema.ContainerLists() {
		items := s.pod.Spec.Get(list).Items()
		for i := range items {
			if withNew || !items[i].IsNew() {
				add(items[i].Get("resources"))
			}
		}
	}
	return sizes
}
