// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func isSidecarSet(o *object) bool {
	return o.kind == "SidecarSet" && strings.HasPrefix(o.root.peekText("apiVersion"), "apps.kruise.io/")
}

// readSidecarSet reads a SidecarSet of OpenKruise. If it has containers before and after those of the pod, it becomes
// two templates, because the containers of a template stay next to each other.
func readSidecarSet(_ *importer, o *object) {
	o.readMetadata()
	spec := o.root.get("spec")
	before := newDraft(o.name, "Imported from the SidecarSet "+o.name+".")
	after := newDraft(o.name+"-after", "Imported from the SidecarSet "+o.name+": the containers after those of the pod.")
	first, second := &converter{o: o, d: before}, &converter{o: o, d: after}
	rollout := sidecarSetRollout(o, spec)
	for _, d := range []*draft{before, after} {
		d.readSidecarSetMatch(o, spec)
		d.rollout = rollout
	}
	if s := spec.get("selector"); len(s.get("matchLabels").members()) == 0 && len(s.get("matchExpressions").items()) == 0 {
		before.onRequest, after.onRequest = true, true
		o.leaveOut(o.root.get("metadata", "name"), "OpenKruise rejects a SidecarSet without a selector; %s", onlyOnRequest)
	}
	before.placeInit, before.placeContainers = "Last", "First"
	for _, container := range sortedByName(spec.get("initContainers")) {
		first.addSidecar("initContainers", container)
	}
	for _, container := range spec.get("containers").items() {
		c := first
		switch policy := container.get("podInjectPolicy"); policy.peekText() {
		case "", "BeforeAppContainer":
		case "AfterAppContainer":
			c = second
		default:
			o.leaveOut(policy, "this is neither BeforeAppContainer nor AfterAppContainer")
		}
		c.addSidecar("containers", container)
	}
	o.readHotUpgrades(spec)
	first.addSidecarVolumes(spec, second)
	first.addList(spec.get("imagePullSecrets"))
	for _, p := range spec.get("patchPodMetadata").items() {
		first.addPatchedMetadata(p)
	}
	o.readUpdateStrategy(spec.get("updateStrategy"))
	o.readInjectionStrategy(spec.get("injectionStrategy"), before, after)
	o.recordNote(spec.get("revisionHistoryLimit"), "Pillion keeps the revisions of templates itself")
	o.recordNote(spec.get("customVersion"), "Pillion names revisions by a hash of their content")
	o.drafts = []*draft{before, after}
	if memberOf(before.pod, "spec") == nil && memberOf(after.pod, "spec") != nil {
		after.name, after.description = before.name, before.description // there is only one
	}
	first.completeMounts()
	second.completeMounts()
	for _, d := range o.drafts {
		if pod := memberOf(d.pod, "spec"); memberOf(pod, "containers") == nil && memberOf(pod, "initContainers") == nil {
			d.rollout = nil
		}
	}
	if before.rollout == nil && after.rollout == nil && rollout != nil {
		o.leaveOut(spec.get("updateStrategy"), "there is no container to update")
	}
}

func sortedByName(list *field) []*field {
	return slices.SortedStableFunc(slices.Values(list.items()), func(a, b *field) int { return cmp.Compare(a.peekText("name"), b.peekText("name")) })
}

func (d *draft) readSidecarSetMatch(o *object, spec *field) {
	d.podSelector = d.copySelector(o, spec.get("selector"))
	within := spec
	if s := spec.get("specificNamespace"); s != nil {
		within = s
	}
	d.namespaceSelector = d.copySelector(o, within.get("namespaceSelector"))
	if name := within.readText("namespace"); name != "" {
		if d.namespaceSelector == nil {
			d.namespaceSelector = mapNode()
		}
		setMember(ensureObject(d.namespaceSelector, "matchLabels"), "kubernetes.io/metadata.name", textNode(name))
		within.get("namespace").out = d.namespaceSelector
	}
}

// addSidecar adds a container with the fields that only a SidecarSet has.
func (c *converter) addSidecar(list string, f *field) {
	extra := []string{"podInjectPolicy", "upgradeStrategy", "shareVolumePolicy", "shareVolumeDevicePolicy", "transferEnv", "resourcesPolicy"}
	plain := f.withoutChildren(func(m *field) bool { return slices.Contains(extra, m.name) })
	n := c.addContainer(list, plain)
	f.out = plain.out
	f.markScalar("podInjectPolicy")
	if kind := f.get("upgradeStrategy", "upgradeType"); kind.peekText() == "ColdUpgrade" {
		kind.read = true
	}
	if n == nil {
		return
	}
	c.d.origin[n] = f
	c.shareVolumes(f, n)
	appendItems(n, "env", mapNode("name", textNode("IS_INJECTED"), "value", textNode("true")))
	for _, t := range f.get("transferEnv").items() {
		c.transferEnv(t, n)
	}
	c.o.leaveOut(f.get("resourcesPolicy"), "set resources from those of the pod's containers with expressions, for example limits: {memory: \"${...}\"}")
}

// firstOfEach returns an expression for the items of a list without those that have the same value of a field as an earlier one.
func firstOfEach(list, field string) string {
	return "lists.range(size(" + list + ")).filter(i, !lists.range(i).exists(j, " + list + "[j]." + field + " == " + list + "[i]." + field + ")).map(i, " + list + "[i])"
}

// shareVolumes mounts what the containers of the pod mount, except at the paths of the container's own mounts.
func (c *converter) shareVolumes(f *field, n *yaml.Node) {
	switch policy := f.get("shareVolumePolicy"); policy.readText("type") {
	case "enabled":
		var own []string
		for _, m := range itemsOf(memberOf(n, "volumeMounts")) {
			own = append(own, valueOf(m, "mountPath"))
		}
		c.d.addVariable("appMounts", "pod.spec.containers.map(c, c.volumeMounts).flatten()")
		list := firstOfEach("variables.appMounts", "mountPath")
		if len(own) > 0 {
			list += ".filter(m, !(m.mountPath in " + celList(own...) + "))"
		}
		item := mapNode("${forEach}", mapNode("mount", expressionNode(list)), "name", textNode("${mount.name}"), "mountPath", textNode("${mount.mountPath}"))
		for _, name := range []string{"subPath", "subPathExpr", "readOnly", "mountPropagation", "recursiveReadOnly"} {
			setMember(item, name, textNode("${mount.?"+name+"}"))
		}
		appendItems(n, "volumeMounts", item)
		c.d.origin[item], policy.out = policy, item
	case "disabled", "":
	default:
		c.o.leaveOut(policy, "the type must be enabled or disabled")
	}
	if devices := f.get("shareVolumeDevicePolicy"); devices.peekText("type") == "disabled" {
		devices.markScalar("type")
	} else {
		c.o.leaveOut(devices, "add the devices of the pod to volumeDevices, with \"${forEach}\" over those of its containers")
	}
}

// transferEnv adds variables of other containers. Those that the container has already stay.
func (c *converter) transferEnv(f *field, n *yaml.Node) {
	var fields []*field
	if name := f.get("envName"); name.peekText() != "" {
		fields = append(fields, name)
	}
	var names []string
	fields = append(fields, f.get("envNames").items()...)
	for _, name := range fields {
		if hasItem(n, "env", name.peekText()) {
			c.o.recordNote(name, "the sidecar has this variable already, and OpenKruise keeps it")
			continue
		}
		names = append(names, name.readText())
	}
	all := "pod.spec.containers.map(c, c.env).flatten()"
	switch from := f.get("sourceContainerNameFrom"); {
	case from != nil:
		name, ok := fieldRefExpression(from.get("fieldRef").readText("fieldPath"))
		if !ok {
			c.o.leaveOut(f, "a template cannot read this field of a pod; name the container in an expression")
			return
		}
		from.get("fieldRef").markScalar("apiVersion")
		all = "pod.spec.containers.filter(c, c.name == " + name + ").map(c, c.env).flatten()"
	case f.peekText("sourceContainerName") != "":
		all = "pod.spec.containers.filter(c, c.name == " + celString(f.peekText("sourceContainerName")) + ").map(c, c.env).flatten()"
	default: // all containers, of which several may have the variable
		c.d.addVariable("appVariables", all)
		all = firstOfEach("variables.appVariables", "name")
	}
	if len(names) == 0 {
		if len(fields) == 0 {
			c.o.leaveOut(f, "it names no variable")
		}
		f.markScalar("sourceContainerName")
		return
	}
	f.markScalar("sourceContainerName")
	list := all + ".filter(e, e.name in " + celList(names...) + ")"
	item := mapNode("${forEach}", mapNode("variable", expressionNode(list)), "name", textNode("${variable.name}"),
		"value", textNode("${variable.?value}"), "valueFrom", textNode("${variable.?valueFrom}"))
	appendItems(n, "env", item)
	c.d.origin[item], f.out = f, item
}

// fieldRefExpression returns the expression for a label or an annotation in the syntax of the downward API.
func fieldRefExpression(path string) (string, bool) {
	for _, kind := range []string{"labels", "annotations"} {
		if key, ok := strings.CutPrefix(path, "metadata."+kind+"['"); ok && strings.HasSuffix(key, "']") {
			return "pod.metadata." + kind + "[?" + celString(strings.TrimSuffix(key, "']")) + "].orValue('')", true
		}
	}
	return "", false
}

// readHotUpgrades reports containers that OpenKruise injects twice.
func (o *object) readHotUpgrades(spec *field) {
	for _, list := range []string{"initContainers", "containers"} {
		for _, f := range spec.get(list).items() {
			if s := f.get("upgradeStrategy"); s.peekText("upgradeType") == "HotUpgrade" {
				o.leaveOut(s, "the template has one container; pillion rollout changes its image in place, with a short interruption; let the sidecar hand over its connections when it stops")
			} else if empty := s.get("hotUpgradeEmptyImage"); empty != nil {
				o.recordNote(empty, "without HotUpgrade, OpenKruise does not use this image")
			}
		}
	}
}

// addSidecarVolumes adds each volume to the templates whose containers mount it.
func (c *converter) addSidecarVolumes(spec *field, other *converter) {
	for _, v := range spec.get("volumes").items() {
		name, used := v.peekText("name"), false
		for _, each := range []*converter{c, other} {
			if !each.mountsVolume(name) {
				continue
			}
			used = true
			n, failed := each.copyField(v, true)
			if failed != nil {
				c.o.leaveOut(v, "%s", failed.message)
				break
			}
			appendItems(ensureObject(each.d.pod, "spec"), "volumes", n)
		}
		if !used {
			c.o.recordNote(v, "no container mounts this volume, so OpenKruise does not add it")
		}
	}
}

func (c *converter) mountsVolume(volume string) bool {
	return slices.ContainsFunc(c.d.listContainers(), func(n *yaml.Node) bool {
		return slices.ContainsFunc(itemsOf(memberOf(n, "volumeMounts")), func(m *yaml.Node) bool { return valueOf(m, "name") == volume })
	})
}

// addPatchedMetadata adds annotations. Pillion keeps the pod's own ones, as the policy Retain does.
func (c *converter) addPatchedMetadata(f *field) {
	if policy := f.readText("patchPolicy"); policy != "" && policy != "Retain" {
		c.o.leaveOut(f, "Pillion keeps the annotations of the pod, and never replaces or merges them; if pods do not set these themselves, write them under spec.pod.metadata.annotations")
		return
	}
	c.addMetadata(f.get("annotations"), nil)
}

// readInjectionStrategy reads whether the SidecarSet injects, and which revision.
func (o *object) readInjectionStrategy(f *field, drafts ...*draft) {
	paused := f.readText("paused") == "true"
	for _, d := range drafts {
		d.onRequest = d.onRequest || paused
	}
	if paused {
		o.recordNote(f.get("paused"), "the SidecarSet injects into no new pod, so pods get the template only if their annotation pillion.dev/templates names it")
	}
	o.leaveOut(f.get("revision"), "this template has the content of the SidecarSet in the file; import the older revision, and try the newer one as a canary with replaces and share")
}

// sidecarSetRollout returns how running pods are updated.
func sidecarSetRollout(o *object, spec *field) *yaml.Node {
	s := spec.get("updateStrategy")
	switch kind := s.get("type"); kind.readText() {
	case "", "RollingUpdate":
	case "NotUpdate":
		return nil // OnCreate is the default
	default:
		o.leaveOut(kind, "this is neither NotUpdate nor RollingUpdate")
		return nil
	}
	rollout := mapNode("strategy", textNode("InPlace"))
	c := &converter{o: o, d: newDraft("", "")}
	limit := literalNode("!!int", "1")
	if m := s.get("maxUnavailable"); m != nil {
		if n, failed := c.copyField(m, true); failed == nil {
			limit = n
		}
	}
	setMember(rollout, "maxUnavailable", limit)
	if s.readText("paused") == "true" {
		setMember(rollout, "paused", literalNode("!!bool", "true"))
	}
	if p := s.get("partition"); p.peekText() == "0" || p.peekText() == "0%" {
		p.markScalar()
	}
	if s != nil {
		s.out = rollout
	}
	return rollout
}

// readUpdateStrategy reports what a rollout of Pillion does not have.
func (o *object) readUpdateStrategy(s *field) {
	if p := s.get("partition"); p != nil && !p.isRead() {
		o.leaveOut(p, "write the shares of all pods that change one after the other into spec.rollout.waves")
	}
	o.leaveOut(s.get("selector"), "a rollout changes all pods of the template; try a change on some workloads first with a canary, replaces and share")
	o.leaveOut(s.get("priorityStrategy"), "a rollout has no priorities; its first wave is spec.rollout.first")
	o.leaveOut(s.get("scatterStrategy"), "a rollout limits the pods of each workload that are unready, so changes of one workload are spread already")
}
