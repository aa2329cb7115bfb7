// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// maxFindings is the maximum number of findings about a pod's annotations. More findings would not help
// users, and the search for similar names takes time.
const maxFindings = 16

// maxCompared is the maximum number of comparisons of a pod's keys with those of templates, in the
// search for mistakes.
const maxCompared = 20_000

// mistakeCollector collects the mistakes in the annotations of a pod, its ServiceAccount and its namespace.
type mistakeCollector struct {
	injector *Injector
	all      []Finding
}

func (n *mistakeCollector) addFinding(f Finding) {
	if f.Message = cleanMessage(f.Message); len(n.all) < maxFindings {
		n.all = append(n.all, f)
	}
}

// findMistakes returns findings about names in the pod's annotations that do not exist.
func findMistakes(i *Injector, s *subject) []Finding {
	for _, rule := range []func(*subject, *loaded) (bool, string){mirrorPod, excludedNamespace, notOptedIn} {
		if applies, _ := rule(s, nil); applies {
			return nil // Pillion does not process this pod
		}
	}
	n := &mistakeCollector{injector: i}
	n.checkPillionKeys(s)
	n.checkMisspelled(s)
	for _, name := range s.requested.sortedNames() {
		if len(n.all) == maxFindings {
			break
		}
		if n.injector.byName[name] == nil {
			n.addFinding(Finding{
				Code: CodeUnknownTemplate, Path: schema.AnnotationPath(AnnotationTemplates), Found: JSON(s.annotation(AnnotationTemplates).String()),
				Message: fmt.Sprintf("the annotation %s names the unknown template %q%s", AnnotationTemplates, name, n.injector.suggestTemplate(name)),
				unknown: name,
			})
		}
	}
	members := s.annotations.Members()
	for _, known := range []bool{true, false} { // first those of existing templates
		for k := range members {
			if f, ok := n.findUnknownKey("", members[k].Name(), known); ok {
				f.Path, f.Found = schema.AnnotationPath(members[k].Name()), JSON(members[k].String())
				n.addFinding(f)
			}
		}
	}
	n.checkOtherObject("namespace's ", s.request.namespace.Annotations)
	if s.request.account != nil {
		n.checkOtherObject("ServiceAccount's ", s.request.account.Annotations)
	}
	n.checkProductKeys(s)
	return n.all
}

// checkOtherObject adds findings about annotations of another object than the pod.
func (n *mistakeCollector) checkOtherObject(whose string, annotations map[string]string) {
	for _, key := range templateKeys(annotations) {
		for _, known := range []bool{true, false} {
			if f, ok := n.findUnknownKey(whose, key, known); ok {
				n.addFinding(f)
			}
		}
	}
}

// templateKeys returns the keys that have the form of a template's.
func templateKeys(annotations map[string]string) []string {
	var keys []string
	for key := range annotations {
		if _, _, ok := templates.SplitAnnotation(key); ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// checkPillionKeys adds findings about labels and annotations with Pillion's prefix if the key, or the value of the opt-in label, has no
// meaning.
func (n *mistakeCollector) checkPillionKeys(s *subject) {
	for _, metadata := range []struct {
		what, path string
		n          *jsontree.Node
		known      string
		// other is known too, but of another kind.
		other, kind string
	}{
		{"label", "/metadata/labels/", s.labels, LabelInject, AnnotationTemplates, "an annotation"},
		{"annotation", "/metadata/annotations/", s.annotations, AnnotationTemplates, LabelInject, "a label"},
	} {
		members := metadata.n.Members()
		for i := range members {
			if len(n.all) == maxFindings {
				return
			}
			key := members[i].Name()
			if strings.HasPrefix(key, templates.Domain+"/") && key != metadata.known && (!IsWritten(key) || metadata.n != s.annotations) {
				message := fmt.Sprintf("the %s %s means nothing; did you mean %s?", metadata.what, key, metadata.known)
				switch {
				case key == metadata.other:
					message = fmt.Sprintf("the %s %s means nothing; set it as %s", metadata.what, key, metadata.kind)
				case key == LabelExempt && metadata.n == s.annotations:
					message = fmt.Sprintf("the annotation %s means nothing; set it as a label", key)
				case key == LabelExempt && s.request.file: // it is unknown how Pillion is installed
					continue
				case key == LabelExempt:
					message = fmt.Sprintf("the label %s exempts the pod only if Pillion is installed with the component exempt-pods", key)
				}
				n.addFinding(Finding{Code: CodeUnknownParameter, Path: metadata.path + jsontree.Escape(key), Found: JSON(members[i].String()), Message: message, ownKey: true})
			}
		}
	}
	if label := s.optIn(); label != nil && !label.IsText(Enabled) && !label.IsText(Disabled) {
		n.addFinding(Finding{
			Code: CodeUnknownParameter, Path: "/metadata/labels/" + jsontree.Escape(LabelInject), Found: JSON(label.String()),
			Message: fmt.Sprintf("the label %s; it must be %s or %s", whyMeaningless(label), Enabled, Disabled),
			ownKey:  true,
		})
	}
}

// whyMeaningless returns what is wrong with the value of the opt-in label.
func whyMeaningless(label *jsontree.Node) string {
	if label.Kind() == jsontree.Null || label.IsText("") {
		return LabelInject + " has no value"
	}
	return fmt.Sprintf("%s: %s means nothing", LabelInject, label)
}

// findUnknownKey returns a finding about an annotation that has the form of a template's annotation, but sets nothing. If known is true,
// it considers only annotations of existing templates, and if false only the others. The caller reports those of existing templates
// first, because the number of findings is limited. Whose is "" for the pod's annotations, or for example "namespace's ".
func (n *mistakeCollector) findUnknownKey(whose, key string, known bool) (Finding, bool) {
	template, name, ok := templates.SplitAnnotation(key)
	t := n.injector.byName[template]
	if !ok || len(n.all) == maxFindings || (t != nil) != known || templates.IsRecord(name) {
		return Finding{}, false // the template of an injected pod may have been deleted
	}
	if t == nil {
		return Finding{Code: CodeUnknownTemplate, unknown: template, Message: fmt.Sprintf("the %sannotation %s is for the unknown template %q%s",
			whose, key, template, problem.DidYouMean(template, n.injector.names))}, true
	}
	all := t.settable
	if slices.Contains(all, name) {
		return Finding{}, false
	}
	instead := t.readInstead(name)
	switch {
	case t.base != nil:
		instead = fmt.Sprintf(", because %s replaces %s and takes its parameters; set %s", t.Name, t.base.Name, t.Setting(name))
	case instead == "":
		instead = problem.DidYouMean(name, all)
	}
	return Finding{Code: CodeUnknownParameter, Template: template, Message: fmt.Sprintf("the %sannotation %s sets no parameter%s", whose, key, instead)}, true
}

// readInstead returns the end of a message about a parameter that another product's annotation sets.
func (t *loaded) readInstead(name string) string {
	for i := range t.Spec.Params {
		if p := &t.Spec.Params[i]; p.Name == name && p.OfOthers() {
			k := productKey{t.Name, cmp.Or(p.Annotation, p.Prefix), p.Prefix != ""}
			return fmt.Sprintf("; set %s", k.keyAsWritten())
		}
	}
	return ""
}

// suggestTemplate returns the end of a message about an unknown name in the annotation pillion.dev/templates.
func (i *Injector) suggestTemplate(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r != '-' && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(parts) > 1 && slices.ContainsFunc(parts, func(part string) bool { return i.byName[strings.TrimLeft(part, "-")] != nil }) {
		return "; separate names by commas"
	}
	return problem.DidYouMean(name, i.names)
}

// checkProductKeys adds findings about keys that resemble those of other products.
func (n *mistakeCollector) checkProductKeys(s *subject) {
	known := &n.injector.products
	if len(known.keys) == 0 {
		return
	}
	left := maxCompared // comparisons that may still be made
	add := func(whose, path string, message string, found *jsontree.Node) {
		f := Finding{Code: CodeUnknownParameter, Message: "the " + whose + message}
		if found != nil {
			f.Path, f.Found = path, JSON(found.String())
		}
		if message != "" {
			n.addFinding(f)
		}
		left -= len(known.keys)
	}
	members := s.annotations.Members()
	for i := 0; i < len(members) && left > 0; i++ {
		key := members[i].Name()
		add("", schema.AnnotationPath(key), known.describeMistake(key), &members[i])
	}
	members = s.labels.Members()
	for i := 0; i < len(members) && left > 0; i++ {
		if key := members[i].Name(); s.annotation(key) == nil {
			add("", "/metadata/labels/"+jsontree.Escape(key), known.describeLabelMistake(key), &members[i])
		}
	}
	outside := func(whose string, annotations map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if left > 0 {
				add(whose, "", known.describeMistake(key), nil)
			}
		}
	}
	outside("namespace's ", s.request.namespace.Annotations)
	if s.request.account != nil {
		outside("ServiceAccount's ", s.request.account.Annotations)
	}
}
