// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configStyle is who reads a sidecar configuration.
type configStyle int

const (
	notConfig configStyle = iota
	// namedConfig has a name, which pods request: the injector of Tumblr.
	namedConfig
	// listConfig is a list, which pods request by the name of the ConfigMap: the injector of Expedia Group.
	listConfig
	// singleConfig is the only one of its injector: kube-sidecar-injector and those that began with it.
	singleConfig
	// brokenConfig looks like a configuration, and is not YAML.
	brokenConfig
)

// configKeys are the fields of sidecar configurations.
var configKeys = []string{"containers", "initContainers", "volumes", "env", "volumeMounts", "hostAliases", "imagePullSecrets", "serviceAccountName"}

func styleOf(f *field) configStyle {
	has := func(f *field, names []string) bool {
		return slices.ContainsFunc(f.members(), func(m *field) bool { return m.kind == yaml.SequenceNode && slices.Contains(names, m.name) })
	}
	switch {
	case f == nil || f.get("apiVersion") != nil:
	case f.kind == yaml.SequenceNode:
		if len(f.children) > 0 && !slices.ContainsFunc(f.children, func(item *field) bool { return !has(item, configKeys) }) {
			return listConfig
		}
	case f.get("name").isText() && (has(f, configKeys) || f.get("inherits").isText()):
		return namedConfig
	case has(f, configKeys[:2]):
		return singleConfig
	}
	return notConfig
}

// isSidecarConfig reports whether an object is a sidecar configuration, or a ConfigMap with some.
func isSidecarConfig(o *object) bool {
	if o.kind != "ConfigMap" {
		return styleOf(o.root) != notConfig
	}
	return o.root.peekText("apiVersion") == "v1" && slices.ContainsFunc(o.root.get("data").members(), func(f *field) bool { return dataStyle(f) != notConfig })
}

// dataStyle returns the style of a value of a ConfigMap.
func dataStyle(f *field) configStyle {
	var doc yaml.Node
	switch {
	case !f.isText():
		return notConfig
	case yaml.Unmarshal([]byte(f.node.Value), &doc) != nil:
		if strings.Contains(f.node.Value, "containers:") {
			return brokenConfig
		}
		return notConfig
	case doc.Kind == 0:
		return notConfig
	}
	root, err := newField(doc.Content[0])
	if err != nil {
		return notConfig
	}
	return styleOf(root)
}

// readSidecarConfig reads the configurations of a file or of a ConfigMap.
func readSidecarConfig(im *importer, o *object) {
	if o.kind != "ConfigMap" {
		style := styleOf(o.root)
		o.kind, o.name = "sidecar configuration", o.root.peekText("name")
		if o.name == "" {
			o.name = strings.TrimSuffix(path.Base(o.file), path.Ext(o.file))
		}
		o.addConfig(im, o.root, style, o.name)
		return
	}
	o.readMetadata()
	namespace := o.root.get("metadata", "namespace")
	for _, f := range o.root.get("data").members() {
		style := dataStyle(f)
		if style == notConfig {
			continue
		}
		root, err := f.parseEmbedded(f.node.Value)
		if err != nil {
			o.leaveOut(f, "%v", err)
			continue
		}
		d := o.addConfig(im, root, style, o.name)
		if style != listConfig {
			continue
		}
		o.useNamespace(d)
	}
	if namespace != nil && !namespace.read {
		o.recordNote(namespace, "the injector reads the ConfigMap here, and injects into pods of all namespaces")
	}
}

// addConfig adds the template of a configuration.
func (o *object) addConfig(im *importer, f *field, style configStyle, name string) *draft {
	var d *draft
	switch style {
	case namedConfig:
		full := f.readText("name")
		d = newDraft(full, "Imported from the sidecar configuration "+full+".")
		d.requestByName(full)
		c := &converter{o: o, d: d}
		c.addNamedConfig(im, f)
	case listConfig:
		d = newDraft(name, "Imported from the sidecar configurations in the ConfigMap "+name+".")
		d.annotationDomains = []string{"sidecar-injector.expedia.com"}
		d.addParam("inject", "list", "sidecar-injector.expedia.com/inject", "The names of the ConfigMaps with sidecars for the pod.")
		d.addCondition(nil, celString(name)+" in params.inject")
		c := &converter{o: o, d: d}
		for _, item := range f.items() {
			c.addListConfig(item)
		}
	default:
		d = newDraft(name, "Imported from the sidecar configuration "+name+".")
		c := &converter{o: o, d: d}
		c.addSingleConfig(f)
	}
	c := &converter{o: o, d: d}
	c.completeMounts()
	o.drafts = append(o.drafts, d)
	return d
}

// requestByName adds the annotation with which a pod requests a configuration. Its case does not matter, and a name
// without a version means the latest one.
func (d *draft) requestByName(full string) {
	const domain = "injector.tumblr.com"
	d.annotationDomains = []string{domain}
	d.addParam("request", "string", domain+"/request", "The name of the sidecar configuration for the pod.")
	d.addParam("status", "string", domain+"/status", "The value injected means that the pod has its sidecar already.")
	name, version, _ := strings.Cut(strings.ToLower(full), ":")
	names := []string{name + ":" + version}
	if version == "" || version == "latest" {
		names = []string{name, name + ":", name + ":latest"}
	}
	d.addCondition(nil, "params.request.lowerAscii() in "+celList(names...))
	d.addCondition(nil, "params.status.lowerAscii() != 'injected'")
}

// addNamedConfig adds the parts of a named configuration, and of the one that it inherits from.
func (c *converter) addNamedConfig(im *importer, f *field) {
	chain := []*field{f}
	for at := f; at.get("inherits") != nil; {
		inherits := at.get("inherits")
		file := path.Join(path.Dir(path.Clean(c.o.file)), inherits.peekText())
		base := im.files[file]
		if c.o.kind == "ConfigMap" || base == nil || slices.Contains(chain, base) || styleOf(base) != namedConfig {
			c.o.leaveOut(inherits, "the file %s is not in the input; import it together with this one", inherits.peekText())
			break
		}
		inherits.markScalar()
		chain = append(chain, base)
		at = base
	}
	for _, name := range []string{"containers", "initContainers"} {
		for _, item := range overlayItems(chain, name, true) {
			c.addContainer(name, item)
		}
	}
	for _, name := range []string{"volumes", "hostAliases"} {
		for _, item := range overlayItems(chain, name, name == "volumes") {
			list := *item.parent
			list.children = []*field{item}
			c.addList(&list)
		}
	}
	if spec := memberOf(c.d.pod, "spec"); memberOf(spec, "initContainers") != nil {
		c.d.placeInit = "Last"
	}
	c.addToAllContainers(overlayItems(chain, "env", true), overlayItems(chain, "volumeMounts", true))
	for _, at := range chain {
		c.o.leaveOut(at.get("serviceAccountName"), "a template cannot set the ServiceAccount of a pod, because the API server has used it already; set it in the pod templates of the workloads")
		for _, name := range append([]string{"env", "volumeMounts"}, configKeys...) {
			at.get(name).markEmpty()
		}
	}
}

// overlayItems returns the items of a list of several configurations. The first configuration replaces items with the same name of the
// later ones, and keeps their places.
func overlayItems(chain []*field, list string, byName bool) []*field {
	var all []*field
	for _, at := range slices.Backward(chain) {
		earlier := slices.Clone(all)
		for _, item := range at.get(list).items() {
			i := slices.IndexFunc(earlier, func(f *field) bool { return byName && f.peekText("name") == item.peekText("name") })
			if i < 0 {
				all = append(all, item)
				continue
			}
			all[i].markAll() // replaced
			all[i] = item
		}
	}
	return all
}

// addToAllContainers adds variables and mounts to the containers of the pod and of the template. A variable is added to
// containers without one of that name, and a mount to containers that do not mount its volume.
func (c *converter) addToAllContainers(env, mounts []*field) {
	add := mapNode()
	own := c.d.listContainers()
	for _, f := range env {
		n, failed := c.copyField(f, true)
		if failed != nil {
			c.o.leaveOut(f, "%s", failed.message)
			continue
		}
		appendItems(add, "env", n)
		for _, container := range own {
			if !hasItem(container, "env", valueOf(n, "name")) {
				appendItems(container, "env", n)
			}
		}
	}
	for _, f := range mounts {
		n, failed := c.copyField(f, true)
		if failed != nil {
			c.o.leaveOut(f, "%s", failed.message)
			continue
		}
		for _, container := range own {
			if !hasItem(container, "volumeMounts", valueOf(n, "name")) {
				appendItems(container, "volumeMounts", n)
			}
		}
		elsewhere := "!container.volumeMounts.exists(m, m.name == " + celString(valueOf(n, "name")) + " && m.mountPath != " + celString(valueOf(n, "mountPath")) + ")"
		guarded := mapNode("${when}", expressionNode(elsewhere))
		guarded.Content = append(guarded.Content, n.Content...)
		appendItems(add, "volumeMounts", guarded)
		f.out, c.d.origin[guarded] = guarded, f
	}
	if len(add.Content) > 0 {
		c.addEach(nil, "", false, add)
	}
}

// addListConfig adds one sidecar of a list. Its name is only for readers.
func (c *converter) addListConfig(f *field) {
	c.o.recordNote(f.get("name"), "this name is only for readers")
	for _, name := range []string{"initContainers", "containers"} {
		for _, item := range f.get(name).items() {
			c.addContainer(name, item)
		}
	}
	c.addList(f.get("volumes"))
	c.addList(f.get("imagePullSecrets"))
	c.addMetadata(f.get("annotations"), f.get("labels"))
	c.d.placeInit = "Last"
}

// addSingleConfig adds the configuration of an injector that has only one.
func (c *converter) addSingleConfig(f *field) {
	const domain = "sidecar-injector-webhook.morven.me"
	c.d.annotationDomains = []string{domain}
	c.d.params = append(c.d.params, mapNode("name", textNode("inject"), "type", textNode("boolean"), "annotation", textNode(domain+"/inject"),
		"overridableBy", textList("Pod"), "default", textNode("false"), "description", textNode("Whether the pod gets the sidecar.")))
	c.d.addParam("status", "string", domain+"/status", "The value injected means that the pod has its sidecar already.")
	c.d.addCondition(nil, "params.inject")
	c.d.addCondition(nil, "params.status.lowerAscii() != 'injected'")
	c.o.recordRemark(f, "forks of the injector read another annotation than %s/inject; if yours does, write it into the parameter inject and into annotationDomains", domain)
	for _, name := range []string{"initContainers", "containers"} {
		for _, item := range f.get(name).items() {
			c.addContainer(name, item)
		}
	}
	c.addList(f.get("volumes"))
	c.addList(f.get("imagePullSecrets"))
	c.addList(f.get("hostAliases"))
	c.d.placeInit = "Last"
}
