// SPDX-License-Identifier: Apache-2.0

// Package importer writes templates from what other injectors are configured by: SidecarSets, injection templates
// of Istio, sidecar configurations in files and ConfigMaps, and policies that change pods.
//
// It never drops anything silently. The input is a tree of fields, and each part of the importer marks the fields
// that it has expressed. What is not marked at the end is a finding, so a field that this package does not know is
// reported like one that it knows and cannot express. A finding is also a comment in the template, above the object
// that lacks the field.
//
// The templates that it writes have no problem: what the package templates rejects is taken out again, and becomes a
// finding with the message of the problem.
package importer

import (
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/problem"
)

// Source is a file to import.
type Source struct {
	// Name is its path. Problems and findings contain it.
	Name string
	// Data is a YAML stream. JSON is YAML.
	Data []byte
}

// Import reads all sources and returns what became of each object, in their order. The error is [problem.Problems]
// if a source is not YAML.
func Import(sources []Source) ([]Imported, error) {
	im := &importer{names: map[string]bool{}, files: map[string]*field{}}
	var problems problem.Problems
	for _, s := range sources {
		documents, wrong := parseStream(s.Name, s.Data)
		problems = append(problems, wrong...)
		for _, d := range documents {
			im.addObjects(s.Name, d)
		}
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	for _, o := range im.objects {
		im.readObject(o)
	}
	for _, o := range im.objects { // after all are read, because some belong together
		o.reportUnread(o.root, o.parts == nil)
	}
	results := make([]Imported, len(im.objects))
	for i, o := range im.objects {
		results[i] = o.finishTemplates(im)
	}
	return results, nil
}

// addObjects adds the objects of a document. A List has several.
func (im *importer) addObjects(file string, root *field) {
	if _, ok := im.files[path.Clean(file)]; !ok {
		im.files[path.Clean(file)] = root
	}
	if items := root.get("items"); strings.HasSuffix(root.peekText("kind"), "List") && items != nil {
		for _, f := range root.children {
			if f != items {
				f.markAll() // a List has no content of its own
			}
		}
		for _, item := range items.children {
			item.asRoot()
			im.addObjects(file, item)
		}
		return
	}
	o := &object{file: file, root: root, kind: root.peekText("kind"), name: root.peekText("metadata", "name")}
	im.objects = append(im.objects, o)
}

// readObject reads one object with the first format that knows it.
func (im *importer) readObject(o *object) {
	i := slices.IndexFunc(formats(), func(f format) bool { return f.knows(o) })
	if i < 0 {
		o.skipped = true
		o.root.markAll()
		return
	}
	f := formats()[i]
	o.product, o.parts = f.product, f.parts
	o.root.markScalar("apiVersion")
	o.root.markScalar("kind")
	f.read(im, o)
}

// format is one kind of configuration.
type format struct {
	product string
	knows   func(*object) bool
	read    func(*importer, *object)
	parts   []string
}

// formats returns all formats. The first one that knows an object reads it.
func formats() []format {
	return []format{
		{"Kubernetes", isMutatingPolicy, readMutatingPolicy, []string{"metadata", "status", "mutations", "variables"}},
		{"Kubernetes", isPolicyBinding, readPolicyBinding, []string{"metadata"}},
		{"Kyverno", isKyvernoPolicy, readKyvernoPolicy, []string{"metadata", "status", "mutate", "context"}},
		{"OpenKruise", isSidecarSet, readSidecarSet, []string{
			"metadata", "status", "containers", "initContainers", "volumes", "imagePullSecrets", "patchPodMetadata", "updateStrategy",
		}},
		{"Istio", isIstioConfig, readIstioConfig, nil},
		{"Istio", hasOverrides, readOverrides, nil},
		{"the sidecar injector", isSidecarConfig, readSidecarConfig, nil},
	}
}

// emptyByDefault are the objects and lists that mean the same if they are empty or missing. API servers and clients write some.
var emptyByDefault = []string{
	"injectionStrategy", "updateStrategy", "upgradeStrategy", "shareVolumePolicy", "transferEnv", "scatterStrategy", "patchPodMetadata",
	"containers", "initContainers", "volumes", "imagePullSecrets", "env", "volumeMounts", "hostAliases", "annotations", "labels",
	"exclude", "excludeResourceRules", "preconditions", "context", "matchConditions", "variables", "matchResources",
}

// reportUnread records each field that nothing has read, so that no field is dropped silently. Unless the field is in a part of
// the pod, it may be a condition.
func (o *object) reportUnread(f *field, isPart bool) {
	isPart = isPart || slices.Contains(o.parts, f.name)
	switch {
	case f.isRead():
	case len(f.children) == 0 && slices.Contains(emptyByDefault, f.name) && (f.kind != yaml.ScalarNode || isNull(f)):
		f.read = true
	case f.isUnread():
		advice := ""
		if !isPart {
			advice = "; it may be a condition, so pods get the template only if their annotation pillion.dev/templates names it; if it is none, set default: true"
			o.requestOnly(f)
		}
		o.leaveOut(f, "pillion import does not know this field; read the documentation of %s about it, and write what it does into the template%s", o.product, advice)
	default:
		for _, child := range f.children {
			o.reportUnread(child, isPart)
		}
	}
}

// requestOnly makes the templates that may have a field as a condition ones that pods must name.
func (o *object) requestOnly(f *field) {
	all := append(slices.Clone(o.drafts), o.bound...)
	own := slices.DeleteFunc(slices.Clone(all), func(d *draft) bool { return d.from == nil || !f.isInside(d.from) })
	if len(own) > 0 {
		all = own
	}
	for _, d := range all {
		d.onRequest = true
	}
}
