// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// injectManifest injects into all documents of the manifest.
func (out *Output) injectManifest(e *Evaluator, manifest string, of known) {
	var result bytes.Buffer
	var added []yamledit.Span
	for _, d := range yamledit.Split([]byte(manifest)) {
		changes, root := out.injectDocument(e, d, of)
		result.Write(d.Head)
		if len(changes) > 0 {
			body, spans, err := root.EditMarked(changes)
			if err != nil {
				out.addMistake(d, err)
			} else {
				d.Body = body
				for _, s := range spans {
					added = append(added, yamledit.Span{From: s.From + result.Len(), To: s.To + result.Len()})
				}
			}
		}
		result.Write(d.Body)
		result.Write(d.Tail)
	}
	out.Result = result.String()
	out.Added = inUnits(out.Result, added)
}

// injectDocument injects into the objects of a document, and returns what that adds.
func (out *Output) injectDocument(e *Evaluator, d yamledit.Document, of known) (all []yamledit.Change, root *yamledit.Root) {
	objects, root, err := objectsIn(d)
	if err != nil {
		out.addMistake(d, err)
		return nil, nil
	}
	for _, o := range objects {
		if o.Foreign {
			out.Mistakes = append(out.Mistakes, Problem{Line: lineOfObject(d, o), Note: true, Message: "Pillion does not know this kind; the webhook injects into its pods"})
			continue
		}
		changes, err := out.injectObject(e, d, o, of.namespaceOf(o))
		if err != nil {
			out.Mistakes = append(out.Mistakes, Problem{Line: lineOfObject(d, o), Message: err.Error()})
			continue
		}
		all = append(all, changes...)
	}
	return all, root
}

// addMistake records an error in a document of the manifest.
func (out *Output) addMistake(d yamledit.Document, err error) {
	out.Mistakes = append(out.Mistakes, mistakeIn(d, err))
}

// objectsIn returns the objects with a pod in a document.
func objectsIn(d yamledit.Document) ([]manifest.Object, *yamledit.Root, error) {
	if d.Empty() {
		return nil, nil, nil
	}
	root, err := d.Parse()
	if err != nil || len(root.Content) == 0 || !manifest.MayHoldPods(root.Content[0], nil) {
		return nil, root, err
	}
	node, err := jsontree.FromYAML(root.Node)
	if err != nil {
		return nil, nil, err
	}
	objects, err := manifest.In(root.Node, &node, nil)
	return objects, root, err
}

func lineOfObject(d yamledit.Document, o manifest.Object) int { return d.Line + d.LineOf(o.At) - 1 }

// injectObject injects into one object.
func (out *Output) injectObject(e *Evaluator, d yamledit.Document, o manifest.Object, namespace request.Namespace) ([]yamledit.Change, error) {
	injector := e.injector.For(namespace.Name)
	req, wrong := o.Request(namespace, injector.ReadsOfProducts)
	req.Detail = true
	result, err := injector.Inject(req)
	if err != nil {
		return nil, err
	}
	to := Object{Title: o.Title(), Line: lineOfObject(d, o), Decisions: []Decision{}, Warnings: append(append([]string{}, wrong.All()...), result.Warnings()...)}
	for _, f := range injector.Misplaced(o.APIVersion, o.Kind, o.Node) {
		to.Warnings = append(to.Warnings, f.Message)
	}
	for i := range result.Decisions {
		t := &result.Decisions[i]
		to.Decisions = append(to.Decisions, Decision{t.Template, t.Code, explain.Sentence(t), t.Code.Succeeded(), t.Code.Failed(), t.Params, t.Kept})
	}
	injected := result.InjectedJSON()
	if result.Adds() {
		to.Patch = indentJSON(result.Patch())
		for _, effect := range limits.EffectsOf(req.Object, injected, req.Owner.Kind) {
			to.Warnings = append(to.Warnings, "effect: "+effect)
		}
	}
	to.Before, to.After = e.fit.Standing(req.Object), e.fit.Standing(injected)
	out.Objects = append(out.Objects, to)
	return o.Changes(result)
}

// judgeManifest judges the pods of all objects, as an API server stores them: those of the final manifest, or else of the
// result, whose mistakes are known already.
func (out *Output) judgeManifest(e *Evaluator, final string, of known) {
	edited := final != ""
	if !edited {
		final = out.Result
	}
	for _, d := range yamledit.Split([]byte(final)) {
		objects, _, err := objectsIn(d)
		for _, o := range objects {
			var v *inject.Verdict
			if v, err = e.judgePod(o, of.namespaceOf(o)); err != nil {
				break
			}
			out.Verdicts = append(out.Verdicts, Verdict{o.Title(), v.Word(), append([]inject.Finding{}, v.Judged...), reviewResponse(v)})
		}
		if err != nil && edited {
			p := mistakeIn(d, err)
			p.Field = "final"
			out.Mistakes = append(out.Mistakes, p)
		}
	}
}

func (e *Evaluator) judgePod(o manifest.Object, namespace request.Namespace) (v *inject.Verdict, err error) {
	injector := e.injector.For(namespace.Name)
	req, _ := o.Request(namespace, injector.ReadsOfProducts)
	if req.Object, err = schema.AsStored(req.Object); err != nil {
		return nil, err
	}
	req.File = false
	return inject.NewJudge(injector, nil, true).Judge(req)
}

// reviewResponse returns the response of the validating webhook, without the limits for the length of its sentences.
func reviewResponse(v *inject.Verdict) string {
	r := struct {
		Allowed bool `json:"allowed"`
		Status  any  `json:"status,omitempty"`
		Audit   any  `json:"auditAnnotations"`
		// Warnings are those that kubectl prints.
		Warnings []string `json:"warnings,omitempty"`
	}{Allowed: !v.Denied}
	notes := map[string]string{}
	for _, note := range v.AppendAudit(nil) {
		notes[note.Key] = note.Text
	}
	r.Audit = notes
	if v.Denied {
		r.Status = map[string]any{"status": "Failure", "reason": "Forbidden", "code": 403, "message": inject.Denial(v.Judged)}
	} else {
		for i := range v.Judged {
			r.Warnings = append(r.Warnings, v.Judged[i].String())
		}
	}
	text, _ := json.Marshal(r) // cannot fail
	return indentJSON(text)
}

func indentJSON(text []byte) string {
	value := jsontext.Value(bytes.Clone(text))
	if err := value.Indent(jsontext.WithIndent("  ")); err != nil {
		return string(text)
	}
	return string(value)
}

// inUnits converts offsets in bytes into those of JavaScript, in UTF-16 code units.
func inUnits(text string, spans []yamledit.Span) []yamledit.Span {
	at, units := 0, 0
	to := func(offset int) int {
		for at < offset {
			r, size := utf8.DecodeRuneInString(text[at:])
			at += size
			units++
			if r > 0xffff {
				units++
			}
		}
		return units
	}
	all := make([]yamledit.Span, 0, len(spans))
	for _, s := range spans {
		from := to(s.From)
		all = append(all, yamledit.Span{From: from, To: to(s.To)})
	}
	return all
}
