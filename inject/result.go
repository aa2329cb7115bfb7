// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"strings"

	"github.com/mattbaird/jsonpatch"

	"github.com/pillion-dev/pillion/templates"
)

// Code says in one stable word what was decided and why. It is a metric label,
// a part of the audit annotation and the anchor of a documentation section.
type Code string

// The codes, in the order of the rules that give them.
const (
	CodeMirrorPod           Code = "mirror_pod"
	CodeExcludedNamespace   Code = "excluded_namespace"
	CodeNotOptedIn          Code = "not_opted_in"
	CodePodOptedOut         Code = "pod_opted_out"
	CodeNotRequested        Code = "not_requested"
	CodeWrongOS             Code = "wrong_os"
	CodeHostNetwork         Code = "host_network"
	CodeNamespaceNotMatched Code = "namespace_not_matched"
	CodePodNotMatched       Code = "pod_not_matched"
	CodeConditionFalse      Code = "condition_false"
	CodeInvalidParameter    Code = "invalid_parameter"
	CodeRenderFailed        Code = "render_failed"
	CodeConflict            Code = "conflict"
	CodePresent             Code = "present"
	CodeInjected            Code = "injected"
)

// The codes of findings that belong to no loaded template, or to none alone.
const (
	CodeUnknownTemplate  Code = "unknown_template"
	CodeUnknownParameter Code = "unknown_parameter"
)

// Decision is what was decided about one template for one pod.
type Decision struct {
	Template string `json:"template"`
	Revision string `json:"revision"`
	Code     Code   `json:"code"`
	// Message is one sentence for the person who wrote the pod; "" where the
	// code says all there is.
	Message string `json:"message,omitempty"`
	// Params are the values that the template was rendered with, in the order
	// of their declaration.
	Params []templates.Value `json:"params,omitempty"`
	// Kept are the places where the pod says something else and wins.
	Kept []Kept `json:"kept,omitempty"`
	// Notes are things that the pod's author should know, one sentence each.
	Notes []string `json:"notes,omitempty"`
}

// Kept is a place where the pod already says something else than the template.
type Kept struct {
	Path     string `json:"path"`     // JSON Pointer into the pod as it came
	Pod      string `json:"pod"`      // JSON; null where the pod's silence counts
	Template string `json:"template"` // JSON
}

// Finding is a mistake of the person who wrote the pod that no single template's
// decision shows.
type Finding struct {
	Code    Code   `json:"code"`
	Name    string `json:"name"` // the template or annotation that is not known
	Message string `json:"message"`
}

// Result is all there is to say about one pod. The admission response, the
// injected YAML, metrics, audit annotations and log lines are functions of it.
type Result struct {
	Pod Identity
	// Decisions, one for each loaded template, in the order of application.
	Decisions []Decision
	Findings  []Finding
	// Ops is the patch; every operation is an add. Values are encoded JSON
	// (json.RawMessage). Nil when there is nothing to add.
	Ops []jsonpatch.JsonPatchOperation
}

// Warnings are the sentences for whoever sent the pod, in a stable order. What
// is routine (a template that nobody asked for) is no warning.
func (r *Result) Warnings() []string {
	var all []string
	for _, f := range r.Findings {
		all = append(all, f.Message)
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		switch d.Code {
		case CodeInvalidParameter, CodeRenderFailed, CodeConflict:
			all = append(all, fmt.Sprintf("%s is not injected: %s", d.Template, d.Message))
		}
		for _, note := range d.Notes {
			all = append(all, d.Template+": "+note)
		}
	}
	return all
}

// Audit gives the audit annotations: template to decision. A pod that is looked
// at twice in one admission gives the same values both times, because the API
// server refuses a second, different value; so injected and present read alike.
func (r *Result) Audit() map[string]string {
	all := make(map[string]string, len(r.Decisions))
	for i := range r.Decisions {
		d := &r.Decisions[i]
		switch d.Code {
		case CodeInjected, CodePresent:
			all[d.Template] = "injected: revision " + d.Revision
		default:
			all[d.Template] = string(d.Code) + ": " + d.Sentence()
		}
	}
	for _, f := range r.Findings {
		key := string(f.Code)
		if all[key] != "" {
			all[key] += "; "
		}
		all[key] += f.Message
	}
	return all
}

// Sentence is the decision's message, or what its code means where it has none.
func (d *Decision) Sentence() string {
	if d.Message != "" {
		return d.Message
	}
	return sentences(d.Code)
}

// sentences says what a code means.
func sentences(c Code) string {
	switch c {
	case CodeMirrorPod:
		return "a mirror pod only reflects a static pod and is never changed"
	case CodeNotRequested:
		return "the pod does not ask for it and it is not a default"
	case CodePresent:
		return "everything is there already"
	case CodeInjected:
		return "injected"
	}
	return strings.ReplaceAll(string(c), "_", " ")
}
