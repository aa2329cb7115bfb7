// SPDX-License-Identifier: Apache-2.0

// Package manifest finds the pods in manifests: in Pods, in workloads, and in lists of them.
package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// Object is a pod in an object of a document: the object itself, or one of its pod templates.
type Object struct {
	APIVersion, Kind string
	At               []string // its path in the document
	PodAt            []string // path of the pod's metadata and spec in the object; indexes of lists are decimal numbers
	Node             *jsontree.Node
	Pod              *jsontree.Node // the pod's metadata and spec
	Foreign          bool           // Pillion does not know the kind, so it may not accept sidecars
	OneOfSeveral     bool           // the object has other pod templates, too

	// document returns the document as its author wrote it, without aliases, or nil if that is not known.
	document func() *yaml.Node
}

// In returns the pods in a document, which may be a list. Document is the document as its author wrote it, or nil. In a typed list, the
// kind of the list implies the kind of items that have none. Objects of other kinds than Kubernetes' own are Foreign, unless the user
// named the paths of their pod templates.
func In(document *yaml.Node, node *jsontree.Node, paths Paths) ([]Object, error) {
	all, err := findPods(node, "", "", nil, paths)
	unfold := sync.OnceValue(func() *yaml.Node { return unfoldDocument(document) })
	for i := range all {
		all[i].document = unfold
	}
	return all, err
}

// unfoldDocument returns the content of a document without aliases, or nil if there is no document, or if it is too large.
func unfoldDocument(document *yaml.Node) *yaml.Node {
	if document == nil {
		return nil
	}
	y, err := jsontree.Unfold(document, maxWritten)
	if err != nil {
		return nil
	}
	for y.Kind == yaml.DocumentNode && len(y.Content) == 1 {
		y = y.Content[0]
	}
	return y
}

// findPods is In for a part of a document.
func findPods(node *jsontree.Node, apiVersion, kind string, at []string, paths Paths) ([]Object, error) {
	if text := node.At("apiVersion").Text(); text != "" {
		apiVersion = text
	}
	if text := node.At("kind").Text(); text != "" {
		kind = text
	}
	all, err := inList(node, apiVersion, kind, at, paths)
	if err != nil || all != nil {
		return all, err
	}
	found, named := workloads.PodTemplates(apiVersion, kind, node), false
	_, known := workloads.PodIn(apiVersion, kind)
	if !known && paths.hasKind(apiVersion, kind) {
		found, named = paths.findPodTemplates(apiVersion, kind, node), true
	}
	for _, t := range found {
		if t.Node.Kind() != jsontree.Object { // a workload without a pod template
			continue
		}
		all = append(all, Object{
			APIVersion: apiVersion, Kind: kind, At: at, PodAt: t.At, Node: node, Pod: t.Node, Foreign: !known && !named, OneOfSeveral: len(found) > 1,
		})
	}
	return all, nil
}

// inList returns the pods in the items of a list, and nil for another object.
func inList(node *jsontree.Node, apiVersion, kind string, at []string, paths Paths) ([]Object, error) {
	of, isList := strings.CutSuffix(kind, "List")
	if !isList {
		return nil, nil
	}
	if _, ok := workloads.PodIn(apiVersion, of); !ok && (of != "" || apiVersion != "v1") && !paths.hasKind(apiVersion, of) {
		return nil, nil
	}
	list := node.At("items")
	if list != nil && list.Kind() != jsontree.Array && list.Kind() != jsontree.Null {
		return nil, fmt.Errorf("the items of this %s are no list", problem.OneLine(kind))
	}
	all := []Object{}
	items := list.Items()
	for i := range items {
		if items[i].Kind() != jsontree.Object {
			return nil, fmt.Errorf("items[%d] of this %s is no object; every item must be one, not a list of some", i, problem.OneLine(kind))
		}
		of, err := findPods(&items[i], apiVersion, of, slices.Concat(at, []string{"items", strconv.Itoa(i)}), paths)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// InDocument returns the pods in a document of a file.
func InDocument(d yamledit.Document) ([]Object, error) {
	if d.Empty() {
		return nil, nil
	}
	root, err := d.Parse()
	if err != nil || len(root.Content) == 0 || !MayHoldPods(root.Content[0], nil) {
		return nil, err
	}
	node, err := jsontree.FromYAML(root.Node)
	if err != nil {
		return nil, err
	}
	return In(root.Node, &node, nil)
}

// MayHoldPods reports whether [In] may find a pod in a document. It costs less than parsing one that has none.
func MayHoldPods(root *yaml.Node, paths Paths) bool {
	if yamledit.Member(root, "<<") != nil {
		return true // only parsing shows what a merge key adds
	}
	apiVersion, kind := textOf(root, "apiVersion"), KindOf(root)
	_, ok := workloads.PodIn(apiVersion, kind)
	return ok || strings.HasSuffix(kind, "List") || kind != "" && (paths.hasKind(apiVersion, kind) || mayHoldPodTemplate(root))
}

// mayHoldPodTemplate reports whether a value has a field spec with containers. It does not follow aliases, because these can refer
// to each other, but parsing shows what they are.
func mayHoldPodTemplate(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	if spec := yamledit.Member(n, "spec"); spec != nil && yamledit.Member(spec, "containers") != nil {
		return true
	}
	return slices.ContainsFunc(n.Content, mayHoldPodTemplate)
}

// KindOf returns a document's kind.
func KindOf(root *yaml.Node) string { return textOf(root, "kind") }

func textOf(root *yaml.Node, name string) string {
	if n := resolveAlias(yamledit.Member(root, name)); n != nil {
		return n.Value
	}
	return ""
}

// resolveAlias returns the node that an alias refers to.
func resolveAlias(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// encodePod returns the pod's JSON, with the values of Pillion's labels and annotations converted
// to strings: their authors wrote, for example, 5 or true without quotes, or nothing. It also returns a
// sentence about each value for which an API server rejects the pod, and about containers without
// a name. The function reads reports whether a template reads an annotation of another product.
func (o Object) encodePod(reads func(key string) bool) (pod []byte, wrong Mistakes) {
	node := o.Pod
	for _, m := range Schema().Mistyped(node) {
		wrong.Rejected = append(wrong.Rejected, m.Sentence(o.Written(m.Pointer)))
	}
	wrong.Rejected = append(wrong.Rejected, namelessContainers(node)...)
	wrong.Unknown = Schema().Unknown(node)
	whole := node.Clone()
	for _, field := range []string{"labels", "annotations"} {
		members := whole.At("metadata", field).Members()
		for i := range members {
			m := &members[i]
			_, _, ofTemplate := templates.SplitAnnotation(m.Name())
			ours := ofTemplate || strings.HasPrefix(m.Name(), templates.Domain+"/") || reads(m.Name())
			switch kind := m.Kind(); {
			case !ours:
			case kind == jsontree.Number, kind == jsontree.True, kind == jsontree.False:
				*m = jsontree.Field(m.Name(), jsontree.Text(cmp.Or(o.Written(Path([]string{"metadata", field, m.Name()})), m.String())))
			case kind == jsontree.Null: // as an API server decodes it
				*m = jsontree.Field(m.Name(), jsontree.Text(""))
			}
		}
	}
	return whole.AppendTo(nil), wrong
}

// Written returns a value of the pod as its author wrote it, or "" if that is not known.
func (o Object) Written(pointer string) string {
	y := o.document()
	if y == nil {
		return ""
	}
	for _, name := range slices.Concat(o.At, o.PodAt, Names(pointer)) {
		if items := yamlnode.Items(y); items != nil {
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(items) {
				return ""
			}
			y = items[i]
			continue
		}
		y = yamlnode.Child(y, name)
	}
	if y == nil || y.Kind != yaml.ScalarNode {
		return ""
	}
	return y.Value
}

// maxWritten limits the number of values of a document in which [Object.Written] searches.
const maxWritten = 1 << 20

// Mistakes are sentences about the notation of a pod.
type Mistakes struct {
	Rejected []string // for which an API server rejects the pod
	Unknown  []string // unknown fields: kubectl rejects them, and an API server ignores them
}

// All returns all mistakes, as sentences.
func (m Mistakes) All() []string { return slices.Concat(m.Rejected, m.Unknown) }

// Schema is for all objects of a run.
var Schema = sync.OnceValue(schema.Pod)

// namelessContainers returns a sentence for each container without a name, because an API server rejects the pod.
func namelessContainers(pod *jsontree.Node) (wrong []string) {
	for _, list := range []string{"initContainers", "containers", "ephemeralContainers"} {
		items := pod.At("spec", list).Items()
		for i := range items {
			if items[i].Get("name").Text() == "" {
				wrong = append(wrong, fmt.Sprintf("spec.%s[%d] has no name; an API server rejects the pod", list, i))
			}
		}
	}
	return wrong
}

// Title returns kind and name, for example Deployment/web, and which of several pod templates it is.
func (o Object) Title() string {
	title := o.Kind + "/" + o.Name()
	if o.OneOfSeveral {
		title += " " + o.Where()
	}
	return problem.OneLine(title)
}

// Where returns the path of the pod template, for example spec.template.
func (o Object) Where() string { return workloads.PodTemplate{At: o.PodAt}.Where() }

// Value returns the value of the flag that names the pod template of an object and those at its siblings in lists.
func (o Object) Value() string {
	group, _, found := strings.Cut(o.APIVersion, "/")
	of := o.Kind
	if found {
		of += "." + group
	}
	at := ""
	for _, name := range o.PodAt {
		if _, err := strconv.Atoi(name); err == nil {
			at += every
		} else {
			at = strings.TrimPrefix(at+"."+name, ".")
		}
	}
	return of + "=" + at
}

// Name returns metadata.name, or the prefix in metadata.generateName.
func (o Object) Name() string {
	if name := o.Node.At("metadata", "name").Text(); name != "" {
		return name
	}
	return o.Node.At("metadata", "generateName").Text()
}

// Names splits a JSON Pointer into names.
func Names(path string) []string { return slices.Collect(jsontext.Pointer(path).Tokens()) }

// Request returns the engine's input to create the pod of an object, and sentences about mistakes in its
// notation. The function reads reports whether a template reads an annotation of another product.
func (o Object) Request(namespace request.Namespace, reads func(key string) bool) (inject.Request, Mistakes) {
	pod, wrong := o.encodePod(reads)
	return inject.Request{
		Operation: "CREATE", File: true, Namespace: namespace, Object: pod, Claims: workloads.Claims(o.Node), Owner: workloads.OwnerOf(o.Kind, o.Node), CopiesLabels: o.copiesLabels(),
	}, wrong
}

// copiesLabels reports whether the API server copies labels from the pod template to the object: SetDefaults_Job and
// SetDefaults_ReplicationController do if there are none.
func (o Object) copiesLabels() bool {
	none := func(path ...string) bool { return len(o.Node.At(path...).Members()) == 0 }
	switch o.Kind {
	case "Job":
		return none("metadata", "labels")
	case "ReplicationController":
		return none("metadata", "labels") || none("spec", "selector")
	}
	return false
}

// Changes returns what a result adds to the document of an object.
func (o Object) Changes(result *inject.Result) ([]yamledit.Change, error) {
	var changes []yamledit.Change
	for _, op := range result.Ops() {
		value, ok := op.Value.(json.RawMessage)
		if !ok {
			return nil, errors.New("the patch has a value that is not JSON")
		}
		changes = append(changes, yamledit.Change{Path: slices.Concat(o.At, o.PodAt, Names(op.Path)), Value: value})
	}
	return changes, nil
}

// Path is the inverse of [Names].
func Path(names []string) string {
	var path jsontext.Pointer
	for _, name := range names {
		path = path.AppendToken(name)
	}
	return string(path)
}

// Strings returns labels or annotations. Values without quotes become strings, as their author meant them.
func Strings(node *jsontree.Node) map[string]string {
	all := map[string]string{}
	members := node.Members()
	for i := range members {
		text := members[i].Text()
		if k := members[i].Kind(); k != jsontree.String && k != jsontree.Null { // null means ""
			text = members[i].String()
		}
		all[members[i].Name()] = text
	}
	return all
}
