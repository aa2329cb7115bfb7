// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// object is an object with a pod, or a pod template, in a document.
type object struct {
	apiVersion, kind string
	at               []string // where it is in the document
	podAt            []string // where its metadata and spec of the pod are, in it
	node             *tree.Node
}

// objects are the objects with a pod in a document, which may be a list. The
// items of a typed list may leave out what the list's kind says already.
func objects(node *tree.Node, apiVersion, kind string, at []string) []object {
	if text := node.At("apiVersion").Text(); text != "" {
		apiVersion = text
	}
	if text := node.At("kind").Text(); text != "" {
		kind = text
	}
	if podAt, ok := inject.PodIn(apiVersion, kind); ok {
		if node.At(podAt...).Kind() != tree.Object {
			return nil
		}
		return []object{{apiVersion, kind, at, podAt, node}}
	}
	of, isList := strings.CutSuffix(kind, "List")
	if !isList {
		return nil
	}
	if _, ok := inject.PodIn(apiVersion, of); !ok && (of != "" || apiVersion != "v1") {
		return nil
	}
	var all []object
	items := node.At("items").Items()
	for i := range items {
		all = append(all, objects(&items[i], apiVersion, of, slices.Concat(at, []string{"items", strconv.Itoa(i)}))...)
	}
	return all
}

// mayHoldPods says whether a document is of a kind that [objects] looks into.
func mayHoldPods(root *yaml.Node) bool {
	apiVersion, kind := yamledit.Member(root, "apiVersion"), yamledit.Member(root, "kind")
	if apiVersion == nil || kind == nil {
		return false
	}
	_, ok := inject.PodIn(apiVersion.Value, kind.Value)
	return ok || strings.HasSuffix(kind.Value, "List")
}

// document injects into a document of a file and keeps what comes out.
func (j *injection) document(i int, d yamledit.Document) error {
	root, err := d.Parse()
	if err != nil {
		return err
	}
	if len(root.Content) == 0 { // nothing but a byte order mark
		j.keep(i, d)
		return nil
	}
	if isArray(root.Content[0]) {
		return errArray
	}
	if j.options.output != "json" && !mayHoldPods(root.Content[0]) {
		j.keep(i, d) // whatever it is: it need not even be JSON
		return nil
	}
	node, err := tree.FromYAML(root.Node)
	if err != nil {
		return err
	}
	var changes []yamledit.Change
	for _, o := range objects(&node, "", "", nil) {
		j.found++
		of, err := j.change(o)
		if err != nil {
			return fmt.Errorf("%s: %w", o.title(), err)
		}
		changes = append(changes, of...)
	}
	if len(changes) > 0 {
		if d.Body, err = root.Edit(changes); err != nil {
			return err
		}
		if node, err = tree.FromYAML(root.Node); err != nil {
			return err
		}
	}
	j.keep(i, d)
	if j.options.output == "json" {
		j.documents = append(j.documents, node)
	}
	return nil
}

// request is what the engine is asked about one object, and what is wrong with how that is written.
func (j *injection) request(o object) (req inject.Request, wrong []string, err error) {
	name := o.node.At("metadata", "namespace").Text()
	if name == "" {
		name = j.options.namespace
	}
	namespace, err := j.options.about(name)
	pod, wrong := quoted(o.node.At(o.podAt...))
	return inject.Request{Operation: "CREATE", OptedIn: j.options.uninject, Namespace: namespace, Object: pod, Claims: inject.Claims(o.node)}, wrong, err
}

// quoted is a pod's JSON in which the values of Pillion's labels and annotations are texts, as whoever wrote 5 or
// true without quotes meant them, and a sentence about each that is none: an API server refuses the pod as it is.
func quoted(node *tree.Node) (pod []byte, wrong []string) {
	whole := node.Clone()
	for _, place := range []string{"label", "annotation"} {
		members := whole.At("metadata", place+"s").Members()
		for i := range members {
			m := &members[i]
			_, _, ofTemplate := templates.SplitAnnotation(m.Name())
			if !ofTemplate && !strings.HasPrefix(m.Name(), templates.Domain+"/") || m.Kind() == tree.String || m.Kind() == tree.Null {
				continue
			}
			sentence := "the " + place + " " + m.Name() + " must be a text"
			if m.Kind() != tree.Object && m.Kind() != tree.Array {
				sentence += fmt.Sprintf("; put it in quotes: %q", m)
				*m = tree.Field(m.Name(), tree.Text(m.String()))
			}
			wrong = append(wrong, sentence)
		}
	}
	return whole.AppendTo(nil), wrong
}

// inject asks the engine about one object and tells what it said.
func (j *injection) inject(o object) ([]yamledit.Change, error) {
	req, wrong, err := j.request(o)
	if err != nil {
		return nil, err
	}
	result, err := j.injector.Inject(req)
	if err != nil {
		return nil, err
	}
	j.misplaced(o)
	j.tell(o, wrong, result)
	var changes []yamledit.Change
	for _, op := range result.Ops() {
		value, ok := op.Value.(json.RawMessage)
		if !ok {
			return nil, errors.New("the patch holds a value that is no JSON")
		}
		changes = append(changes, yamledit.Change{Path: slices.Concat(o.at, o.podAt, pointer(op.Path)), Value: value})
	}
	return changes, j.patch(o, req.Namespace, result)
}

// uninject asks the engine what to take out of one object, and tells it.
func (j *injection) uninject(o object) ([]yamledit.Change, error) {
	req, wrong, err := j.request(o)
	if err != nil {
		return nil, err
	}
	for _, sentence := range wrong {
		j.say(o, "warning: "+sentence)
	}
	removal, err := j.injector.Uninject(req)
	if err != nil {
		return nil, err
	}
	for _, name := range removal.Templates {
		j.say(o, name+": taken out")
	}
	if len(removal.Templates) == 0 {
		j.say(o, "nothing was injected")
	}
	for _, place := range removal.Kept {
		j.say(o, "kept "+inject.Where(place)+": it is before others that are the pod's own")
	}
	changes := make([]yamledit.Change, len(removal.Paths))
	for i, path := range removal.Paths {
		changes[i].Path = slices.Concat(o.at, o.podAt, pointer(path))
	}
	return changes, nil
}

// tell says something of each template, and each thing to know. What --strict is
// about is left to its error.
func (j *injection) tell(o object, wrong []string, result *inject.Result) {
	complain := j.say
	if j.options.strict {
		complain = func(o object, text string) { j.wrong = append(j.wrong, o.title()+": "+text) }
	}
	for _, sentence := range wrong {
		complain(o, "warning: "+sentence)
	}
	for _, f := range result.Findings {
		complain(o, "warning: "+f.Message)
	}
	for i := range result.Decisions {
		d := &result.Decisions[i]
		why := fmt.Sprintf("%s: not injected: %s: %s", d.Template, d.Code, d.Sentence())
		switch {
		case d.Code.Succeeded():
			j.say(o, d.Template+": "+string(d.Code))
		case d.Code.Failed():
			complain(o, why)
		default:
			j.say(o, why)
		}
		for _, k := range d.Kept {
			j.say(o, d.Template+": kept "+k.Path+" as the pod has it")
		}
		for _, note := range d.Notes {
			j.say(o, d.Template+": warning: "+note)
		}
	}
}

// misplaced reports what an object has in its own metadata and means for its pods'.
func (j *injection) misplaced(o object) {
	for _, f := range j.injector.Misplaced(o.apiVersion, o.kind, o.node) {
		if j.options.strict {
			j.wrong = append(j.wrong, f.Message)
			continue
		}
		fmt.Fprintln(j.report, cli.Fold(j.report, "warning: "+f.Message)) // which names the object
	}
}

// say writes what is to know about an object.
func (j *injection) say(o object, text string) {
	fmt.Fprintln(j.report, cli.Fold(j.report, o.title()+": "+text))
}

// patch writes the line of an object with -o patch. The paths are the object's.
func (j *injection) patch(o object, namespace templates.Namespace, result *inject.Result) error {
	if !result.Adds() {
		return nil
	}
	prefix := strings.Join(append([]string{""}, o.podAt...), "/") // none of these names needs an escape
	return cli.JSONEncoder(&j.patches, "").Encode(map[string]any{
		"apiVersion": o.apiVersion, "kind": o.kind, "namespace": namespace.Name, "name": o.name(), "patch": json.RawMessage(result.AppendPatch(nil, prefix)),
	})
}

// title is how people know the object: Deployment/web.
func (o object) title() string { return o.kind + "/" + o.name() }

func (o object) name() string {
	if name := o.node.At("metadata", "name").Text(); name != "" {
		return name
	}
	return o.node.At("metadata", "generateName").Text()
}

// pointer takes a JSON Pointer apart.
func pointer(path string) []string {
	names := strings.Split(path, "/")[1:]
	for i := range names {
		names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(names[i])
	}
	return names
}

// jsonOutput is one document as it is, and several as a List.
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

// unlisted is the object, or the items of what kubectl takes for a list, for it takes no list in a list. A typed
// list's kind may stand for those of its items.
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
