// SPDX-License-Identifier: Apache-2.0

// Package inject is the engine: which templates a pod gets, what they add to
// it, and the patch that says so.
//
// [Injector.Inject] is the only way in, for the webhook and the command line
// alike, and its [Result] is all that either of them knows. The package is pure:
// no I/O, no clock, no state; an Injector is immutable and may be shared.
//
// Two things always hold. Every operation is an add that leaves whatever the
// pod says in place; and injecting the result again adds nothing.
package inject

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// maxPatch bounds what may be added, in bytes of JSON; the API server takes no
// object over 3 MiB.
const maxPatch = 3 << 20

// Injector decides and plans for one set of templates.
type Injector struct {
	set       *templates.Set
	templates []*loaded
	byName    map[string]*loaded
	names     []string       // of the templates, sorted
	brings    map[string]int // the containers that any of them brings, numbered from 1
	reads     []read         // the parts of the pod that templates depend on
	// readsContainers: an expression reads the pod's lists of containers.
	readsContainers bool
	addsEnv         bool // to the pod's own containers
	rules           []rule
	couplings       []coupling
	excluded        []string
	schema          *schema.Schema
}

// Excludes reports whether nothing is ever injected in a namespace.
func (i *Injector) Excludes(namespace string) bool { return slices.Contains(i.excluded, namespace) }

// New makes an Injector. System namespaces are excluded always, others on request.
func New(set *templates.Set, excludedNamespaces ...string) *Injector {
	i := &Injector{
		set:       set,
		byName:    map[string]*loaded{},
		brings:    map[string]int{},
		rules:     rules(),
		couplings: couplings(),
		excluded:  append(SystemNamespaces(), excludedNamespaces...),
		schema:    schema.Pod(),
	}
	reads := map[string]bool{}
	for _, t := range set.Templates {
		l := &loaded{Template: t, injected: t.Annotation(templates.AnnotationInjected), customize: t.Annotation(templates.AnnotationCustomize), prefix: t.Annotation("")}
		l.runs = t.Runs()
		l.settable = append(t.ParamNames(), templates.AnnotationCustomize)
		l.revision, l.audit = tree.Text(t.Revision), "injected: revision "+t.Revision
		l.forNamespaces = fmt.Sprintf("the template is for namespaces with %v", t.NamespaceSelector)
		l.forPods = fmt.Sprintf("the template is for pods with %v", t.PodSelector)
		for _, path := range t.Spec.Validate.Protect {
			l.protect = append(l.protect, strings.Split(path, "."))
		}
		if fragment := t.PodFragment().Static(); fragment != nil {
			l.recorded = new(l.record(nil, fragment))
		}
		i.templates, i.byName[t.Name] = append(i.templates, l), l
		for _, name := range t.Containers {
			if i.brings[name] == 0 {
				i.brings[name] = len(i.brings) + 1
			}
		}
		for _, each := range t.EachFragments() {
			i.addsEnv = i.addsEnv || each.Add.Has("env")
		}
		for _, part := range t.Reads() {
			reads[part] = true
		}
	}
	for part := range reads {
		if r := newRead(part); !reads[strings.Join(r.path, ".")] || !r.items && r.key == "" {
			i.reads = append(i.reads, r)
			i.readsContainers = i.readsContainers || r.ofContainers()
		}
	}
	i.names = slices.Sorted(maps.Keys(i.byName))
	return i
}

// Set is the set of templates.
func (i *Injector) Set() *templates.Set { return i.set }
