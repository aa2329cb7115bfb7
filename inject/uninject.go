// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Removal is what makes of an injected pod the one that it was made of.
type Removal struct {
	Pod       Identity
	Templates []string // what was injected, in the order of application
	// Paths are JSON Pointers, to be removed one after another.
	Paths []string
	// Kept are places that are just as a template has them, and are taken for the pod's
	// own because they are before others of its own.
	Kept []string
	// Served: the pod came from an API server, which writes defaults and sorts keys.
	Served bool
	// Empty are the values that were empty before they were filled. Their paths are right
	// once Paths are removed.
	Empty []Empty

	own    func(path string) bool // whether the pod had it just as a template has it
	filled map[string]string      // Empty by the paths
}

// Empty is a value that was empty, and how it was written.
type Empty struct{ Path, Text string }

// Uninject is the inverse of [Injector.Inject]: it says what to take out of a pod
// that says of itself what was injected. Taken out and injected again it is the
// same pod, or there is an error that says why not. What the pod had already just
// as a template has it goes too, unless the pod's [AnnotationUninject] names it.
func (i *Injector) Uninject(req Request) (*Removal, error) {
	pod, err := tree.Parse(req.Object)
	if err != nil {
		return nil, notJSON(err)
	}
	r := &Removal{Pod: identify(pod), Served: served(pod)}
	if r.Templates, err = i.injectedBy(pod); err != nil || len(r.Templates) == 0 {
		return r, err
	}
	before, err := beforeOf(pod)
	if err != nil {
		return nil, err
	}
	r.own = before.owns
	// The containers go first: expressions may count them.
	doc, err := decode(req.Object)
	if err != nil {
		return nil, err
	}
	r.filled = before.Empty // where these are in containers, nothing is removed yet
	doc = r.remove(doc, i.recorded(pod, r))
	bare, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	if err = r.emptied(bare, before); err != nil {
		return nil, err
	}
	added, err := i.addedBy(&req, r, bare)
	if err != nil {
		return nil, err
	}
	// If an item that is just as a template has it is followed by others, it may be the
	// pod's own: then it stays, and the templates leave it alone too.
	var failed error
	for _, ownStays := range []bool{false, true} {
		attempt := *r
		original := pod
		if attempt.Served {
			original = nil
		}
		doc, kept, err := attempt.subtract(bare, original, added, ownStays)
		if err != nil {
			return nil, err
		}
		attempt.Kept = kept
		if err = i.verify(req, doc); err == nil {
			return &attempt, nil
		}
		failed = err
	}
	return nil, failed
}

// emptied notes where the values are in the pod without the templates' containers that
// were empty.
func (r *Removal) emptied(bare []byte, before Before) error {
	pod, err := tree.Parse(bare)
	if err != nil {
		return err
	}
	r.filled = map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(before.Empty)) {
		at := indexed(pod, path)
		r.Empty, r.filled[at] = append(r.Empty, Empty{at, before.Empty[path]}), before.Empty[path]
	}
	return nil
}

// addedBy renders what the templates added, each as if those before it had added
// nothing.
func (i *Injector) addedBy(req *Request, r *Removal, bare []byte) ([]*candidate, error) {
	pod, err := tree.Parse(bare)
	if err != nil {
		return nil, err
	}
	doc, err := decode(bare)
	if err != nil {
		return nil, err
	}
	run := i.newRun(req, pod)
	var all []*candidate
	for _, t := range i.templates {
		if !slices.Contains(r.Templates, t.Name) {
			continue
		}
		c := &candidate{subject: &run.subject, t: t, input: run.input, decision: &Decision{}}
		if code, message := c.render(i.rules); code != "" {
			return nil, fmt.Errorf("%s was injected, but would not be now (%s: %s), so what it added is not known", t.Name, code, message)
		}
		if err := run.owners.renderApps(c); err != nil {
			return nil, fmt.Errorf("%s was injected, but what it adds cannot be said now: %w", t.Name, err)
		}
		all = append(all, c)
		s := &subtraction{candidate: c, own: r.own}
		s.all()
		doc = (&Removal{Served: r.Served, filled: r.filled}).remove(doc, s.paths)
		if pod, err = parseAgain(doc); err != nil {
			return nil, err
		}
		run.subject.replace(pod)
		run.owners.users = [2][]appContainer{}
	}
	return all, nil
}

// subtract takes out what templates added, the last one first, for each added
// behind those before it. It returns what is left, and what is kept as the pod's own.
// Original is the pod with its keys in the order of its author, or nil.
func (r *Removal) subtract(bare []byte, original *tree.Node, added []*candidate, ownStays bool) (left []byte, kept []string, err error) {
	doc, err := decode(bare)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range slices.Backward(added) {
		if c.subject.pod, err = parseAgain(doc); err != nil {
			return nil, nil, err
		}
		s := &subtraction{candidate: c, own: r.own, ownStays: ownStays, original: original}
		s.all()
		doc = r.remove(doc, s.paths)
		kept = append(kept, s.kept...)
	}
	left, err = json.Marshal(doc)
	return left, kept, err
}

// injectedBy are the templates that a pod says were injected, which have to be
// these ones.
func (i *Injector) injectedBy(pod *tree.Node) ([]string, error) {
	said := revisions(pod)
	var all []string
	for _, t := range i.set.Templates {
		revision, ok := said[t.Name]
		if !ok {
			continue
		}
		if delete(said, t.Name); revision != t.Revision {
			return nil, fmt.Errorf("%s was injected by revision %s of the template, and this is revision %s; name the templates that were used", t.Name, revision, t.Revision)
		}
		all = append(all, t.Name)
	}
	if names := slices.Sorted(maps.Keys(said)); len(names) > 0 {
		return nil, fmt.Errorf("%s was injected, and there is no template of that name here; name the templates that were used", names[0])
	}
	return all, nil
}

// recorded are the places of the templates' containers and of the record of
// their injection.
func (i *Injector) recorded(pod *tree.Node, r *Removal) []string {
	var all []string
	if pod.At("metadata", "annotations", AnnotationUninject) != nil {
		all = append(all, annotationPath(AnnotationUninject))
	}
	for _, t := range i.templates {
		if !slices.Contains(r.Templates, t.Name) {
			continue
		}
		all = append(all, annotationPath(t.injected))
		if pod.At("metadata", "annotations", t.customize).IsText("true") {
			continue // the pod's own; what was filled in is subtracted
		}
		for _, list := range containerLists() {
			items := pod.At("spec", list).Items()
			for j := range items {
				at := "/spec/" + list + "/" + strconv.Itoa(j)
				if slices.Contains(t.Containers, items[j].Get("name").Text()) && !r.own(named(pod, at)) {
					all = append(all, at)
				}
			}
		}
	}
	return all
}

// remove takes the paths out of doc, with the parents that it leaves empty, and
// notes them in an order in which each is still right when its turn comes.
func (r *Removal) remove(doc any, paths []string) any {
	slices.SortFunc(paths, func(a, b string) int { return comparePaths(b, a) })
	for _, path := range slices.Compact(paths) {
		for ; path != ""; path = path[:strings.LastIndexByte(path, '/')] {
			r.Paths = append(r.Paths, path)
			if text, filled := r.filled[path]; filled {
				empties(doc, strings.Split(path, "/")[1:], emptyOf(text))
				break
			}
			var empty bool
			if doc, empty = without(doc, strings.Split(path, "/")[1:]); !empty || r.written(path) {
				break
			}
			r.Paths = r.Paths[:len(r.Paths)-1] // the parent goes instead
		}
	}
	return doc
}

// written says whether what a path is taken out of is there even when it is
// empty: an API server writes these objects into every pod.
func (r *Removal) written(path string) bool {
	parent := path[:strings.LastIndexByte(path, '/')]
	return r.Served && (parent == "/spec/securityContext" || strings.HasSuffix(parent, "/resources"))
}

// comparePaths orders pointers with the indices of a list as numbers.
func comparePaths(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "/"), strings.Split(b, "/"), func(a, b string) int {
		i, errA := strconv.Atoi(a)
		j, errB := strconv.Atoi(b)
		if errA == nil && errB == nil {
			return i - j
		}
		return strings.Compare(a, b)
	})
}
