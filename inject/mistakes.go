// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// maxFindings bounds what is said about a pod's annotations: nobody reads more,
// and looking for the closest name takes time.
const maxFindings = 16

// names are the mistakes in the annotations of a pod and its namespace.
type names struct {
	injector *Injector
	all      []Finding
}

func (n *names) add(f Finding) {
	if len(n.all) < maxFindings {
		n.all = append(n.all, f)
	}
}

// mistakes are the names in the pod's annotations that nothing answers to.
func mistakes(i *Injector, s *subject) []Finding {
	for _, ofPod := range []func(*subject) (bool, string){mirrorPod, excludedNamespace, notOptedIn} {
		if applies, _ := ofPod(s); applies {
			return nil // not ours to comment on
		}
	}
	n := &names{injector: i}
	s.ownKeys(n)
	for _, name := range s.requested.sorted() {
		if len(n.all) == maxFindings {
			break
		}
		if n.injector.byName[name] == nil {
			n.add(Finding{
				Code: CodeUnknownTemplate, Path: annotationPath(AnnotationTemplates), Found: quoted(s.annotation(AnnotationTemplates)),
				Message: fmt.Sprintf("the annotation %s names the unknown template %q%s", AnnotationTemplates, name, didYouMean(name, n.injector.names)),
				unknown: name,
			})
		}
	}
	members := s.annotations.Members()
	for _, known := range []bool{true, false} { // those of templates that there are first
		for k := range members {
			if f, ok := n.unknown("", members[k].Name(), known); ok {
				f.Path, f.Found = annotationPath(members[k].Name()), quoted(&members[k])
				n.add(f)
			}
		}
	}
	for _, key := range s.namespaceKeys() {
		for _, known := range []bool{true, false} {
			if f, ok := n.unknown("namespace's ", key, known); ok {
				n.add(f)
			}
		}
	}
	return n.all
}

// namespaceKeys are the keys of the namespace's annotations that look like a template's.
func (s *subject) namespaceKeys() []string {
	var keys []string
	for key := range s.asked.namespace.Annotations {
		if _, _, ok := templates.SplitAnnotation(key); ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// ownKeys finds keys and values of Pillion's own that mean nothing.
func (s *subject) ownKeys(n *names) {
	for _, place := range []struct {
		what, path string
		n          *tree.Node
		known      string
	}{
		{"label", "/metadata/labels/", s.labels, LabelInject},
		{"annotation", "/metadata/annotations/", s.annotations, AnnotationTemplates},
	} {
		members := place.n.Members()
		for i := range members {
			key := members[i].Name()
			if strings.HasPrefix(key, templates.Domain+"/") && key != place.known && (key != AnnotationUninject || place.n != s.annotations) {
				n.add(Finding{
					Code: CodeUnknownParameter, Path: place.path + tree.Escape(key), Found: quoted(&members[i]),
					Message: fmt.Sprintf("the %s %s means nothing; did you mean %s?", place.what, key, place.known),
				})
			}
		}
	}
	if label := s.optIn(); label != nil && !label.IsText(Enabled) && !label.IsText(Disabled) {
		n.add(Finding{
			Code: CodeUnknownParameter, Path: "/metadata/labels/" + tree.Escape(LabelInject), Found: quoted(label),
			Message: fmt.Sprintf("the label %s; it must be %s or %s", meaningless(label), Enabled, Disabled),
		})
	}
}

// meaningless says what is wrong with the value of the label by which pods opt in.
func meaningless(label *tree.Node) string {
	if label.Kind() == tree.Null || label.IsText("") {
		return LabelInject + " has no value"
	}
	return fmt.Sprintf("%s: %s means nothing", LabelInject, label)
}

// unknown says what is wrong with an annotation that looks like one of a
// template's, of a template that is known or of one that is not.
func (n *names) unknown(whose, key string, known bool) (Finding, bool) {
	template, name, ok := templates.SplitAnnotation(key)
	t := n.injector.byName[template]
	if !ok || len(n.all) == maxFindings || (t != nil) != known || name == templates.AnnotationInjected {
		return Finding{}, false // what was injected once may be gone since
	}
	if t == nil {
		return Finding{Code: CodeUnknownTemplate, unknown: template, Message: fmt.Sprintf("the %sannotation %s is for the unknown template %q%s",
			whose, key, template, didYouMean(template, n.injector.names))}, true
	}
	all := t.settable
	if slices.Contains(all, name) {
		return Finding{}, false
	}
	return Finding{Code: CodeUnknownParameter, Template: template, Message: fmt.Sprintf("the %sannotation %s sets no parameter%s",
		whose, key, didYouMean(name, all))}, true
}

func didYouMean(name string, candidates []string) string {
	if c := templates.Closest(name, candidates); c != "" {
		return fmt.Sprintf("; did you mean %q?", c)
	}
	return ""
}
