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

// product and topLevel are the parts of Pillion's domain by which a misspelled domain is recognized, for example pilion.dev or pillion.io.
var product, topLevel, _ = strings.Cut(templates.Domain, ".")

// domainLabels returns the keys that have a meaning as labels of a namespace.
func domainLabels() []string { return []string{LabelInject, LabelRollout} }

// likeOptIn matches the keys for which the webhook for workloads is called although neither the namespace nor the pod has opted in. Most of
// them are mistakes, which checkPillionKeys and checkMisspelled find.
var likeOptIn = regexp.MustCompile(`^(pillion[.]dev/|p[a-z]{4,8}[.][a-z]+/(inject|templates)$)`)

// SeemsToOptIn reports whether the pods of a workload have not opted in, and a label or an annotation of the pods or of the workload looks
// as if they should. Path is where the pod template is. The webhook configuration for workloads has the same condition, because a selector
// cannot see this.
func SeemsToOptIn(object *jsontree.Node, path []string) (seems bool) {
	if object.At(path...).At("metadata", "labels", LabelInject).IsText(Enabled) {
		return false
	}
	for depth := range len(path) + 1 {
		for _, field := range []string{"labels", "annotations"} {
			members := object.At(path[:depth]...).At("metadata", field).Members()
			for i := range members[:min(len(members), maxMisspelled)] {
				key := members[i].Name()
				seems = seems || key != AnnotationTemplates && key != LabelExempt && likeOptIn.MatchString(key) && !members[i].IsText(Disabled)
			}
		}
	}
	return seems
}

// OwnKeyMistakes returns findings about the labels and annotations of a pod that are Pillion's own, or nearly so. It returns none in a
// namespace that cannot opt in.
func (i *Injector) OwnKeyMistakes(namespace *request.Namespace, pod *jsontree.Node) []Finding {
	if i.Excludes(namespace.Name) {
		return nil
	}
	n := &mistakeCollector{injector: i.For(namespace.Name)}
	s := &subject{podView: podView{labels: pod.At("metadata", "labels"), annotations: pod.At("metadata", "annotations")}}
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
			if meant := n.injector.meantKey(key); meant != "" && meant != LabelRollout { // which is for namespaces
				message = fmt.Sprintf("the %s %s means nothing to Pillion; did you mean %s?", metadata.what, key, kindOf(meant, metadata.what))
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
	edits := 2
	if prefix[last+1:] != topLevel {
		edits = 1
	}
	if problem.EditDistance(domain, product) > edits {
		return ""
	}
	meant := templates.Domain + "/" + name
	if first > 0 {
		if meant = prefix[:first] + meant; !i.setsParameter(meant) {
			return ""
		}
		return meant
	}
	if meant != LabelInject && meant != LabelRollout && meant != AnnotationTemplates {
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

// NamespaceWarnings returns what the author of a namespace should know: NamespaceMistakes, and sentences about values of Pillion's labels
// that mean nothing.
func (i *Injector) NamespaceWarnings(ns request.Namespace) []string {
	if i.Excludes(ns.Name) {
		return nil
	}
	all := i.NamespaceMistakes(ns)
	for _, key := range domainLabels() {
		value, labelled := ns.Labels[key]
		wrong := WrongNamespaceLabel(value)
		if key == LabelRollout && value != Enabled && value != Disabled {
			wrong = fmt.Sprintf("; the value must be %s or %s", Enabled, Disabled)
		}
		switch {
		case !labelled || wrong == "":
		case value == "":
			all = append(all, fmt.Sprintf("the label %s of the namespace has no value%s", key, wrong))
		default:
			all = append(all, fmt.Sprintf("the label %s: %s of the namespace means nothing%s", key, problem.Cut(value, maxValue), wrong))
		}
	}
	return all
}

// NamespaceMistakes returns sentences about labels and annotations of a namespace that look as if they opted in, and do not. It reads at
// most maxMisspelled of each.
func (i *Injector) NamespaceMistakes(ns request.Namespace) (all []string) {
	if i.Excludes(ns.Name) {
		return nil
	}
	for _, of := range []struct {
		what string
		keys map[string]string
	}{{"label", ns.Labels}, {"annotation", ns.Annotations}} {
		keys := slices.Sorted(maps.Keys(of.keys))
		for _, key := range keys[:min(len(keys), maxMisspelled)] {
			if sentence := i.namespaceMistake(of.what, key); sentence != "" && len(all) < maxFindings {
				all = append(all, sentence)
			}
		}
	}
	return all
}

// namespaceMistake is NamespaceMistakes for one key. What is "label" or "annotation".
func (i *Injector) namespaceMistake(what, key string) string {
	isLabel := what == "label"
	meant := i.meantKey(key)
	switch {
	case meant != "":
		return fmt.Sprintf("the %s %s of the namespace means nothing to Pillion; did you mean %s?", what, key, kindOf(meant, what))
	case isLabel && slices.Contains(domainLabels(), key):
		return ""
	case slices.Contains(domainLabels(), key):
		return fmt.Sprintf("the annotation %s of the namespace means nothing; set it as a label", key)
	case key == LabelExempt:
		return fmt.Sprintf("the %s %s of the namespace means nothing; set it as a label of pods", what, key)
	case isLabel && i.setsParameter(key):
		return fmt.Sprintf("the label %s of the namespace sets no parameter; set it as an annotation", key)
	case !strings.HasPrefix(key, templates.Domain+"/"):
		return ""
	}
	sentence := fmt.Sprintf("the %s %s of the namespace means nothing", what, key)
	if closest := problem.Closest(key, domainLabels()); closest != "" {
		sentence += fmt.Sprintf("; did you mean %s?", closest)
	}
	return sentence
}
