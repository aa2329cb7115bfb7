// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// loaded is a template with data that is the same for each pod: the keys of its annotations, and
// the sentences for pods that it does not match.
type loaded struct {
	*templates.Template
	prefix                 string // of its annotations' keys
	runs                   []templates.Runs
	injected, customize    string
	settable               []string    // names of the other annotations that pods may set
	products               productKeys // annotations of other products that it reads
	protect                [][]string  // the elements of each protected path
	forNamespaces, forPods string
	audit                  string     // audit annotation of a pod that has the template
	revision               tree.Node  // value of the annotation that records the injection
	recorded               *tree.Node // the fragment with that annotation, or nil if it differs between pods
}

// load computes what the engine needs of a template.
func load(t *templates.Template) *loaded {
	l := &loaded{
		Template: t, prefix: t.Annotation(""), injected: t.Annotation(templates.AnnotationInjected), customize: t.Annotation(templates.AnnotationCustomize),
		runs: t.Runs(), settable: append(t.OwnParamNames(), templates.AnnotationCustomize),
		forNamespaces: fmt.Sprintf("the template is for namespaces with %v", t.NamespaceSelector),
		forPods:       fmt.Sprintf("the template is for pods with %v", t.PodSelector),
		revision:      tree.Text(t.Revision), audit: "injected: revision " + t.Revision,
	}
	l.products.add(t)
	for _, path := range t.Spec.Validate.Protect {
		l.protect = append(l.protect, strings.Split(path, "."))
	}
	if fragment := t.PodFragment().Static(); fragment != nil {
		l.recorded = new(l.record(nil, fragment))
	}
	return l
}

// record returns a fragment with the annotation that records the injection.
func (t *loaded) record(nodes *tree.Arena, fragment *tree.Node) tree.Node {
	metadata := fragment.Get("metadata")
	annotations := nodes.With(metadata.Get("annotations"), t.injected, t.revision)
	return nodes.With(fragment, "metadata", nodes.With(metadata, "annotations", annotations))
}
