// SPDX-License-Identifier: Apache-2.0

// Package playground evaluates what users type into the playground: templates, manifests, and what they know
// about the namespace. It is pure. The folder page has the page, and wasm has the program that the page runs.
package playground

import (
	"encoding/json"
	"errors"

	"github.com/pillion-dev/pillion/cmd/pillion/workload"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/fit"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// New returns an Evaluator, or an error if the Pod Security Standards of this build are broken.
func New() (*Evaluator, error) {
	e, err := fit.NewEvaluator()
	return &Evaluator{fit: e}, err
}

// JSON is Evaluate from JSON to JSON. An error is {"error": sentence}.
func (e *Evaluator) JSON(in []byte) []byte {
	var input Input
	if err := json.Unmarshal(in, &input); err != nil {
		return failed(err)
	}
	out, err := json.Marshal(e.Evaluate(&input))
	if err != nil {
		return failed(err)
	}
	return out
}

func failed(err error) []byte {
	out, _ := json.Marshal(map[string]string{"error": err.Error()}) // cannot fail
	return out
}

// Evaluate returns all that the page shows. Mistakes of the user are part of it.
func (e *Evaluator) Evaluate(in *Input) *Output {
	out := &Output{Problems: []Problem{}, Mistakes: []Problem{}, Added: []yamledit.Span{}, Objects: []Object{}, Verdicts: []Verdict{}}
	if err := e.load(in.Templates); err != nil {
		out.Problems = problems(err)
		return out
	}
	namespace := out.namespace(in)
	out.inject(e, in, namespace)
	out.judge(e, in.Final, namespace)
	if in.Policy != "" {
		out.Policy = policyOf(e.set, in.Policy)
	}
	return out
}

// load compiles the templates, unless they are the same as before.
func (e *Evaluator) load(text string) error {
	set, err := e.loader.Load(templates.Source{Path: "templates", Data: []byte(text)})
	if err == nil && set != e.set {
		e.set, e.injector = set, inject.New(set)
	}
	return err
}

func problems(err error) (all []Problem) {
	var found templates.Problems
	if !errors.As(err, &found) {
		return []Problem{{Line: 1, Message: err.Error()}}
	}
	for _, p := range found {
		all = append(all, Problem{Line: max(p.Line, 1), Path: p.Path, Message: p.Message})
	}
	return all
}

// namespace returns what is known about the namespace and its ServiceAccounts.
func (out *Output) namespace(in *Input) templates.Namespace {
	return templates.Namespace{
		Name: "default", Known: true,
		Labels: out.strings("namespaceLabels", in.NamespaceLabels), Annotations: out.strings("namespaceAnnotations", in.NamespaceAnnotations),
		ServiceAccounts: templates.SameServiceAccount{
			Name: "default", Known: true,
			Labels: out.strings("accountLabels", in.AccountLabels), Annotations: out.strings("accountAnnotations", in.AccountAnnotations),
		},
	}
}

// strings returns the labels or annotations in a field of the page.
func (out *Output) strings(field, text string) map[string]string {
	var node tree.Node
	root, err := yamledit.Document{Body: []byte(text)}.Parse()
	if err == nil && len(root.Content) > 0 {
		if node, err = tree.FromYAML(root.Node); err == nil && node.Kind() != tree.Object {
			err = errors.New(`line 1: write one "key: value" per line`)
		}
	}
	if err != nil {
		line, message := tree.CutLine(err.Error())
		out.Mistakes = append(out.Mistakes, Problem{Field: field, Line: max(line, 1), Message: message})
		return nil
	}
	return workload.Strings(&node)
}
