// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// loadedSet is what the engine computes once for a set of templates. All pods share it, and it does not change.
type loadedSet struct {
	templates  []*loaded
	brings     map[string]int // constant container names of all templates, numbered from 1
	patterns   []string       // forms of the names of generated containers, see [templates.Template.Containers]
	readsPod   bool           // whether an expression reads more of the pod than names of containers
	readsGated bool           // see [templates.Template.ReadsGated]
	excluded   []string       // namespaces in which Pillion never injects
	schema     *schema.Schema // of pods
}

// loaded is a template of an Injector, with what the engine computes once instead of for each pod.
type loaded struct {
	*templates.Template
	prefix              string // of the keys of its annotations
	runs                []fragment.Runs
	injected, customize string
	base                *loaded   // the template that it replaces, or nil
	canaries            []*loaded // the templates that replace it, in order
	index               int       // among the templates of the injector
	// insteadKey is the annotation that records that this template was injected because a canary could not be. In the annotation of its
	// base, insteadValue names this canary.
	insteadKey, insteadValue string
	settable                 []string    // names of the annotations that pods may set: parameters, and customize
	products                 productKeys // annotations of other products that it reads
	protect                  [][]string  // the elements of each protected path
	forNamespaces, forPods   string
	each                     []templates.EachFragment
	readsPod                 bool           // whether what it renders may differ between pods
	audit                    string         // audit annotation of a pod that has the template
	revision                 jsontree.Node  // value of the annotation that records the injection
	recorded                 *jsontree.Node // the fragment with that annotation, or nil if it differs between pods
}

// loadTemplate computes what the engine needs of a template.
func loadTemplate(t *templates.Template) *loaded {
	l := &loaded{
		Template: t, prefix: t.Setting(""), injected: t.Annotation(templates.AnnotationInjected), customize: t.Setting(templates.AnnotationCustomize),
		insteadKey: t.Annotation(templates.AnnotationInstead), insteadValue: t.Name + "." + t.Revision,
		runs: t.Runs(), settable: append(t.OwnParamNames(), templates.AnnotationCustomize),
		forNamespaces: fmt.Sprintf("the template is for namespaces with %v", t.NamespaceSelector),
		forPods:       fmt.Sprintf("the template is for pods with %v", t.PodSelector),
		revision:      jsontree.Text(t.Revision), audit: "injected: revision " + t.Revision,
	}
	l.products.recordReadKeys(t)
	l.each = t.EachFragments()
	l.readsPod = t.ConditionExpression() != nil || t.PodFragment().Static() == nil ||
		slices.ContainsFunc(l.each, func(each templates.EachFragment) bool { return each.Where != nil || each.Add.Static() == nil })
	for _, path := range t.Spec.Validate.Protect {
		l.protect = append(l.protect, strings.Split(path, "."))
	}
	if fragment := t.PodFragment().Static(); fragment != nil && t.Spec.Replaces == "" {
		l.recorded = new(l.withRecord(nil, fragment, l.injected, l.revision))
	}
	return l
}

// withRecord returns a fragment with an annotation that records the injection.
func (t *loaded) withRecord(nodes *jsontree.Arena, fragment *jsontree.Node, key string, value jsontree.Node) jsontree.Node {
	metadata := fragment.Get("metadata")
	annotations := nodes.With(metadata.Get("annotations"), key, value)
	return nodes.With(fragment, "metadata", nodes.With(metadata, "annotations", annotations))
}

// baseOrSelf returns the template that this canary replaces, or the template itself if it is no canary.
func (t *loaded) baseOrSelf() *loaded {
	if t.base != nil {
		return t.base
	}
	return t
}
