// SPDX-License-Identifier: Apache-2.0

package inject

import "strings"

// Code says in one stable word what was decided and why. It is a metric label,
// a part of the audit annotation and the anchor of a documentation section.
type Code string

// The codes of decisions, in the order of the rules that give them.
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
	// CodeMisplaced is about a workload: see [Injector.Misplaced].
	CodeMisplaced Code = "misplaced"
)

// The codes of findings about a final pod, beside those two and invalid_parameter.
const (
	CodeMissing     Code = "missing"
	CodeAltered     Code = "altered"
	CodeNotInjected Code = "not_injected"
)

// Wanted reports whether the template is for the pod.
func (c Code) Wanted() bool { return c.Succeeded() || c.Failed() }

// Succeeded reports whether the pod has the template, or gets it.
func (c Code) Succeeded() bool { return c == CodeInjected || c == CodePresent }

// Failed reports whether the template is for the pod, and a user has to fix something first.
func (c Code) Failed() bool {
	return c == CodeConflict || c == CodeInvalidParameter || c == CodeRenderFailed
}

// sentence is what the code means.
func (c Code) sentence() string {
	switch c {
	case CodeMirrorPod:
		return "a mirror pod only reflects a static pod and is never changed"
	case CodeNotRequested:
		return "the pod does not ask for it and it is not a default"
	case CodePresent:
		return "everything is there already"
	case CodeInjected:
		return "the pod is to have it, and something of it is not there"
	}
	return strings.ReplaceAll(string(c), "_", " ")
}
