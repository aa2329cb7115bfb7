// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// istioTemplates are the templates that come with Istio.
var istioTemplates = []string{"sidecar", "gateway", "grpc-agent", "waypoint", "kube-gateway", "ztunnel", "agentgateway", "agentgateway-waypoint"}

// istioGroups are the API groups of objects with the values of Istio's chart.
var istioGroups = []string{"install.istio.io", "operator.istio.io", "sailoperator.io"}

// istioVolumes are the volumes that these templates bring.
var istioVolumes = []string{"workload-socket", "credential-socket", "workload-certs", "istio-envoy", "istio-data", "istio-podinfo", "istio-token", "istiod-ca-cert", "istio-ca-crl"}

// istioValues are the places of the values of Istio's chart in an object.
func istioValues(root *field) []*field {
	return []*field{root, root.get("spec", "values"), root.get("spec", "values", "global"), root.get("global")}
}

// isIstioConfig reports whether an object has injection templates of Istio.
func isIstioConfig(o *object) bool {
	version := o.root.peekText("apiVersion")
	switch {
	case o.kind == "ConfigMap":
		return version == "v1" && injectorConfig(o.root) != nil
	case o.kind != "" && !slices.ContainsFunc(istioGroups, func(group string) bool { return strings.HasPrefix(version, group+"/") }):
		return false
	}
	return slices.ContainsFunc(istioValues(o.root), func(f *field) bool { return len(f.get("sidecarInjectorWebhook", "templates").members()) > 0 })
}

// injectorConfig returns the value of a ConfigMap that is the configuration of Istio's injector, or nil.
func injectorConfig(root *field) *field {
	f := root.get("data", "config")
	var config struct {
		Templates map[string]string `yaml:"templates"`
	}
	if !f.isText() || yaml.Unmarshal([]byte(f.node.Value), &config) != nil || len(config.Templates) == 0 {
		return nil
	}
	return f
}

// istioConfig is the configuration of Istio's injector.
type istioConfig struct {
	templates, defaults, aliases *field
	never, annotations           *field
	values                       chartValues
	// onDemand is true if only pods that ask for injection get it.
	onDemand bool
}

// readIstioConfig reads the injection templates of Istio, except its own ones.
func readIstioConfig(_ *importer, o *object) {
	o.readMetadata()
	o.recordNote(o.root.get("metadata", "namespace"), "this is where Istio is")
	var config istioConfig
	if f := injectorConfig(o.root); f != nil {
		root, err := f.parseEmbedded(f.node.Value)
		if err != nil {
			o.leaveOut(f, "%v", err)
			return
		}
		config = o.readInjectorConfig(root)
	} else {
		config = o.readChartValues()
	}
	if o.kind == "" {
		o.kind, o.name = "Istio values", strings.TrimSuffix(o.file[strings.LastIndexByte(o.file, '/')+1:], ".yaml")
	}
	for _, f := range config.templates.members() {
		if slices.Contains(istioTemplates, f.name) {
			o.recordNote(f, "this template comes with Istio; leave it to Istio, which can run beside Pillion")
			continue
		}
		o.readInjectionTemplate(f, &config)
	}
	if len(o.drafts) == 0 {
		for _, f := range []*field{config.never, config.annotations, config.defaults, config.aliases} {
			o.recordNote(f, "this is about templates that come with Istio")
		}
	}
}

// readInjectorConfig reads the ConfigMap of the injector.
func (o *object) readInjectorConfig(root *field) istioConfig {
	config := istioConfig{templates: root.get("templates"), defaults: root.get("defaultTemplates"), aliases: root.get("aliases")}
	if values := o.root.get("data", "values"); values.isText() {
		config.values.complete = yaml.Unmarshal([]byte(values.node.Value), &config.values.all) == nil
		o.recordNote(values, "these are the values of Istio's chart; the templates have what they read of them")
	}
	config.readSettings(o, root)
	return config
}

// readSettings reads which pods the injector adds to, and what all of them get.
func (config *istioConfig) readSettings(o *object, f *field) {
	config.never, config.annotations = f.get("neverInjectSelector"), f.get("injectedAnnotations")
	for _, f := range f.members() {
		switch f.name {
		case "templates", "defaultTemplates", "aliases":
		case "neverInjectSelector", "injectedAnnotations":
			f.markAll() // in each template
		case "policy":
			config.onDemand = f.peekText() == "disabled"
			o.recordNote(f, "pods of namespaces that opted in with the label pillion.dev/inject get the template; with the policy disabled, only those that have the label sidecar.istio.io/inject")
		case "alwaysInjectSelector":
			if len(f.children) > 0 {
				o.leaveOut(f, "Pillion adds to pods of namespaces that opted in; set the label pillion.dev/inject: enabled on these pods")
				continue
			}
			f.read = true
		case "enableNamespacesByDefault", "rewriteAppHTTPProbe", "injectionURL", "reinvocationPolicy":
			o.recordNote(f, "this is about the mesh; Pillion adds to the pods of namespaces that opted in with the label pillion.dev/inject")
		}
	}
}

// readChartValues reads the values of Istio's chart, in a file or in an object of an operator.
func (o *object) readChartValues() istioConfig {
	var config istioConfig
	var holder *field
	for _, values := range istioValues(o.root) {
		if len(values.get("sidecarInjectorWebhook", "templates").members()) > 0 {
			holder = values.get("sidecarInjectorWebhook")
			break
		}
	}
	root := o.root
	if values := o.root.get("spec", "values"); values != nil {
		root = values
	}
	if o.root.kind == yaml.MappingNode {
		_ = root.plainNode().Decode(&config.values.all)
	}
	config.templates, config.defaults = holder.get("templates"), holder.get("defaultTemplates")
	config.readSettings(o, holder)
	o.noteOthers(o.root, holder, "this configures Istio itself, which can run beside Pillion")
	return config
}

// noteOthers notes what is around a part of an object.
func (o *object) noteOthers(root, part *field, message string) {
	for _, f := range root.members() {
		switch {
		case f == part || f.isRead():
		case part.isInside(f):
			o.noteOthers(f, part, message)
		case root.parent == nil && (f.name == "metadata" && !part.isInside(f) || f.name == "apiVersion" || f.name == "kind"):
		default:
			o.recordNote(f, "%s", message)
		}
	}
}

// defaultNames returns the names of the templates for pods that name none.
func (config *istioConfig) defaultNames() (names []string) {
	for _, item := range config.defaults.items() {
		names = append(names, item.readText())
	}
	config.defaults.markEmpty()
	if len(names) == 0 {
		return []string{"sidecar"}
	}
	return names
}

// requestedInjection is what the label of a pod or, if there is none, its annotation requests.
const requestedInjection = "pod.metadata.labels[?'sidecar.istio.io/inject'].orValue(pod.metadata.annotations[?'sidecar.istio.io/inject'].orValue('')).lowerAscii()"

// addInjectionConditions adds which pods the injector of Istio serves. Selectors count only for pods that request nothing.
func (o *object) addInjectionConditions(d *draft, config *istioConfig) {
	enabled := []string{"", "true", "yes", "y", "on"}
	if config.onDemand {
		enabled = enabled[1:]
	}
	d.addVariable("injection", requestedInjection)
	d.addCondition(nil, "variables.injection in "+celList(enabled...))
	for _, item := range config.never.items() {
		test, err := selectorExpression("pod.metadata.labels", item)
		switch {
		case err != nil:
			o.leaveOut(item, "%v; %s", err, onlyOnRequest)
			d.onRequest = true
		case test != "": // Istio ignores a selector for all pods
			d.addCondition(item, "!("+test+") || variables.injection != ''")
		}
	}
}

// readInjectionTemplate reads one template.
func (o *object) readInjectionTemplate(f *field, config *istioConfig) {
	d := newDraft(f.name, "Imported from the injection template "+f.name+" of Istio.")
	d.from, d.hostNetwork = f, false
	d.placeInit, d.placeContainers = "First", "First" // a strategic merge puts new items of a list first
	names := []string{f.name}
	for _, alias := range config.aliases.members() {
		if slices.ContainsFunc(alias.items(), func(item *field) bool { return item.peekText() == f.name }) {
			names = append(names, alias.name)
			alias.markAll()
		}
	}
	defaults := config.defaultNames()
	config.aliases.markEmpty()
	d.params = append(d.params, mapNode("name", textNode("templates"), "type", textNode("list"), "annotation", textNode("inject.istio.io/templates"),
		"overridableBy", textList("Pod"), "default", textNode(strings.Join(defaults, ",")), "description", textNode("The injection templates for the pod.")))
	test := celString(f.name) + " in params.templates"
	if len(names) > 1 {
		test = "params.templates.exists(t, t in " + celList(names...) + ")"
	}
	d.addCondition(nil, test)
	o.addInjectionConditions(d, config)
	root, alone, err := parseGoTemplate(f, d, config.values)
	if err != nil {
		o.leaveOut(f, "%v", err)
		return
	}
	for _, m := range alone {
		o.leaveOut(&field{path: f.path, line: m.line, kind: yaml.ScalarNode, node: textNode(m.source), parent: f}, "%s", m.impossible)
	}
	c := &converter{o: o, d: d, foreign: foreignParts{
		istioVolumes,
		"Istio's own template brings a volume with this name, and Pillion never replaces one; leave this template to Istio, or give the volume another name",
		[]string{istioProxy},
	}}
	c.addPod(root)
	if len(d.each) > 0 || nilIfEmpty(d.pod) != nil {
		c.addMetadata(config.annotations, nil)
	}
	o.drafts = append(o.drafts, d)
}

const istioProxy = "istio-proxy"

// overridesAnnotation is where Istio keeps what a pod says about containers that Istio injects.
const overridesAnnotation = "proxy.istio.io/overrides"

// overridesOf returns this annotation of a pod, or of the pods of a workload, and their labels.
func overridesOf(o *object) (overrides, labels *field) {
	for _, at := range []*field{o.root, o.root.get("spec", "template")} {
		if f := at.get("metadata", "annotations", overridesAnnotation); f.isText() {
			return f, at.get("metadata", "labels")
		}
	}
	return nil, nil
}

func hasOverrides(o *object) bool {
	f, _ := overridesOf(o)
	return f != nil && slices.Contains([]string{"v1", "apps/v1", "batch/v1"}, o.root.peekText("apiVersion"))
}

// readOverrides reads what a pod or a workload adds to containers of Istio.
func readOverrides(_ *importer, o *object) {
	f, labels := overridesOf(o)
	d := newDraft(o.name+"-istio-overrides", "Imported from the annotation "+overridesAnnotation+" of the "+o.kind+" "+o.name+".")
	d.hostNetwork = false
	o.useNamespace(d)
	root, err := f.parseEmbedded(f.node.Value)
	if err != nil {
		o.leaveOut(f, "%v", err)
		return
	}
	selector := o.root.get("spec", "selector")
	if selector == nil && labels != nil {
		c := &converter{o: o, d: d}
		if n, failed := c.copyField(labels, true); failed == nil && n != nil {
			d.podSelector = mapNode("matchLabels", n)
		}
	} else {
		d.podSelector = d.copySelector(o, selector)
	}
	if d.podSelector == nil {
		d.onRequest = true
		o.leaveOut(o.root.get("metadata", "name"), "the pods have no labels by which a template can select them; %s", onlyOnRequest)
	}
	c := &converter{o: o, d: d, foreign: foreignParts{sidecars: []string{istioProxy}}}
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range root.get(list).items() {
			c.changeContainer(list, o.readOverride(container))
		}
	}
	c.completeMounts()
	o.readServerFields()
	o.noteOthers(o.root, f, "this is not about containers of Istio")
	o.drafts = append(o.drafts, d)
}

// readOverride returns a container without the fields that Istio always sets, so that Pillion cannot add them.
func (o *object) readOverride(container *field) *field {
	if image := container.get("image"); image.peekText() == "auto" {
		o.recordNote(image, "Istio chooses the image")
	} else {
		o.leaveOut(image, "Istio sets the image, and Pillion never replaces it; name it in the annotation sidecar.istio.io/proxyImage of the pods")
	}
	o.leaveOut(container.get("resources"), "Istio sets resources, and Pillion never replaces them; set the annotations sidecar.istio.io/proxyCPU, proxyMemory, proxyCPULimit and proxyMemoryLimit of the pods")
	o.leaveOut(container.get("securityContext"), "Istio sets the security context, and Pillion never replaces it; set it in the values of Istio's chart")
	return container.withoutChildren(func(f *field) bool { return slices.Contains([]string{"image", "resources", "securityContext"}, f.name) })
}
