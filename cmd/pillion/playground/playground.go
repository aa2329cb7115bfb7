// SPDX-License-Identifier: Apache-2.0

// Package playground evaluates what users type into the playground: templates, manifests, and what they know
// about the namespace. It is pure. The folder page has the page, and wasm has the program that the page runs.
package playground

import (
	"encoding/json"
	"errors"

	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// New returns an Evaluator, or an error if the Pod Security Standards of this build are broken.
func New() (*Evaluator, error) {
	e, err := limits.NewEvaluator()
	return &Evaluator{fit: e}, err
}

// JSON is Evaluate from JSON to JSON. An error is {"error": sentence}.
func (e *Evaluator) JSON(in []byte) []byte {
	var input Input
	if err := json.Unmarshal(in, &input); err != nil {
		return errorJSON(err)
	}
	out, err := json.Marshal(e.Evaluate(&input))
	if err != nil {
		return errorJSON(err)
	}
	return out
}

func errorJSON(err error) []byte {
	out, _ := json.Marshal(map[string]string{"error": err.Error()}) // cannot fail
	return out
}

// Evaluate returns all that the page shows. Mistakes of the user are part of it.
func (e *Evaluator) Evaluate(in *Input) *Output {
	out := &Output{Problems: []Problem{}, Mistakes: []Problem{}, Hints: []Problem{}, Added: []yamledit.Span{}, Objects: []Object{}, Verdicts: []Verdict{}}
	if err := e.loadTemplates(in.Templates); err != nil {
		out.Problems = convertProblems(err)
		return out
	}
	if in.Lint {
		out.lintTemplates(e)
		return out
	}
	fields := out.readFields(in)
	of := known{fields: fields}
	out.Mistakes = append(out.Mistakes, of.readManifest(in.Manifest)...)
	out.injectManifest(e, in.Manifest, of)
	if in.Final != "" {
		of = known{fields: fields}
		for _, p := range of.readManifest(in.Final) {
			p.Field = "final"
			out.Mistakes = append(out.Mistakes, p)
		}
	}
	out.judgeManifest(e, in.Final, of)
	if in.Policy != "" {
		out.Policy = policyOf(e.set, in.Policy)
	}
	return out
}

// loadTemplates compiles the templates, unless they are the same as before.
func (e *Evaluator) loadTemplates(text string) error {
	set, err := e.loader.Load(templates.Source{Path: file, Data: []byte(text)})
	if err == nil && set != e.set {
		e.set, e.injector = set, inject.New(set)
	}
	return err
}

func convertProblems(err error) (all []Problem) {
	var found problem.Problems
	if !errors.As(err, &found) {
		return []Problem{{Line: 1, Message: err.Error()}}
	}
	for _, p := range found {
		all = append(all, Problem{Line: max(p.Line, 1), Path: p.Path, Message: p.Message})
	}
	return all
}
