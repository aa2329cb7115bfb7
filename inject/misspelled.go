// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/request"
)

// product is the part of Pillion's domain by which a misspelled domain is recognized, for example pilion.dev or pillion.io.
var product, _, _ = strings.Cut(templates.Domain, ".")

// domainLabels returns the keys that have a meaning as labels of a namespace.
func domainLabels() []string { return []string{LabelInject, LabelRollout} }

// likeOptIn matches the keys for which the webhook for workloads is called although neither the namespace nor the pod has opted in. Most of
// them are mistakes, which checkPillionKeys and checkMisspelled find.
var likeOptIn = regexp.MustCompile(`^(pillion[.]dev/|p[a-z]{4,8}[.][a-z]+/inject$)`)

// SeemsToOptIn reports whether a pod has not opted in and has a label or an annotation with which its author may have wanted to. The
// webhook configuration for workloads has the same condition, because a selector cannot see this.
func SeemsToOptIn(pod *jsontree.Node) (seems bool) {
	for _, field := range []string{"labels", "annotations"} {
		members := pod.At("metadata", field).Members()
		for i := range members {
			key, value := members[i].Name(), &members[i]
			if field == "labels" && key == LabelInject && value.IsText(Enabled) {
				return false
			}
			seems = seems || key != AnnotationTemplates && key != LabelExempt && likeOptIn.MatchString(key) && !value.IsText(Disabled)
		}
	}
	return seems
}

// OwnKeyMistakes returns findings about the labels and annotations of a pod that are Pillion's own, or nearly so.
func (i *Injector) OwnKeyMistakes(namespace *request.Namespace, pod *jsontree.Node) []Finding {
	s := &subject{podView: podView{labels: pod.At("metadata", "labels"), annotations: pod.At("metadata", "annotations")}}
	n := &mistakeCollector{injector: i.For(namespace.Name)}
	n.checkPillionKeys(s)
	n.checkMisspelled(s)
	return n.all
}

// checkMisspelled adds findings about labels and annotations of the pod that resemble Pillion's: those of a domain with another spelling, and
// labels with the key of a parameter.
func (n *mistakeCollector) checkMisspelled(s *subject) {
	for _, metadata := range []struct {
		what, path string
		n          *jsontree.Node
	}{{"label", "/metadata/labels/", s.labels}, {"annotation", "/metadata/annotations/", s.annotations}} {
		members := metadata.n.Members()
		for i := range members[:min(len(members), maxMisspelled)] {
			key, message := members[i].Name(), ""
			if meant := n.injector.meantKey(key); meant != "" {
				message = fmt.Sprintf("the %s %s means nothing; did you mean %s?", metadata.what, key, kindOf(meant, metadata.what))
			} else if metadata.n == s.labels && n.injector.setsParameter(key) && s.annotation(key) == nil {
				message = fmt.Sprintf("the label %s sets no parameter; set it as an annotation", key)
			}
			if message != "" {
				n.addFinding(Finding{Code: CodeUnknownParameter, Path: metadata.path + jsontree.Escape(key), Found: JSON(members[i].String()), Message: message, ownKey: true})
			}
		}
	}
}

// maxMisspelled limits how many keys are compared, because a pod may have very many.
const maxMisspelled = 1000

// setsParameter reports whether a key is that of a parameter which pods may set.
func (i *Injector) setsParameter(key string) bool {
	template, name, ok := templates.SplitAnnotation(key)
	if !ok {
		return false
	}
	t := i.byName[template]
	return t != nil && slices.Contains(t.settable, name)
}

// meantKey returns the key of Pillion's that a key with another domain resembles, or "". The part after the slash must be equal,
// because a domain that differs from Pillion's by one letter may belong to another product.
func (i *Injector) meantKey(key string) string {
	prefix, name, ok := strings.Cut(key, "/")
	last := strings.LastIndexByte(prefix, '.')
	if !ok || last < 0 || prefix == templates.Domain || strings.HasSuffix(prefix, "."+templates.Domain) {
		return ""
	}
	first := strings.LastIndexByte(prefix[:last], '.') + 1
	domain := prefix[first:last]
	if difference := len(domain) - len(product); difference < -2 || difference > 2 || problem.Closest(domain, []string{product}) == "" {
		return ""
	}
	meant := templates.Domain + "/" + name
	if first > 0 {
		if meant = prefix[:first] + meant; !i.setsParameter(meant) {
			return ""
		}
		return meant
	}
	if meant != LabelInject && meant != AnnotationTemplates {
		return ""
	}
	return meant
}

// kindOf returns a key of Pillion's for a message. What is "label" or "annotation", as the user set it. If the key must be the other
// one, the result begins with "the label" or "the annotation".
func kindOf(key, what string) string {
	is := "annotation"
	if slices.Contains(domainLabels(), key) {
		is = "label"
	}
	if is == what {
		return key
	}
	return "the " + is + " " + key
}

// WrongOptIn returns a sentence about a key with which the author of a namespace probably wanted to opt in, or "".
func WrongOptIn(ns request.Namespace) string {
	all := new(Injector).NamespaceMistakes(ns) // parameters do not matter here
	if len(all) == 0 {
		return ""
	}
	return all[0]
}

// WrongOptInValue returns a sentence about the value of a namespace's opt-in label if it means nothing, or "".
func WrongOptInValue(ns request.Namespace) string {
	label, labelled := ns.Labels[LabelInject]
	if wrong := WrongNamespaceLabel(label); labelled && wrong != "" {
		return fmt.Sprintf("the label %s: %s of the namespace means nothing%s", LabelInject, problem.Cut(label, maxValue), wrong)
	}
	return ""
}

// NamespaceMistakes returns sentences about labels and annotations of a namespace that look as if they opted in, and do not.
func (i *Injector) NamespaceMistakes(ns request.Namespace) (all []string) {
	for _, of := range []struct {
		what string
		keys map[string]string
	}{{"label", ns.Labels}, {"annotation", ns.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(of.keys)) {
			switch meant := i.meantKey(key); {
			case meant != "":
				all = append(all, fmt.Sprintf("the %s %s of the namespace means nothing; did you mean %s?", of.what, key, kindOf(meant, of.what)))
			case of.what == "label" && slices.Contains(domainLabels(), key):
			case of.what == "annotation" && slices.Contains(domainLabels(), key):
				all = append(all, fmt.Sprintf("the annotation %s of the namespace means nothing; set it as a label", key))
			case of.what == "label" && i.setsParameter(key):
				all = append(all, fmt.Sprintf("the label %s of the namespace sets no parameter; set it as an annotation", key))
			case strings.HasPrefix(key, templates.Domain+"/"):
				all = append(all, fmt.Sprintf("the %s %s of the namespace means nothing%s", of.what, key, problem.DidYouMean(key, domainLabels())))
			}
		}
	}
	return all[:min(len(all), maxFindings)]
}
