// SPDX-License-Identifier: Apache-2.0

// Package inject is the engine. It decides which templates a pod gets, computes what they add to
// it, and writes the patch.
//
// [Injector.Inject] is the only entry point for the webhook and the command line. Both use only
// its [Result]. The package is pure: it has no I/O, no clock and no state. An Injector is immutable
// and safe for concurrent use.
//
// Two invariants hold. Every operation is an add that changes nothing in the pod. Injecting the
// result again adds nothing.
package inject

import (
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/fragment"
)

// maxPatch is the maximum size of additions, in bytes of JSON. The API server accepts no object
// over 3 MiB.
const maxPatch = 3 << 20

// Injector decides and plans for one set of templates.
type Injector struct {
	loadedSet
	set      *templates.Set
	byName   map[string]*loaded
	names    []string   // names of the templates, sorted
	replaced []*loaded  // templates that others replace
	reads    []readPart // the parts of the pod that templates depend on
	// readsContainers reports whether an expression reads the pod's lists of containers.
	readsContainers bool
	proves          bool // whether a required template must not trust annotations about containers, see exposeUnproven
	readsName       bool // whether an expression reads the pod's name
	addsEnv         bool // whether a template adds variables to the pod's own containers
	readsAccount    bool // whether a template reads the ServiceAccount
	products        productKeys
	rules           []rule
	cluster         *Injector // for the templates of the cluster alone, if the set has some of a namespace
	all             *templates.Set
	views           map[string]*Injector // for namespaces with templates of their own
}

// Excludes reports whether Pillion never injects in a namespace.
func (i *Injector) Excludes(namespace string) bool { return slices.Contains(i.excluded, namespace) }

// New returns an Injector. It always excludes the system namespaces, in addition to
// excludedNamespaces.
func New(set *templates.Set, excludedNamespaces ...string) *Injector {
	names := set.Namespaces()
	if len(names) == 0 {
		return newView(set, excludedNamespaces)
	}
	cluster := newView(set.OfCluster(), excludedNamespaces)
	i := new(*cluster) // a copy, because cluster itself must have no views: For would return one of them
	i.all, i.views = set, map[string]*Injector{}
	for _, name := range names {
		i.views[name] = newView(set.For(name), excludedNamespaces)
		i.views[name].cluster = cluster
	}
	return i
}

// With returns an Injector for another set that excludes the same namespaces.
func (i *Injector) With(set *templates.Set) *Injector { return New(set, i.excluded...) }

// newView returns an Injector that uses all templates of the set in all namespaces.
func newView(set *templates.Set, excludedNamespaces []string) *Injector {
	i := &Injector{
		loadedSet: loadedSet{brings: map[string]int{}, excluded: append(SystemNamespaces(), excludedNamespaces...), schema: schema.Pod()},
		all:       set,
		set:       set,
		byName:    map[string]*loaded{},
		rules:     rules(),
	}
	reads, required, each := map[string]bool{}, false, false
	for _, t := range set.Templates {
		l := loadTemplate(t)
		i.templates, i.byName[t.Name] = append(i.templates, l), l
		i.products.recordReadKeys(t)
		i.products.recordAddedKeys(t)
		for _, name := range t.Containers {
			switch {
			case fragment.IsGenerated(name):
				i.patterns = append(i.patterns, name)
			case i.brings[name] == 0:
				i.brings[name] = len(i.brings) + 1
			}
		}
		for _, each := range t.EachFragments() {
			i.addsEnv = i.addsEnv || each.Add.Has("env")
		}
		required = required || t.Spec.Required
		each = each || t.Spec.Required && t.HasForEach()
		i.readsContainers = i.readsContainers || t.ReadsContainers()
		i.readsName = i.readsName || t.ReadsPodName()
		i.readsGated = i.readsGated || t.ReadsGated()
		i.readsAccount = i.readsAccount || t.NamesServiceAccount()
		for _, part := range t.Reads() {
			reads[part] = true
		}
	}
	if of := set.OfCluster(); len(of.Templates) < len(set.Templates) {
		i.cluster = newView(of, excludedNamespaces)
	}
	i.linkCanaries()
	for part := range reads {
		if r := parseReadPart(part); !reads[strings.Join(r.path, ".")] || !r.items && r.key == "" && r.prefix == "" {
			i.reads = append(i.reads, r)
		}
	}
	i.readsPod = len(i.reads) > 0
	i.proves = required && (i.readsContainers || each)
	i.names = slices.Sorted(maps.Keys(i.byName))
	return i
}

// linkCanaries links each template that replaces another one with that base. If the set does not have the base, for example because
// lint tries a template alone, the template is like any other.
func (i *Injector) linkCanaries() {
	for k, t := range i.templates {
		t.index = k
		base := i.byName[t.Spec.Replaces]
		if base == nil || base == t || base.Spec.Replaces != "" {
			continue
		}
		t.base, base.canaries = base, append(base.canaries, t)
		base.settable = append(base.settable, t.OwnParamNames()...)
		t.settable = nil
		if len(base.canaries) == 1 {
			i.replaced = append(i.replaced, base)
		}
	}
}

// countClusterTemplates returns the number of templates of the cluster, which come first.
func (i *Injector) countClusterTemplates() int {
	if i.cluster != nil {
		return len(i.cluster.templates)
	}
	return len(i.templates)
}

// ReadsOfProducts reports whether a template reads an annotation that is not Pillion's.
func (i *Injector) ReadsOfProducts(key string) bool { return i.products.readsKey(key) }

// IgnoresOfProducts reports whether parameters read other annotations of a product, but not this one.
func (i *Injector) IgnoresOfProducts(key string) bool { return i.products.ignoresKey(key) }

// Set returns the templates for the pods of a namespace without templates of its own, or, for the
// result of [Injector.For], for those of that namespace.
func (i *Injector) Set() *templates.Set { return i.set }

// All returns the templates of all namespaces.
func (i *Injector) All() *templates.Set { return i.all }

// For returns the Injector for the pods of one namespace. The methods that get a namespace, for example in a [Request], call For
// themselves.
func (i *Injector) For(namespace string) *Injector {
	if view := i.views[namespace]; view != nil {
		return view
	}
	return i
}
