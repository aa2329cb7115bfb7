// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// converter copies parts of a pod from the input to a template.
type converter struct {
	o *object
	d *draft
	// text returns what a string of the input is in a template. If the template cannot express it, it returns nil and
	// the reason. A nil function means that strings are literal.
	text func(f *field) (*yaml.Node, string)
	// foreign are the containers and volumes that another template of the product brings, which this one only changes.
	foreign foreignParts
}

// foreignParts are parts of the pod that come from somewhere else than the object, and the reason why a template
// cannot change them.
type foreignParts struct {
	volumes []string
	because string
	// sidecars are containers that may also be among the init containers.
	sidecars []string
}

// wholeFields are the fields that mean something else if a part of them is missing.
var wholeFields = []string{"command", "args", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy"}

// isWhole reports whether a field is kept or left out as a whole.
func isWhole(f *field) bool {
	return slices.Contains(wholeFields, f.name) || f.name == "" && f.parent != nil && slices.Contains(wholeItems, f.parent.name)
}

// copyField returns a field as a node of a template. If it cannot be expressed, it returns nil and the reason. If nothing is left
// of an object, it returns nil. Inside
// a field that is kept or left out as a whole, one part that cannot be expressed is enough for that.
func (c *converter) copyField(f *field, inside bool) (*yaml.Node, *finding) {
	var n *yaml.Node
	var failed *finding
	inside = inside || isWhole(f)
	switch {
	case f.impossible != "":
		return nil, &finding{at: f, message: f.impossible}
	case strings.HasPrefix(f.name, "${"):
		return nil, &finding{at: f, message: "in a template, a field with this name is an instruction; give it another name"}
	case f.kind == yaml.MappingNode:
		n, failed = c.copyMembers(f, inside)
	case f.kind == yaml.SequenceNode:
		n, failed = c.copyItems(f, inside)
	default:
		n, failed = c.copyScalar(f)
	}
	if failed != nil || n == nil {
		return nil, failed
	}
	if f.when != "" {
		n, failed = makeOptional(f, n)
	}
	if failed == nil {
		f.out, c.d.origin[n] = n, f
		f.read = f.read || len(f.children) == 0
	}
	return n, failed
}

func (c *converter) copyMembers(f *field, inside bool) (*yaml.Node, *finding) {
	n := mapNode()
	for _, child := range f.children {
		if isNull(child) {
			child.read = true // the same as no field
			continue
		}
		if memberOf(n, child.name) != nil {
			c.o.leaveOut(child, "the object has this field twice, and only the first one counts")
			continue
		}
		value, failed := c.copyField(child, inside)
		switch needed := f.name == "" && isContainerList(f.parent) && (child.name == "name" || child.name == "image"); {
		case failed == nil:
			setMember(n, child.name, value)
		case inside || needed:
			return nil, failed
		default:
			c.o.leaveOut(child, "%s", failed.message)
		}
	}
	if len(n.Content) == 0 && len(f.children) > 0 && !isNull(f.children[0]) {
		return nil, nil // nothing is left of it
	}
	return n, nil
}

func (c *converter) copyItems(f *field, inside bool) (*yaml.Node, *finding) {
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	for _, child := range f.children {
		value, failed := c.copyField(child, inside)
		switch {
		case failed == nil && value == nil:
		case failed == nil:
			n.Content = append(n.Content, value)
		case inside:
			return nil, failed
		default:
			c.o.leaveOut(child, "%s", failed.message)
		}
	}
	return n, nil
}

// makeOptional makes a node optional.
func makeOptional(f *field, n *yaml.Node) (*yaml.Node, *finding) {
	switch {
	case n.Kind == yaml.MappingNode:
		n.Content = append([]*yaml.Node{textNode("${when}"), expressionNode(f.when)}, n.Content...)
		return n, nil
	case n.Kind == yaml.ScalarNode && f.expression != "":
		return textNode(wholeText("when(" + f.when + ", " + f.expression + ")")), nil
	case n.Kind == yaml.ScalarNode:
		value := n.Value
		if f.node.Tag == "!!str" {
			value = celString(f.node.Value)
		}
		return textNode(wholeText("when(" + f.when + ", " + value + ")")), nil
	}
	return nil, &finding{at: f, message: "a list cannot depend on a condition as a whole; write \"${when}\" into its items"}
}

func (c *converter) copyScalar(f *field) (*yaml.Node, *finding) {
	if f.expression != "" {
		return textNode(wholeText(f.expression)), nil
	}
	switch f.node.Tag {
	case "!!str":
		if c.text == nil {
			return textNode(escapeText(f.node.Value)), nil
		}
		n, why := c.text(f)
		if n == nil {
			return nil, &finding{at: f, message: why}
		}
		return n, nil
	case "!!int":
		var value int64 // octal numbers become decimal ones, which all readers of YAML read alike
		if err := f.node.Decode(&value); err == nil {
			return literalNode("!!int", strconv.FormatInt(value, 10)), nil
		}
	case "!!float":
		var value float64
		if err := f.node.Decode(&value); err == nil {
			return literalNode("!!float", strconv.FormatFloat(value, 'f', -1, 64)), nil
		}
	case "!!bool":
		return literalNode("!!bool", strings.ToLower(f.node.Value)), nil
	}
	return nil, &finding{at: f, message: "this is not a value that JSON has; write it as a string"}
}

// makeConditional gives all parts of a pod a condition.
func (f *field) makeConditional(when string) {
	for _, part := range f.members() {
		for _, child := range part.members() {
			parts := child.children
			if len(parts) == 0 {
				parts = []*field{child}
			}
			for _, at := range parts {
				at.when = joinConditions([]condition{{expression: when}, {expression: at.when}})
			}
		}
	}
}

// addList copies the items of a list to the list of the pod with the name of its field.
func (c *converter) addList(list *field) {
	for _, item := range list.items() {
		n, failed := c.copyField(item, false)
		if failed != nil {
			c.o.leaveOut(item, "%s", failed.message)
			continue
		}
		appendItems(ensureObject(c.d.pod, "spec"), list.name, n)
		if list.out == nil {
			list.out = memberOf(ensureObject(c.d.pod, "spec"), list.name)
		}
	}
	list.markEmpty()
}

// addVolumes copies volumes, except those that another template brings.
func (c *converter) addVolumes(list *field) {
	for _, v := range list.items() {
		if slices.Contains(c.foreign.volumes, v.peekText("name")) {
			c.o.leaveOut(v, "%s", c.foreign.because)
		}
	}
	kept := list.withoutChildren(func(v *field) bool { return slices.Contains(c.foreign.volumes, v.peekText("name")) })
	c.addList(kept)
}

// addMetadata copies annotations and labels.
func (c *converter) addMetadata(annotations, labels *field) {
	for _, f := range []*field{annotations, labels} {
		if f != nil && f.impossible != "" {
			c.o.leaveOut(f, "%s", f.impossible)
			return
		}
	}
	for _, a := range annotations.members() {
		c.addEntry("annotations", a)
	}
	for _, l := range labels.members() {
		domain, _, ok := strings.Cut(l.name, "/")
		if !ok {
			c.o.leaveOut(l, "a template cannot set a label without a domain, because controllers may select pods by it; set it in the pod templates of the workloads")
			continue
		}
		if c.addEntry("labels", l) && !slices.Contains(c.d.labelDomains, domain) {
			c.d.labelDomains = append(c.d.labelDomains, domain)
		}
	}
	annotations.markEmpty()
	labels.markEmpty()
}

func (c *converter) addEntry(list string, f *field) bool {
	n, failed := c.copyField(f, true)
	if failed != nil {
		c.o.leaveOut(f, "%s", failed.message)
	}
	if n == nil {
		return false
	}
	setMember(ensureObject(c.d.pod, "metadata", list), f.name, n)
	return true
}

// addPod copies a part of a pod.
func (c *converter) addPod(pod *field) {
	if pod.impossible != "" {
		c.o.leaveOut(pod, "%s", pod.impossible)
		return
	}
	for _, f := range pod.members() {
		if f.impossible != "" {
			c.o.leaveOut(f, "%s", f.impossible)
			continue
		}
		switch f.name {
		case "apiVersion", "kind":
			f.markScalar()
		case "spec":
			c.addSpec(f)
		case "metadata":
			c.addMetadata(f.get("annotations"), f.get("labels"))
			for _, m := range f.members() {
				if m.name != "annotations" && m.name != "labels" {
					c.o.leaveOut(m, "a template can set only annotations and labels in the metadata of a pod")
				}
			}
		default:
			c.o.leaveOut(f, "a pod has no field %s that a template can set", f.name)
		}
	}
	c.completeMounts()
}

// addSpec copies a part of the spec of a pod.
func (c *converter) addSpec(spec *field) {
	for _, f := range spec.members() {
		if f.impossible != "" {
			c.o.leaveOut(f, "%s", f.impossible)
			continue
		}
		if slices.Contains(podLists, f.name) && f.kind != yaml.SequenceNode && !isNull(f) {
			c.o.leaveOut(f, "pillion import knows only lists whose items are written out; write them into the template, with \"${forEach}\"")
			continue
		}
		switch f.name {
		case "containers", "initContainers":
			for _, container := range f.items() {
				c.addContainer(f.name, container)
			}
			f.markEmpty()
		case "volumes":
			c.addVolumes(f)
		case "imagePullSecrets", "hostAliases", "tolerations":
			c.addList(f)
		case "shareProcessNamespace":
			c.addSpecField(ensureObject(c.d.pod, "spec"), f)
		case "securityContext":
			for _, s := range f.members() {
				if s.name != "fsGroup" && s.name != "supplementalGroups" {
					c.o.leaveOut(s, "a template can set only fsGroup and supplementalGroups of the pod; set this in the securityContext of the containers")
					continue
				}
				c.addSpecField(ensureObject(c.d.pod, "spec", "securityContext"), s)
			}
		default:
			c.o.leaveOut(f, "a template cannot set spec.%s of a pod, because scheduling or an admission plugin may have used it already; set it in the pod templates of the workloads", f.name)
		}
	}
}

func (c *converter) addSpecField(n *yaml.Node, f *field) {
	value, failed := c.copyField(f, false)
	if failed != nil {
		c.o.leaveOut(f, "%s", failed.message)
		return
	}
	setMember(n, f.name, value)
}

// addContainer adds a container to a list. Without an image, it is a change of a container that the pod has.
func (c *converter) addContainer(list string, f *field) *yaml.Node {
	switch {
	case f.impossible != "":
		c.o.leaveOut(f, "%s", f.impossible)
		return nil
	case f.loop != nil:
		c.changeContainers(f, f.loop.where, f.loop.initContainers)
		return nil
	case f.get("image") == nil:
		c.changeContainer(list, f)
		return nil
	}
	n, failed := c.copyField(f, false)
	if failed != nil {
		c.o.leaveOut(f, "%s", failed.message)
	}
	if n != nil {
		appendItems(ensureObject(c.d.pod, "spec"), list, n)
	}
	return n
}

// addable are the fields that forEachContainer can add.
var addable = []string{"env", "envFrom", "volumeMounts", "volumeDevices", "ports", "resources", "securityContext", "lifecycle"}

// changeContainer adds to a container with a name that the pod, or another injector, brings.
func (c *converter) changeContainer(list string, f *field) {
	var name *yaml.Node
	if n := f.get("name"); n != nil {
		name, _ = c.copyField(n, true)
	}
	if name == nil {
		c.o.leaveOut(f, "the name of the container is not known; add what it gets under forEachContainer, with a condition in where")
		return
	}
	sidecar := slices.Contains(c.foreign.sidecars, name.Value)
	c.changeContainers(f, "container.name == "+celString(name.Value), list == "initContainers" || sidecar)
}

// changeContainers adds to the containers for which an expression is true, or to all if it is "".
func (c *converter) changeContainers(f *field, where string, initContainers bool) {
	add := mapNode()
	if f.when != "" {
		where = joinConditions([]condition{{expression: f.when}, {expression: where}})
	}
	for _, child := range f.members() {
		switch {
		case child.name == "name":
		case !slices.Contains(addable, child.name):
			c.o.leaveOut(child, "Pillion does not change this field of a container that is not the template's, because it only adds; set it in the pod templates of the workloads")
		case child.name == "lifecycle" && initContainers:
			c.o.leaveOut(child, "a template cannot add hooks to init containers; set them in the pod templates of the workloads")
		default:
			n, failed := c.copyField(child, false)
			if failed != nil {
				c.o.leaveOut(child, "%s", failed.message)
				continue
			}
			setMember(add, child.name, n)
		}
	}
	if len(add.Content) == 0 {
		if len(f.members()) > 0 {
			c.o.leaveOut(f, "this changes nothing in a container that the pod has, and it has no image for another one")
		}
		return
	}
	c.addEach(f, where, initContainers, add)
}

// addEach adds an entry of forEachContainer.
func (c *converter) addEach(from *field, where string, initContainers bool, add *yaml.Node) {
	each := mapNode()
	if where != "" {
		setMember(each, "where", expressionNode(where))
	}
	if initContainers {
		setMember(each, "initContainers", literalNode("!!bool", "true"))
	}
	setMember(each, "add", add)
	c.d.each = append(c.d.each, each)
	c.d.origin[each] = from
	if from != nil {
		from.out = each
	}
}

// completeMounts lets mounts of volumes that the template does not bring name a volume of the pod. A mount whose
// volume is left out is left out too.
func (c *converter) completeMounts() {
	volumes := map[string]bool{}
	for _, v := range itemsOf(memberOf(memberOf(c.d.pod, "spec"), "volumes")) {
		volumes[valueOf(v, "name")] = true
	}
	for _, container := range c.d.listContainers() {
		mounts := memberOf(container, "volumeMounts")
		for _, m := range itemsOf(mounts) {
			name := memberOf(m, "name")
			if name == nil || volumes[name.Value] || strings.Contains(name.Value, "${") {
				continue
			}
			if from := c.d.origin[m]; from != nil && c.o.isLeftOut("volumes", name.Value) {
				mounts.Content = slices.DeleteFunc(mounts.Content, func(n *yaml.Node) bool { return n == m })
				c.o.leaveOut(from, "the volume %s is left out", name.Value)
				continue
			}
			name.SetString(wholeText(celString(name.Value)))
		}
		if mounts != nil && len(mounts.Content) == 0 {
			removeMember(container, "volumeMounts")
		}
	}
	c.d.dropEmptyParts()
}

func isContainerName(list string) bool { return list == "containers" || list == "initContainers" }

// copySelector copies a label selector. It returns nil for one that matches everything.
func (d *draft) copySelector(o *object, f *field) *yaml.Node {
	if f == nil {
		return nil
	}
	c := &converter{o: o, d: d}
	n, failed := c.copyField(f, true)
	if failed != nil {
		o.leaveOut(f, "%s; %s", failed.message, onlyOnRequest)
		d.onRequest = true
		return nil
	}
	return nilIfEmpty(n)
}

// newLoop selects the containers of a list for which conditions are true.
func newLoop(list string, where ...condition) *loop {
	if list == "initContainers" {
		where = append([]condition{{expression: "pod.spec.initContainers.exists(c, c.name == container.name)"}}, where...)
	}
	return &loop{joinConditions(where), list == "initContainers"}
}
