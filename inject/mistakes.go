// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// maxFindings is the maximum number of findings about a pod's annotations. More would not help
// users, and the search for similar names takes time.
const maxFindings = 16

// maxCompared is the maximum number of comparisons of a pod's keys with those of templates, in the
// search for mistakes.
const maxCompared = 20_000

// names collects the mistakes in the annotations of a pod, its ServiceAccount and its namespace.
type names struct {
	injector *Injector
	all      []Finding
}

func (n *names) add(f Finding) {
	if f.Message = sentence(f.Message); len(n.all) < maxFindings {
		n.all = append(n.all, f)
	}
}

// mistakes returns findings about names in the pod's annotations that do not exist.
func mistakes(i *Injector, s *subject) []Finding {
	for _, rule := range []func(*subject, *loaded) (bool, string){mirrorPod, excludedNamespace, notOptedIn} {
		if applies, _ := rule(s, nil); applies {
			return nil // Pillion does not process this pod
		}
	}
	n := &names{injector: i}
	s.ownKeys(n)
	n.misspelled(s)
	for _, name := range s.requested.sorted() {
		if len(n.all) == maxFindings {
			break
		}
		if n.injector.byName[name] == nil {
			n.add(Finding{
				Code: CodeUnknownTemplate, Path: annotationPath(AnnotationTemplates), Found: JSON(s.annotation(AnnotationTemplates).String()),
				Message: fmt.Sprintf("the annotation %s names the unknown template %q%s", AnnotationTemplates, name, n.injector.meant(name)),
				unknown: name,
			})
		}
	}
	members := s.annotations.Members()
	for _, known := range []bool{true, false} { // first those of existing templates
		for k := range members {
			if f, ok := n.unknown("", members[k].Name(), known); ok {
				f.Path, f.Found = annotationPath(members[k].Name()), JSON(members[k].String())
				n.add(f)
			}
		}
	}
	n.outside("namespace's ", s.asked.namespace.Annotations)
	if s.asked.account != nil {
		n.outside("ServiceAccount's ", s.asked.account.Annotations)
	}
	n.ofProducts(s)
	return n.all
}

// outside adds findings about annotations of another object than the pod.
func (n *names) outside(whose string, annotations map[string]string) {
	for _, key := range templateKeys(annotations) {
		for _, known := range []bool{true, false} {
			if f, ok := n.unknown(whose, key, known); ok {
				n.add(f)
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

// ownKeys finds keys with Pillion's prefix, and their values, that have no meaning.
func (s *subject) ownKeys(n *names) {
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
			key := members[i].Name()
			if strings.HasPrefix(key, templates.Domain+"/") && key != metadata.known && (key != AnnotationUninject || metadata.n != s.annotations) {
				message := fmt.Sprintf("the %s %s means nothing; did you mean %s?", metadata.what, key, metadata.known)
				if key == metadata.other {
					message = fmt.Sprintf("the %s %s means nothing; set it as %s", metadata.what, key, metadata.kind)
				}
				n.add(Finding{Code: CodeUnknownParameter, Path: metadata.path + jsontree.Escape(key), Found: JSON(members[i].String()), Message: message})
			}
		}
	}
	if label := s.optIn(); label != nil && !label.IsText(Enabled) && !label.IsText(Disabled) {
		n.add(Finding{
			Code: CodeUnknownParameter, Path: "/metadata/labels/" + jsontree.Escape(LabelInject), Found: JSON(label.String()),
			Message: fmt.Sprintf("the label %s; it must be %s or %s", meaningless(label), Enabled, Disabled),
		})
	}
}

// meaningless returns what is wrong with the value of the opt-in label.
func meaningless(label *jsontree.Node) string {
	if label.Kind() == jsontree.Null || label.IsText("") {
		return LabelInject + " has no value"
	}
	return fmt.Sprintf("%s: %s means nothing", LabelInject, label)
}

// unknown returns a finding about an annotation that has the form of a template's. It considers
// only existing templates if known is true, and only others if it is false.
func (n *names) unknown(whose, key string, known bool) (Finding, bool) {
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
			return fmt.Sprintf("; set %s", k.written())
		}
	}
	return ""
}

// meant returns the end of a message about an unknown name in the annotation pillion.dev/templates.
func (i *Injector) meant(name string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r != '-' && r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	if len(parts) > 1 && slices.ContainsFunc(parts, func(part string) bool { return i.byName[strings.TrimLeft(part, "-")] != nil }) {
		return "; separate names by commas"
	}
	return problem.DidYouMean(name, i.names)
}

// ofProducts adds findings about keys that resemble those of other products.
func (n *names) ofProducts(s *subject) {
	known := &n.injector.products
	if len(known.keys) == 0 {
		return
	}
	left := maxCompared
	add := func(whose, path string, message string, found *jsontree.Node) {
		f := Finding{Code: CodeUnknownParameter, Message: "the " + whose + message}
		if found != nil {
			f.Path, f.Found = path, JSON(found.String())
		}
		if message != "" {
			n.add(f)
		}
		left -= len(known.keys)
	}
	members := s.annotations.Members()
	for i := 0; i < len(members) && left > 0; i++ {
		key := members[i].Name()
		add("", annotationPath(key), known.mistake(key), &members[i])
	}
	members = s.labels.Members()
	for i := 0; i < len(members) && left > 0; i++ {
		if key := members[i].Name(); s.annotation(key) == nil {
			add("", "/metadata/labels/"+jsontree.Escape(key), known.asLabel(key), &members[i])
		}
	}
	outside := func(whose string, annotations map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if left > 0 {
				add(whose, "", known.mistake(key), nil)
			}
		}
	}
	outside("namespace's ", s.asked.namespace.Annotations)
	if s.asked.account != nil {
		outside("ServiceAccount's ", s.asked.account.Annotations)
	}
}
