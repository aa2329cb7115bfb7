// SPDX-License-Identifier: Apache-2.0

package inject

import "strings"

// Code is the reason for a decision, as one stable word. It is a metric label, a part of the audit
// annotation and the anchor of a documentation section.
type Code string

// The codes of decisions, in the order of the rules that return them.
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
	// CodeUnknownServiceAccount is for templates that read a ServiceAccount that is not known.
	CodeUnknownServiceAccount Code = "unknown_service_account"
	// CodeNotInShare, CodeReplaced, CodeHasReplaced and CodeFellBack are for templates that replace others, see canary.go.
	CodeNotInShare       Code = "not_in_share"
	CodeReplaced         Code = "replaced"
	CodeConditionFalse   Code = "condition_false"
	CodeInvalidParameter Code = "invalid_parameter"
	CodeRenderFailed     Code = "render_failed"
	CodeHasReplaced      Code = "has_replaced"
	CodeFellBack         Code = "fell_back"
	CodeConflict         Code = "conflict"
	CodePresent          Code = "present"
	CodeInjected         Code = "injected"
)

// The codes of findings about no loaded template, or about several.
const (
	CodeUnknownTemplate  Code = "unknown_template"
	CodeUnknownParameter Code = "unknown_parameter"
	// CodeMisplaced is for findings about a workload, see [Injector.Misplaced].
	CodeMisplaced Code = "misplaced"
)

// The other codes of findings about a final pod. A template that failed for the pod has a finding with the code of its
// decision.
const (
	CodeMissing     Code = "missing"
	CodeAltered     Code = "altered"
	CodeNotInjected Code = "not_injected"
)

// Wanted reports whether the template is for the pod.
func (c Code) Wanted() bool { return c.Succeeded() || c.Failed() }

// Succeeded reports whether the pod has the template, or gets it.
func (c Code) Succeeded() bool { return c == CodeInjected || c == CodePresent }

// Failed reports whether the template is for the pod, but a user has to fix something first.
func (c Code) Failed() bool {
	return c == CodeConflict || c == CodeInvalidParameter || c == CodeRenderFailed || c == CodeUnknownServiceAccount
}

// sentence returns the meaning of the code.
func (c Code) sentence() string {
	switch c {
	case CodeMirrorPod:
		return "a mirror pod only reflects a static pod, so Pillion never changes it"
	case CodeNotRequested:
		return "the pod does not request it, and it is not a default"
	case CodePresent:
		return "the pod already has all of it"
	case CodeInjected:
		return "the pod should have it, and lacks a part of it"
	}
	return strings.ReplaceAll(string(c), "_", " ")
}
