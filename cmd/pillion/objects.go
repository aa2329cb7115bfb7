// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// object is an object in a document that is a pod or has a pod template.
type object struct {
	apiVersion, kind string
	at               []string // its path in the document
	podAt            []string // path of the pod's metadata and spec in the object
	node             *tree.Node
	foreign          bool // Pillion does not know the kind, so it may not accept sidecars
}

// The pod template in objects of kinds that Pillion does not know, for example Argo's Rollout. It
// is not looked for anywhere else, because policies and the like contain patterns of workloads.
var (
	foreignPod        = []string{"spec", "template"}
	foreignContainers = []string{"spec", "template", "spec", "containers"}
)

// objects returns the objects with a pod in a document, which may be a list. In a typed list,
// the kind of the list implies the kind of items that have none.
func objects(node *tree.Node, apiVersion, kind string, at []string) ([]object, error) {
	if text := node.At("apiVersion").Text(); text != "" {
		apiVersion = text
	}
	if text := node.At("kind").Text(); text != "" {
		kind = text
	}
	if podAt, ok := inject.PodIn(apiVersion, kind); ok {
		if node.At(podAt...).Kind() != tree.Object {
			return nil, nil
		}
		return []object{{apiVersion, kind, at, podAt, node, false}}, nil
	}
	if kind != "" && node.At(foreignContainers...).Kind() == tree.Array {
		return []object{{apiVersion, kind, at, foreignPod, node, true}}, nil
	}
	of, isList := strings.CutSuffix(kind, "List")
	if !isList {
		return nil, nil
	}
	if _, ok := inject.PodIn(apiVersion, of); !ok && (of != "" || apiVersion != "v1") {
		return nil, nil
	}
	list := node.At("items")
	if list != nil && list.Kind() != tree.Array && list.Kind() != tree.Null {
		return nil, fmt.Errorf("the items of this %s are no list", templates.OneLine(kind))
	}
	var all []object
	items := list.Items()
	for i := range items {
		if items[i].Kind() != tree.Object {
			return nil, fmt.Errorf("items[%d] of this %s is no object; every item must be one, not a list of some", i, templates.OneLine(kind))
		}
		of, err := objects(&items[i], apiVersion, of, slices.Concat(at, []string{"items", strconv.Itoa(i)}))
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// objectsIn returns the objects with a pod in a document of a file.
func objectsIn(d yamledit.Document) ([]object, error) {
	if d.Empty() {
		return nil, nil
	}
	root, err := d.Parse()
	if err != nil || len(root.Content) == 0 || !mayHoldPods(root.Content[0]) {
		return nil, err
	}
	node, err := tree.FromYAML(root.Node)
	if err != nil {
		return nil, err
	}
	return objects(&node, "", "", nil)
}

// mayHoldPods reports whether [objects] inspects documents of this kind.
func mayHoldPods(root *yaml.Node) bool {
	if yamledit.Member(root, "<<") != nil {
		return true // only parsing shows what a merge key adds
	}
	_, ok := inject.PodIn(textOf(root, "apiVersion"), kindOf(root))
	return ok || strings.HasSuffix(kindOf(root), "List") || kindOf(root) != "" && hasMember(root, foreignContainers)
}

// hasMember reports whether a path leads to a value.
func hasMember(n *yaml.Node, path []string) bool {
	for _, name := range path {
		if n = resolved(yamledit.Member(n, name)); n == nil {
			return false
		}
	}
	return true
}

// kindOf returns a document's kind.
func kindOf(root *yaml.Node) string { return textOf(root, "kind") }

func textOf(root *yaml.Node, name string) string {
	if n := resolved(yamledit.Member(root, name)); n != nil {
		return n.Value
	}
	return ""
}

// resolved returns the node that an alias refers to.
func resolved(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// quoted returns a pod's JSON, with the values of Pillion's labels and annotations converted
// to strings: their authors wrote, for example, 5 or true without quotes, or nothing. It also returns a
// sentence about each value for which an API server rejects the pod, and about containers without
// a name. The function reads reports whether a template reads an annotation of another product.
func quoted(node *tree.Node, reads func(key string) bool) (pod []byte, wrong mistakes) {
	for _, m := range podSchema().Mistyped(node) {
		wrong.rejected = append(wrong.rejected, m.Sentence)
	}
	wrong.rejected = append(wrong.rejected, nameless(node)...)
	wrong.unknown = podSchema().Unknown(node)
	whole := node.Clone()
	for _, field := range []string{"labels", "annotations"} {
		members := whole.At("metadata", field).Members()
		for i := range members {
			m := &members[i]
			_, _, ofTemplate := templates.SplitAnnotation(m.Name())
			ours := ofTemplate || strings.HasPrefix(m.Name(), templates.Domain+"/") || reads(m.Name())
			switch kind := m.Kind(); {
			case !ours:
			case kind == tree.Number, kind == tree.True, kind == tree.False:
				*m = tree.Field(m.Name(), tree.Text(m.String()))
			case kind == tree.Null: // as an API server decodes it
				*m = tree.Field(m.Name(), tree.Text(""))
			}
		}
	}
	return whole.AppendTo(nil), wrong
}

// mistakes are sentences about the notation of a pod.
type mistakes struct {
	rejected []string // for which an API server rejects the pod
	unknown  []string // unknown fields: kubectl rejects them, and an API server ignores them
}

func (m mistakes) all() []string { return slices.Concat(m.rejected, m.unknown) }

// podSchema is for all objects of a run.
var podSchema = sync.OnceValue(schema.Pod)

// nameless returns a sentence for each container without a name, because an API server rejects the pod.
func nameless(pod *tree.Node) (wrong []string) {
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

// title returns kind and name: Deployment/web.
func (o object) title() string { return templates.OneLine(o.kind + "/" + o.name()) }

func (o object) name() string {
	if name := o.node.At("metadata", "name").Text(); name != "" {
		return name
	}
	return o.node.At("metadata", "generateName").Text()
}

// pointer splits a JSON Pointer into names.
func pointer(path string) []string { return slices.Collect(jsontext.Pointer(path).Tokens()) }

// unpointer is the inverse of pointer.
func unpointer(names []string) string {
	var path jsontext.Pointer
	for _, name := range names {
		path = path.AppendToken(name)
	}
	return string(path)
}

// jsonOutput returns a single document unchanged, and several as a List.
func jsonOutput(documents []tree.Node) ([]byte, error) {
	var out jsontext.Value
	switch len(documents) {
	case 0:
		return nil, nil
	case 1:
		out = documents[0].AppendTo(nil)
	default:
		items := tree.Items()
		for i := range documents {
			for _, item := range unlisted(&documents[i]) {
				items.Append(item)
			}
		}
		list := tree.Members(tree.Field("apiVersion", tree.Text("v1")), tree.Field("kind", tree.Text("List")), tree.Field("items", items))
		out = list.AppendTo(nil)
	}
	if err := out.Indent(jsontext.WithIndent("  ")); err != nil {
		return nil, err
	}
	return append(out, '\n'), nil
}

// unlisted returns the object itself, or the items of a list, because kubectl accepts no list
// inside a list. In a typed list, the kind of the list implies the kind of its items.
func unlisted(n *tree.Node) []tree.Node {
	list := n.Get("items")
	if list.Kind() != tree.Array {
		return []tree.Node{*n}
	}
	of := map[string]string{"apiVersion": n.Get("apiVersion").Text(), "kind": strings.TrimSuffix(n.Get("kind").Text(), "List")}
	var all []tree.Node
	items := list.Items()
	for i := range items {
		if items[i].Kind() != tree.Object {
			return []tree.Node{*n}
		}
		item := tree.Members()
		for _, name := range []string{"apiVersion", "kind"} {
			if items[i].Get(name) == nil && of["kind"] != "" {
				item.Set(name, tree.Text(of[name]))
			}
		}
		for _, m := range items[i].Members() {
			item.Set(m.Name(), m)
		}
		all = append(all, unlisted(&item)...)
	}
	return all
}

// located returns an error of a document in one line, with the file. The message may quote the
// document.
func located(d yamledit.Document, file string, err error) error {
	return errors.New(templates.OneLine(d.Locate(file, err).Error()))
}
