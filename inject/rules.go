// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// rule decides about one template for one pod, or leaves the decision to the next rule.
type rule struct {
	code  Code
	about ruleScope
	// applies reports whether the rule applies. It also returns one sentence for the pod's author,
	// or "" if the code says enough.
	applies func(*subject, *loaded) (bool, string)
	// passes returns why the rule does not apply, for detailed output, or "" if that is obvious.
	passes func(*subject, *loaded) string
}

// ruleScope reports whether a rule reads the template.
type ruleScope bool

const (
	thePod      ruleScope = false
	theTemplate ruleScope = true
)

// rules returns the rules in order. The first one that applies decides. They read the pod and the
// template only. Decisions that depend on rendering come later.
func rules() []rule {
	return []rule{
		{CodeMirrorPod, thePod, mirrorPod, constantReason("it is no mirror pod")},
		{CodeExcludedNamespace, thePod, excludedNamespace, whyNotExcluded},
		{CodeNotOptedIn, thePod, notOptedIn, whyOptedIn},
		{CodePodOptedOut, thePod, podOptedOut, whyNotOptedOut},
		{CodeNotRequested, theTemplate, notRequested, whyRequested},
		{CodeWrongOS, theTemplate, wrongOS, whyRightOS},
		{CodeHostNetwork, theTemplate, hostNetwork, whyNotHostNetwork},
		{CodeNamespaceNotMatched, theTemplate, namespaceNotMatched, whyNamespaceMatched},
		{CodePodNotMatched, theTemplate, podNotMatched, whyPodMatched},
		{CodeUnknownServiceAccount, theTemplate, unknownServiceAccount, whyKnownServiceAccount},
		{CodeNotInShare, theTemplate, notInShare, whyInShare},
		{CodeReplaced, theTemplate, replacedByCanary, whyNotReplaced},
	}
}

// DecisionCodes returns the codes of decisions, in the order in which Inject decides.
func DecisionCodes() []Code {
	var all []Code
	for _, r := range rules() {
		all = append(all, r.code)
	}
	return append(all, CodeConditionFalse, CodeInvalidParameter, CodeRenderFailed, CodeHasReplaced, CodeFellBack, CodeConflict, CodePresent, CodeInjected)
}

// FindingCodes returns the codes of findings about final pods: those that no decision has, and those of decisions that failed.
func FindingCodes() []Code {
	all := []Code{CodeMissing, CodeAltered, CodeNotInjected}
	for _, code := range DecisionCodes() {
		if code.Failed() {
			all = append(all, code)
		}
	}
	return append(all, CodeUnknownParameter, CodeUnknownTemplate)
}

// AboutPod reports whether decisions with this code are about the pod, and therefore equal for
// almost all templates.
func (c Code) AboutPod() bool {
	return slices.ContainsFunc(rules(), func(r rule) bool { return r.code == c && r.about == thePod })
}

func constantReason(why string) func(*subject, *loaded) string {
	return func(*subject, *loaded) string { return why }
}

// mirrorPod reports whether the pod is a mirror pod. The kubelet creates mirror pods for static
// pods and deletes those that differ.
func mirrorPod(s *subject, _ *loaded) (bool, string) {
	return s.annotation(corev1.MirrorPodAnnotationKey) != nil, ""
}

func excludedNamespace(s *subject, _ *loaded) (bool, string) {
	if !slices.Contains(s.excluded, s.request.namespace.Name) {
		return false, ""
	}
	return true, fmt.Sprintf("Pillion injects nothing in the namespace %s", s.request.namespace.Name)
}

func whyNotExcluded(s *subject, t *loaded) string {
	return fmt.Sprintf("the namespace %s is not excluded", s.request.namespace.Name)
}

// notOptedIn applies the webhooks' selectors to a pod that does not come from an API server. If the
// labels of the namespace are unknown, it counts as opted in.
//
//	namespace | pod      | processed
//	enabled   | any      | yes
//	absent    | enabled  | yes
//	absent    | other    | no
//	other     | any      | no
func notOptedIn(s *subject, _ *loaded) (bool, string) {
	ns := &s.request.namespace
	label, labelled := ns.Labels[LabelInject]
	switch {
	case s.request.optedIn || !ns.Known || label == Enabled || !labelled && s.optIn().IsText(Enabled):
		return false, ""
	case labelled:
		return true, fmt.Sprintf("the namespace %s has the label %s: %s", ns.Name, LabelInject, label) + WrongNamespaceLabel(label)
	case s.optIn() != nil && !s.optIn().IsText(Disabled):
		return true, fmt.Sprintf("the namespace %s has no label %s, and %s", ns.Name, LabelInject, WrongPodLabel(s.optIn().String()))
	}
	return true, fmt.Sprintf("neither the namespace %s nor the pod has the label %s: %s", ns.Name, LabelInject, Enabled)
}

// WrongNamespaceLabel returns the end of a sentence about a namespace label with an invalid value.
// It returns "" if the value is valid.
func WrongNamespaceLabel(value string) string {
	if value == Enabled || value == Shadow || value == Disabled {
		return ""
	}
	return fmt.Sprintf("; the value must be %s, %s or %s", Enabled, Disabled, Shadow)
}

// WrongPodLabel returns a sentence about a pod label with an invalid value. The value is JSON.
func WrongPodLabel(value string) string {
	return fmt.Sprintf("the pod's label has the invalid value %s; use %s", value, Enabled)
}

func whyOptedIn(s *subject, t *loaded) string {
	ns := &s.request.namespace
	switch {
	case s.request.optedIn:
		return "the API server called Pillion, so the selectors of a webhook matched"
	case !ns.Known:
		return fmt.Sprintf("the labels of the namespace %s are unknown, so it counts as opted in", ns.Name)
	case ns.Labels[LabelInject] == Enabled:
		return fmt.Sprintf("the namespace %s has the label %s: %s", ns.Name, LabelInject, Enabled)
	}
	return fmt.Sprintf("the pod has the label %s: %s", LabelInject, Enabled)
}

func podOptedOut(s *subject, t *loaded) (bool, string) {
	if t.Spec.Required || !s.optIn().IsText(Disabled) {
		return false, ""
	}
	return true, "the pod has the label " + LabelInject + ": " + Disabled
}

func whyNotOptedOut(s *subject, t *loaded) string {
	if t.Spec.Required {
		return "the template is required, so no pod can opt out"
	}
	return fmt.Sprintf("the pod has no label %s: %s", LabelInject, Disabled)
}

// notRequested treats a template that replaces another one as that one, unless the pod names it itself.
func notRequested(s *subject, t *loaded) (bool, string) {
	named, wanted := s.requested.lookupName(t.Name)
	if t.base != nil && named && !wanted {
		reason := "the pod's annotation " + AnnotationTemplates + " leaves it out"
		if without, _ := notRequested(s, t.base); !without {
			reason += fmt.Sprintf(", so the pod gets %s like other pods", t.base.Name)
		}
		return true, reason
	}
	if t.base != nil && !named {
		t = t.base
		named, wanted = s.requested.lookupName(t.Name)
	}
	switch {
	case t.Spec.Required || wanted || !named && t.Spec.Default && !s.requested.exact:
		return false, ""
	case named:
		return true, "the pod's annotation " + AnnotationTemplates + " leaves it out"
	case s.requested.exact && t.Spec.Default && len(s.requested.names) > 0:
		return true, fmt.Sprintf("the pod's annotation %s replaces the defaults, because it begins with neither + nor -; to get it, add %s", AnnotationTemplates, t.Name)
	case s.requested.exact:
		return true, "the pod's annotation " + AnnotationTemplates + " does not name it"
	}
	return true, ""
}

func whyRequested(s *subject, t *loaded) string {
	_, wanted := s.requested.lookupName(t.Name)
	what := "the template"
	if t.base != nil && !wanted {
		t, what = t.base, "the template "+t.base.Name
		_, wanted = s.requested.lookupName(t.Name)
	}
	switch {
	case t.Spec.Required:
		return what + " is required"
	case wanted:
		return fmt.Sprintf("the pod's annotation %s names %s", AnnotationTemplates, strings.Replace(what, "the template", "it", 1))
	}
	return what + " is a default"
}

func wrongOS(s *subject, t *loaded) (bool, string) {
	want := t.Spec.Match.OS
	if want.Includes(corev1.OSName(s.os)) {
		return false, ""
	}
	fix := fmt.Sprintf("for this pod, write a template with spec.match.os: %s", s.os)
	if s.os == string(corev1.Linux) { // which is also the default
		fix = fmt.Sprintf("if the pod is for %s, set its spec.os.name: %[1]s", want)
	}
	return true, fmt.Sprintf("the pod is for %s, but the template is for %s; %s", s.os, want, fix)
}

func whyRightOS(s *subject, t *loaded) string {
	if t.Spec.Match.OS == v1alpha1.AnyOS {
		return "the template is for pods of any operating system, and the pod is for " + s.os
	}
	return "pod and template are for " + s.os
}

func hostNetwork(s *subject, t *loaded) (bool, string) {
	if t.Spec.Match.HostNetwork || !s.onHost {
		return false, ""
	}
	return true, "the pod is on the host network, which the template does not allow; if its container may run there, set spec.match.hostNetwork: true in the template"
}

func whyNotHostNetwork(s *subject, t *loaded) string {
	if s.onHost {
		return "the template allows the host network"
	}
	return "the pod is not on the host network"
}

func namespaceNotMatched(s *subject, t *loaded) (bool, string) {
	selector := t.NamespaceSelector
	if selector == nil || selector.Empty() {
		return false, ""
	}
	matches := selector.Matches(namespaceLabels{&s.request.namespace})
	if matches && (s.request.namespace.Known || readsNameOnly(selector)) {
		return false, ""
	}
	if !s.request.namespace.Known {
		return true, fmt.Sprintf("the template is for namespaces with %s, and the labels of %s are unknown", selector, s.request.namespace.Name)
	}
	return true, t.forNamespaces
}

func whyNamespaceMatched(s *subject, t *loaded) string {
	return whyMatched(t.NamespaceSelector, "namespace")
}

func whyMatched(selector labels.Selector, what string) string {
	if selector == nil || selector.Empty() {
		return "the template is for every " + what
	}
	return fmt.Sprintf("the %s has %s", what, selector)
}

// readsNameOnly reports whether a selector reads only the label that every namespace has. Other
// labels are unknown: even a label that the selector requires to be absent might exist.
func readsNameOnly(selector labels.Selector) bool {
	requirements, _ := selector.Requirements()
	return !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() != corev1.LabelMetadataName })
}

// podNotMatched reports whether the template is not for this pod. It also applies to pods without
// containers: the API server rejects them, but would accept them with the template's container.
func podNotMatched(s *subject, t *loaded) (bool, string) {
	if len(s.pod.At("spec", "containers").Items()) == 0 {
		return true, "the pod has no containers"
	}
	selector := t.PodSelector
	if selector == nil || selector.Empty() || selector.Matches(nodeLabels{s.labels}) {
		return false, ""
	}
	return true, t.forPods
}

func whyPodMatched(s *subject, t *loaded) string { return whyMatched(t.PodSelector, "pod") }

// nodeLabels implements labels.Labels for a JSON object.
type nodeLabels struct{ n *jsontree.Node }

// Has implements labels.Labels.
func (l nodeLabels) Has(key string) bool { return l.n.Get(key) != nil }

// Get implements labels.Labels.
func (l nodeLabels) Get(key string) string { return l.n.Get(key).Text() }

// Lookup implements labels.Labels.
func (l nodeLabels) Lookup(key string) (string, bool) { return l.Get(key), l.Has(key) }

// namespaceLabels implements labels.Labels for the namespace's labels. It adds the one that the API
// server sets on every namespace.
type namespaceLabels struct{ ns *request.Namespace }

// Has implements labels.Labels.
func (l namespaceLabels) Has(key string) bool { _, ok := l.Lookup(key); return ok }

// Get implements labels.Labels.
func (l namespaceLabels) Get(key string) string { value, _ := l.Lookup(key); return value }

// Lookup implements labels.Labels.
func (l namespaceLabels) Lookup(key string) (string, bool) {
	if value, ok := l.ns.Labels[key]; ok {
		return value, true
	}
	return l.ns.Name, key == corev1.LabelMetadataName && l.ns.Name != ""
}

// unknownServiceAccount reports whether the template reads a ServiceAccount of which only the name is
// known. Without its annotations, the pod would get the wrong values.
func unknownServiceAccount(s *subject, t *loaded) (bool, string) {
	if !t.ReadsServiceAccount() || s.request.account.Known {
		return false, ""
	}
	return true, fmt.Sprintf("the template reads the ServiceAccount %s, which is not known in the namespace %s", s.request.account.Name, s.request.namespace.Name)
}

func whyKnownServiceAccount(s *subject, t *loaded) string {
	if !t.ReadsServiceAccount() {
		return "the template reads no ServiceAccount"
	}
	return fmt.Sprintf("the ServiceAccount %s is known", s.request.account.Name)
}
