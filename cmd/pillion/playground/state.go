// SPDX-License-Identifier: Apache-2.0

package playground

import (
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
)

// Input is the state of the page.
type Input struct {
	Templates string `json:"templates"` // YAML, one or more documents
	Manifest  string `json:"manifest"`  // YAML or JSON, one or more documents
	// The labels and annotations of the namespace and of the ServiceAccount are YAML: one "key: value" per line.
	NamespaceLabels      string `json:"namespaceLabels,omitempty"`
	NamespaceAnnotations string `json:"namespaceAnnotations,omitempty"`
	AccountLabels        string `json:"accountLabels,omitempty"`
	AccountAnnotations   string `json:"accountAnnotations,omitempty"`
	// Final is the manifest that the validating webhook judges, or "" for the result of the injection.
	Final string `json:"final,omitempty"`
	// Policy is the kind of admission policies to write: validating, mutating, or "" for none.
	Policy string `json:"policy,omitempty"`
	// Lint asks for the hints about the templates, and for nothing else.
	Lint bool `json:"lint,omitempty"`
}

// Output is what the page shows.
type Output struct {
	Problems []Problem       `json:"problems"` // of the templates
	Mistakes []Problem       `json:"mistakes"` // of the manifest, and of labels and annotations
	Hints    []Problem       `json:"hints"`    // about the templates
	Result   string          `json:"result"`   // the manifest with all additions
	Added    []yamledit.Span `json:"added"`    // what is not in the manifest, in UTF-16 code units of the result
	Objects  []Object        `json:"objects"`
	Verdicts []Verdict       `json:"verdicts"`
	Policy   *Policy         `json:"policy,omitempty"`
}

// Problem is a problem at a line of an editor.
type Problem struct {
	Field   string `json:"field,omitempty"` // the editor, if it is not the usual one
	Line    int    `json:"line"`            // from 1
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Note reports whether it is no mistake of the user, so that the result is complete.
	Note bool `json:"note,omitempty"`
}

// mistakeIn returns an error in a document of a manifest as a Problem.
func mistakeIn(d yamledit.Document, err error) Problem {
	line, message := jsontree.CutLine(err.Error())
	return Problem{Line: d.Line + max(line, 1) - 1, Message: message}
}

// Evaluator evaluates one Input after another. It keeps the compiled templates from one to the next.
type Evaluator struct {
	loader   templates.Loader
	fit      *limits.Evaluator
	set      *templates.Set
	injector *inject.Injector
}

// Object is the outcome for one object of the manifest.
type Object struct {
	Title     string          `json:"title"` // Kind/name
	Line      int             `json:"line"`
	Decisions []Decision      `json:"decisions"`
	Warnings  []string        `json:"warnings"`
	Patch     string          `json:"patch"` // RFC 6902, indented; "" if nothing is added
	Before    limits.Standing `json:"before"`
	After     limits.Standing `json:"after"`
}

// Decision is the outcome for one template.
type Decision struct {
	Template string         `json:"template"`
	Code     inject.Code    `json:"code"`
	Sentence string         `json:"sentence"`
	Injected bool           `json:"injected"` // whether the pod has the template
	Failed   bool           `json:"failed"`
	Params   []params.Value `json:"params,omitempty"`
	Kept     []inject.Kept  `json:"kept,omitempty"`
}

// Verdict is the answer of the validating webhook about the pod of one object.
type Verdict struct {
	Title    string           `json:"title"`
	Verdict  string           `json:"verdict"` // allowed, warned or denied
	Findings []inject.Finding `json:"findings"`
	Response string           `json:"response"` // the response of the AdmissionReview, as JSON
}

// Policy is the templates as admission policies, or why that is impossible.
type Policy struct {
	YAML     string   `json:"yaml"`
	Problems []string `json:"problems"` // why there are no policies
	Notes    []string `json:"notes"`
}
