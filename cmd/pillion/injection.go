// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/inject/uninject"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
)

// podPathFlag names where objects of other kinds have pod templates.
const podPathFlag = "pod-template-path"

// injection is the state of one run of the command.
type injection struct {
	options  *injectOptions
	injector *inject.Injector
	report   io.Writer
	told     strings.Builder                                                  // what is written to report at the end, unless there is an error
	change   func(*yamledit.Root, manifest.Object) ([]yamledit.Change, error) // for one object
	found    int                                                              // number of objects with a pod
	reported map[string]bool                                                  // namespaces, and objects of kinds that Pillion does not know
	wrong    []string                                                         // sentences about the problems for --strict

	stream    bytes.Buffer    // -o yaml
	documents []jsontree.Node // -o json
	patches   bytes.Buffer    // -o patch
}

func newInjection(o *injectOptions, injector *inject.Injector, report io.Writer) *injection {
	j := &injection{options: o, injector: injector, report: report, reported: map[string]bool{}}
	if j.change = j.injectObject; o.uninject {
		j.change = j.uninjectObject
	}
	return j
}

// changeFile injects into all documents of a file.
func (j *injection) changeFile(name string, data []byte) error {
	for i, d := range yamledit.Split(data) {
		if d.Empty() {
			j.keepDocument(i, d)
			continue
		}
		if err := j.changeDocument(i, d); err != nil {
			return locateError(d, name, err)
		}
	}
	return nil
}

// keepDocument writes a document unchanged. Between two files, it adds a separator line.
func (j *injection) keepDocument(i int, d yamledit.Document) {
	if i == 0 && j.stream.Len() > 0 {
		if !bytes.HasSuffix(j.stream.Bytes(), []byte("\n")) {
			j.stream.WriteByte('\n')
		}
		if len(d.Head) == 0 {
			j.stream.WriteString("---\n")
		}
	}
	j.stream.Write(d.Head)
	j.stream.Write(d.Body)
	j.stream.Write(d.Tail)
}

// encodeOutput returns what to write to standard output.
func (j *injection) encodeOutput() ([]byte, error) {
	switch j.options.output {
	case "json":
		return jsonOutput(j.documents)
	case "patch":
		return j.patches.Bytes(), nil
	}
	return j.stream.Bytes(), nil
}

// changeDocument injects into a document of a file and stores the result.
func (j *injection) changeDocument(i int, d yamledit.Document) error {
	root, err := d.Parse()
	if err != nil {
		return err
	}
	if len(root.Content) == 0 { // only a byte order mark
		j.keepDocument(i, d)
		return nil
	}
	if isArray(root.Content[0]) {
		return errArray
	}
	if j.options.output != "json" && !manifest.MayHoldPods(root.Content[0], j.options.podPaths) {
		j.keepDocument(i, d) // a document without a pod may be anything, even invalid JSON
		return nil
	}
	node, err := jsontree.FromYAML(root.Node)
	if err != nil {
		return err
	}
	document := root.Node                                          // as its author wrote it
	if j.options.output == "json" || j.options.output == "patch" { // these formats write aliases out
		if root, err = (yamledit.Document{Body: node.AppendTo(nil)}).Parse(); err != nil {
			return err
		}
	}
	var changes []yamledit.Change
	found, err := manifest.In(document, &node, j.options.podPaths)
	if err != nil {
		return err
	}
	for _, o := range found {
		j.found++
		if o.Foreign {
			j.printForeign(o)
			continue
		}
		of, err := j.change(root, o)
		if err != nil {
			return fmt.Errorf("%s: %w", o.Title(), err)
		}
		changes = append(changes, of...)
	}
	if len(changes) > 0 {
		if d.Body, err = root.Edit(changes); err != nil {
			return err
		}
		if node, err = jsontree.FromYAML(root.Node); err != nil {
			return err
		}
	}
	j.keepDocument(i, d)
	if j.options.output == "json" {
		j.documents = append(j.documents, node)
	}
	return nil
}

// requestFor returns the engine's input for one object, and sentences about mistakes in its
// notation.
func (j *injection) requestFor(o manifest.Object) (req inject.Request, wrong manifest.Mistakes, err error) {
	name := o.Node.At("metadata", "namespace").Text()
	if name == "" {
		name = j.options.namespace
	}
	namespace, err := j.options.namespaceFor(name)
	req, wrong = o.Request(namespace, j.injector.For(name).ReadsOfProducts)
	req.OptedIn = j.options.uninject
	return req, wrong, err
}

// injectObject calls the engine for one object and reports the decisions.
func (j *injection) injectObject(root *yamledit.Root, o manifest.Object) ([]yamledit.Change, error) {
	req, wrong, err := j.requestFor(o)
	if err != nil {
		return nil, err
	}
	req.Written = true
	result, err := j.injector.Inject(req)
	if err != nil {
		return nil, err
	}
	findings, err := j.findMistakes(req, result)
	if err != nil {
		return nil, err
	}
	j.printNamespaceMistakes(req.Namespace)
	j.printMisplaced(o)
	j.printDecisions(o, append(wrong.All(), findings...), result)
	if result.Adds() {
		for _, effect := range limits.EffectsOf(req.Object, result.InjectedJSON(), req.Owner.Kind) {
			j.printAbout(o, "effect: "+effect)
		}
	}
	changes, err := o.Changes(result)
	if err != nil {
		return nil, err
	}
	before, err := j.uninjectRecord(root, o, req, result)
	if err != nil {
		return nil, err
	}
	return append(changes, before...), j.writePatch(o, req.Namespace, result)
}

// findMistakes returns sentences about mistakes in the labels and annotations of a pod. The engine ignores a pod that has not opted in, but
// a misspelled label may be why it has not.
func (j *injection) findMistakes(req inject.Request, result *inject.Result) (sentences []string, err error) {
	out := func(d inject.Decision) bool { return d.Code == inject.CodeNotOptedIn }
	all := result.Findings
	if slices.ContainsFunc(result.Decisions, out) {
		if all, err = j.injector.PodMistakes(req); err != nil {
			return nil, err
		}
	}
	for i := range all {
		sentences = append(sentences, all[i].Message)
	}
	return sentences, nil
}

// printNamespaceMistakes prints once what is wrong with the labels and annotations of a namespace.
func (j *injection) printNamespaceMistakes(namespace request.Namespace) {
	title := "Namespace/" + namespace.Name
	if j.reported[title] {
		return
	}
	j.reported[title] = true
	for _, sentence := range j.injector.For(namespace.Name).NamespaceWarnings(namespace) {
		if j.options.strict {
			j.wrong = append(j.wrong, title+": "+problem.OneLine(sentence))
			continue
		}
		j.printLine(title + ": warning: " + sentence)
	}
}

// uninjectRecord returns the change that records in a pod what uninject needs to know.
func (j *injection) uninjectRecord(root *yamledit.Root, o manifest.Object, req inject.Request, result *inject.Result) ([]yamledit.Change, error) {
	pod := slices.Concat(o.At, o.PodAt)
	text, err := uninject.Record(j.injector, req, result, func(path string) (string, string, bool) {
		at, text, ok := root.Empty(slices.Concat(pod, manifest.Names(path)))
		if !ok || len(at) <= len(pod) {
			return "", "", false
		}
		return manifest.Path(at[len(pod):]), text, true
	})
	if err != nil || text == "" {
		return nil, err
	}
	value, err := json.Marshal(text)
	return []yamledit.Change{{Path: append(pod, "metadata", "annotations", inject.AnnotationUninject), Value: value}}, err
}

// uninjectObject removes the injected values from one object and reports it.
func (j *injection) uninjectObject(root *yamledit.Root, o manifest.Object) ([]yamledit.Change, error) {
	req, wrong, err := j.requestFor(o)
	if err != nil {
		return nil, err
	}
	req.Written = true
	for _, sentence := range wrong.All() {
		j.printAbout(o, "warning: "+sentence)
	}
	removal, err := uninject.Pod(j.injector, req)
	if err != nil {
		return nil, err
	}
	for _, name := range removal.Templates {
		j.printAbout(o, name+": removed")
	}
	if len(removal.Templates) == 0 {
		j.printAbout(o, "nothing was injected")
	}
	for _, path := range removal.Kept {
		j.printAbout(o, "kept "+schema.Where(path)+": it is before others that are the pod's own")
	}
	var changes []yamledit.Change
	pod := slices.Concat(o.At, o.PodAt)
	for _, path := range removal.Paths {
		changes = append(changes, yamledit.Change{Path: slices.Concat(pod, manifest.Names(path))})
	}
	for _, e := range removal.Empty {
		changes = append(changes, root.Restore(slices.Concat(pod, manifest.Names(e.Path)), e.Text))
	}
	return changes, nil
}

// printDecisions prints what is wrong with the object, a line for each template, and the notes. Templates that do not apply for the same
// reason share a line. It leaves out what the error of --strict will contain.
func (j *injection) printDecisions(o manifest.Object, wrong []string, result *inject.Result) {
	complain := j.printAbout
	if j.options.strict {
		complain = func(o manifest.Object, text string) {
			j.wrong = append(j.wrong, o.Title()+": "+problem.OneLine(text))
		}
	}
	for _, sentence := range wrong {
		complain(o, "warning: "+sentence)
	}
	var reasons []string
	left := map[string][]string{} // templates by the reason why they do not apply
	for i := range result.Decisions {
		d := &result.Decisions[i]
		reason := fmt.Sprintf("not injected: %s: %s", d.Code, d.Sentence())
		if d.Code == inject.CodeUnknownServiceAccount {
			reason += "; add it to the files, or use --" + accountFlag + " KEY=VALUE"
		}
		switch {
		case d.Code.Succeeded():
			j.printAbout(o, d.Template+": "+string(d.Code))
		case d.Code.Failed(), d.Code == inject.CodeFellBack:
			complain(o, d.Template+": "+reason)
		case d.Unmet():
			complain(o, d.Template+": "+reason+"; the pod names it in "+inject.AnnotationTemplates)
		default:
			if left[reason] == nil {
				reasons = append(reasons, reason)
			}
			left[reason] = append(left[reason], d.Template)
		}
		for _, k := range d.Kept {
			if k.Beside != "" {
				j.printAbout(o, fmt.Sprintf("%s: left out %s, because %s has %s", d.Template, schema.Where(k.Path), k.Owner(), k.Beside))
				continue
			}
			j.printAbout(o, fmt.Sprintf("%s: kept %s of %s; the template has %s", d.Template, schema.Where(k.Path), k.Owner(), inject.Brief(k.Template)))
		}
		for _, note := range d.Notes {
			if note != d.Message {
				j.printAbout(o, d.Template+": warning: "+note)
			}
		}
	}
	for _, reason := range reasons {
		names, most := left[reason], 4
		some := strings.Join(names[:min(len(names), most)], ", ")
		if len(names) > most {
			some += fmt.Sprintf(" and %d more", len(names)-most)
		}
		j.printAbout(o, some+": "+reason)
	}
}

// printMisplaced prints the labels and annotations in the object's own metadata that belong into
// its pod template.
func (j *injection) printMisplaced(o manifest.Object) {
	for _, f := range j.injector.Misplaced(o.APIVersion, o.Kind, o.Node) {
		if j.options.strict {
			j.wrong = append(j.wrong, problem.OneLine(f.Message))
			continue
		}
		j.printLine("warning: " + f.Message) // the finding names the object
	}
}

// printAbout prints a sentence about an object.
func (j *injection) printAbout(o manifest.Object, text string) { j.printLine(o.Title() + ": " + text) }

func (j *injection) printLine(text string) {
	fmt.Fprintln(&j.told, cli.Fold(j.report, problem.OneLine(text)))
}

// printForeign reports an object that stays unchanged although it has a pod template: its kind may
// not accept what the templates add.
func (j *injection) printForeign(o manifest.Object) {
	o.OneOfSeveral = false // one flag changes all
	of := o.Title() + " " + o.Value()
	if j.reported[of] {
		return
	}
	if !j.reported[o.Title()] && !j.options.uninject {
		j.printMisplaced(o)
	}
	j.reported[o.Title()], j.reported[of] = true, true
	text := "not injected: inject does not know this kind; the webhook injects into the pods; to change the file: --" + podPathFlag + " " + cli.Quote(o.Value())
	switch {
	case j.options.uninject:
		j.printAbout(o, "not changed: uninject does not know this kind; to change it: --"+podPathFlag+" "+cli.Quote(o.Value()))
	case j.options.strict:
		j.wrong = append(j.wrong, o.Title()+": "+text)
	default:
		j.printAbout(o, text)
	}
}

// writePatch writes an object's line of -o patch. The paths are relative to the object.
func (j *injection) writePatch(o manifest.Object, namespace request.Namespace, result *inject.Result) error {
	if !result.Adds() {
		return nil
	}
	prefix := strings.Join(append([]string{""}, o.PodAt...), "/") // none of these names needs escaping
	return cli.JSONEncoder(&j.patches, "").Encode(map[string]any{
		"apiVersion": o.APIVersion, "kind": o.Kind, "namespace": namespace.Name, "name": o.Name(), "patch": json.RawMessage(result.AppendPatch(nil, prefix)),
	})
}
