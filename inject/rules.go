// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// rule has an opinion on one template for one pod, or passes it on.
type rule struct {
	code  Code
	about about
	// applies decides, with one sentence for the pod's author; "" where the code
	// says it all.
	applies func(*candidate) (bool, string)
	// passes says why it does not apply, for who wants to know everything.
	passes func(*candidate) string
}

// about is whether a rule reads the template.
type about bool

const (
	thePod      about = false
	theTemplate about = true
)

// rules in their order: the first that applies decides. They look at the pod and
// the template only; what it takes to render comes after them.
func rules() []rule {
	return []rule{
		{CodeMirrorPod, thePod, ofPod(mirrorPod), always("it is no mirror pod")},
		{CodeExcludedNamespace, thePod, ofPod(excludedNamespace), whyNotExcluded},
		{CodeNotOptedIn, thePod, ofPod(notOptedIn), whyOptedIn},
		{CodePodOptedOut, thePod, podOptedOut, whyNotOptedOut},
		{CodeNotRequested, theTemplate, notRequested, whyRequested},
		{CodeWrongOS, theTemplate, wrongOS, whyRightOS},
		{CodeHostNetwork, theTemplate, hostNetwork, whyNotHostNetwork},
		{CodeNamespaceNotMatched, theTemplate, namespaceNotMatched, whyNamespaceMatched},
		{CodePodNotMatched, theTemplate, podNotMatched, whyPodMatched},
	}
}

// DecisionCodes are the codes of decisions, in the order in which they are decided.
func DecisionCodes() []Code {
	var all []Code
	for _, r := range rules() {
		all = append(all, r.code)
	}
	return append(all, CodeConditionFalse, CodeInvalidParameter, CodeRenderFailed, CodeConflict, CodePresent, CodeInjected)
}

// AboutPod reports whether a decision is about the pod, and so the same for almost all templates.
func (c Code) AboutPod() bool {
	return slices.ContainsFunc(rules(), func(r rule) bool { return r.code == c && r.about == thePod })
}

// ofPod is a rule for which all templates are alike.
func ofPod(applies func(*run) (bool, string)) func(*candidate) (bool, string) {
	return func(c *candidate) (bool, string) { return applies(c.run) }
}

func always(why string) func(*candidate) string { return func(*candidate) string { return why } }

// mirrorPod: the kubelet makes mirror pods of static pods and deletes what differs.
func mirrorPod(r *run) (bool, string) {
	return r.annotation(corev1.MirrorPodAnnotationKey) != nil, ""
}

func excludedNamespace(r *run) (bool, string) {
	if !slices.Contains(r.excluded, r.req.Namespace.Name) {
		return false, ""
	}
	return true, fmt.Sprintf("nothing is injected in the namespace %s", r.req.Namespace.Name)
}

func whyNotExcluded(c *candidate) string {
	return fmt.Sprintf("the namespace %s is not excluded", c.req.Namespace.Name)
}

// notOptedIn is the webhooks' selectors once more, for a pod that no API server
// asks about. Where nothing is known of the namespace, it counts as opted in.
//
//	namespace | pod      | looked at
//	enabled   | any      | yes
//	absent    | enabled  | yes
//	absent    | else     | no
//	else      | any      | no
func notOptedIn(r *run) (bool, string) {
	ns := &r.req.Namespace
	label, labelled := ns.Labels[LabelInject]
	switch {
	case r.req.OptedIn || !ns.Known || label == Enabled || !labelled && r.optIn().IsText(Enabled):
		return false, ""
	case labelled:
		return true, fmt.Sprintf("the namespace %s has the label %s: %s", ns.Name, LabelInject, label) + WrongNamespaceLabel(label)
	case r.optIn() != nil && !r.optIn().IsText(Disabled):
		return true, fmt.Sprintf("the namespace %s has no label %s, and %s", ns.Name, LabelInject, WrongPodLabel(r.optIn().String()))
	}
	return true, fmt.Sprintf("neither the namespace %s nor the pod has the label %s: %s", ns.Name, LabelInject, Enabled)
}

// WrongNamespaceLabel says that a value of a namespace's label means nothing, as the
// end of a sentence; "" of one that means something.
func WrongNamespaceLabel(value string) string {
	if value == Enabled || value == Shadow || value == Disabled {
		return ""
	}
	return fmt.Sprintf(", which means nothing; it must be %s or %s", Enabled, Shadow)
}

// WrongPodLabel says that the value of a pod's label, in JSON, means nothing.
func WrongPodLabel(value string) string {
	return fmt.Sprintf("the pod's label is %s, which means nothing; use %s", value, Enabled)
}

func whyOptedIn(c *candidate) string {
	ns := &c.req.Namespace
	switch {
	case c.req.OptedIn:
		return "the API server asked, so a webhook's selectors matched"
	case !ns.Known:
		return fmt.Sprintf("the labels of the namespace %s are not known, so it counts as opted in", ns.Name)
	case ns.Labels[LabelInject] == Enabled:
		return fmt.Sprintf("the namespace %s has the label %s: %s", ns.Name, LabelInject, Enabled)
	}
	return fmt.Sprintf("the pod has the label %s: %s", LabelInject, Enabled)
}

func podOptedOut(c *candidate) (bool, string) {
	if c.t.Spec.Required || !c.optIn().IsText(Disabled) {
		return false, ""
	}
	return true, "the pod has the label " + LabelInject + ": " + Disabled
}

func whyNotOptedOut(c *candidate) string {
	if c.t.Spec.Required {
		return "the template is required, so no pod can opt out"
	}
	return fmt.Sprintf("the pod has no label %s: %s", LabelInject, Disabled)
}

func notRequested(c *candidate) (bool, string) {
	switch named, wanted := c.requested.says(c.t.Name); {
	case c.t.Spec.Required || wanted || !named && c.t.Spec.Default && !c.requested.exact:
		return false, ""
	case named:
		return true, "the pod's annotation " + AnnotationTemplates + " leaves it out"
	case c.requested.exact:
		return true, "the pod's annotation " + AnnotationTemplates + " does not name it"
	}
	return true, ""
}

func whyRequested(c *candidate) string {
	switch _, wanted := c.requested.says(c.t.Name); {
	case c.t.Spec.Required:
		return "the template is required"
	case wanted:
		return fmt.Sprintf("the pod's annotation %s names it", AnnotationTemplates)
	}
	return "the template is a default"
}

func wrongOS(c *candidate) (bool, string) {
	want := c.t.Spec.Match.OS
	if c.os == string(want) {
		return false, ""
	}
	return true, fmt.Sprintf("the pod is for %s, the template for %s", c.os, want)
}

func whyRightOS(c *candidate) string { return "pod and template are for " + c.os }

func hostNetwork(c *candidate) (bool, string) {
	if c.t.Spec.Match.HostNetwork || !c.onHost {
		return false, ""
	}
	return true, "the pod is on the host network, which the template does not allow"
}

func whyNotHostNetwork(c *candidate) string {
	if c.onHost {
		return "the template allows the host network"
	}
	return "the pod is not on the host network"
}

func namespaceNotMatched(c *candidate) (bool, string) {
	selector := c.t.NamespaceSelector
	if selector == nil || selector.Empty() {
		return false, ""
	}
	matches := selector.Matches(namespaceLabels{&c.req.Namespace})
	if matches && (c.req.Namespace.Known || readsNameOnly(selector)) {
		return false, ""
	}
	if !c.req.Namespace.Known {
		return true, fmt.Sprintf("the template is for namespaces with %s, and the labels of %s are not known", selector, c.req.Namespace.Name)
	}
	return true, c.t.forNamespaces
}

func whyNamespaceMatched(c *candidate) string {
	return whyMatched(c.t.NamespaceSelector, "namespace")
}

func whyMatched(selector labels.Selector, what string) string {
	if selector == nil || selector.Empty() {
		return "the template is for every " + what
	}
	return fmt.Sprintf("the %s has %s", what, selector)
}

// readsNameOnly says whether a selector needs no label but the one that every
// namespace has; what others say not to be there might be.
func readsNameOnly(selector labels.Selector) bool {
	requirements, _ := selector.Requirements()
	return !slices.ContainsFunc(requirements, func(r labels.Requirement) bool { return r.Key() != corev1.LabelMetadataName })
}

// podNotMatched: a pod without containers is refused by the API server, which a
// template's container would make one that it takes.
func podNotMatched(c *candidate) (bool, string) {
	if len(c.pod.At("spec", "containers").Items()) == 0 {
		return true, "the pod has no containers"
	}
	selector := c.t.PodSelector
	if selector == nil || selector.Empty() || selector.Matches(nodeLabels{c.labels}) {
		return false, ""
	}
	return true, c.t.forPods
}

func whyPodMatched(c *candidate) string { return whyMatched(c.t.PodSelector, "pod") }

// requested is what the annotation pillion.dev/templates asks for.
type requested struct {
	exact bool            // the names without sign are all there is
	names map[string]bool // false: left out
}

func parseRequested(n *tree.Node) requested {
	if n == nil {
		return requested{}
	}
	r := requested{exact: true, names: map[string]bool{}}
	text := strings.TrimSpace(n.Text())
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		r.exact = false
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		bare := strings.TrimLeft(name, "+-")
		if bare != "" {
			r.names[bare] = !strings.HasPrefix(name, "-")
		}
	}
	return r
}

func (r requested) sorted() []string {
	if len(r.names) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(r.names))
}

func (r requested) says(name string) (named, wanted bool) {
	wanted, named = r.names[name]
	return named, wanted
}

// podOS is the pod's operating system; without a word of it, linux.
func podOS(pod *tree.Node) string {
	if os := pod.At("spec", "os", "name").Text(); os != "" {
		return os
	}
	if os := pod.At("spec", "nodeSelector", corev1.LabelOSStable).Text(); os != "" {
		return os
	}
	return string(corev1.Linux)
}

// nodeLabels shows a JSON object as labels.Labels.
type nodeLabels struct{ n *tree.Node }

// Has implements labels.Labels.
func (l nodeLabels) Has(key string) bool { return l.n.Get(key) != nil }

// Get implements labels.Labels.
func (l nodeLabels) Get(key string) string { return l.n.Get(key).Text() }

// Lookup implements labels.Labels.
func (l nodeLabels) Lookup(key string) (string, bool) { return l.Get(key), l.Has(key) }

// namespaceLabels are the namespace's labels and the one that the API server
// puts on every namespace.
type namespaceLabels struct{ ns *templates.Namespace }

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
