// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
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
}

// Uninject is the inverse of [Injector.Inject]: it says what to take out of a pod
// that says of itself what was injected. Taken out and injected again it is the
// same pod, or there is an error that says why not. What the pod had already just
// as a template has it goes too, for nothing tells the two apart.
func (i *Injector) Uninject(req Request) (*Removal, error) {
	pod, err := tree.Parse(req.Object)
	if err != nil {
		return nil, notJSON(err)
	}
	r := &Removal{Pod: identify(pod), Served: served(pod)}
	if r.Templates, err = i.injectedBy(pod); err != nil || len(r.Templates) == 0 {
		return r, err
	}
	// The containers go first: expressions may count them.
	doc, err := decode(req.Object)
	if err != nil {
		return nil, err
	}
	doc = r.remove(doc, i.recorded(pod, r.Templates))
	bare, err := json.Marshal(doc)
	if err != nil {
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

// served reports whether the pod came from an API server.
func served(pod *tree.Node) bool {
	return pod.At("spec", "schedulerName") != nil && pod.At("spec", "dnsPolicy") != nil
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
	req.Scratch = &Scratch{}
	run := i.newRun(req, pod)
	var all []*candidate
	for _, t := range i.templates {
		if !slices.Contains(r.Templates, t.Name) {
			continue
		}
		c := &candidate{run: run, t: t, input: run.input, decision: &Decision{}}
		if code, message := c.render(); code != "" {
			return nil, fmt.Errorf("%s was injected, but would not be now (%s: %s), so what it added is not known", t.Name, code, message)
		}
		if err := c.renderApps(); err != nil {
			return nil, fmt.Errorf("%s was injected, but what it adds cannot be said now: %w", t.Name, err)
		}
		all = append(all, c)
		s := &subtraction{candidate: c}
		s.all()
		doc = (&Removal{Served: r.Served}).remove(doc, s.paths)
		if run.pod, err = parseAgain(doc); err != nil {
			return nil, err
		}
		run.lookups = lookups{}
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
		if c.pod, err = parseAgain(doc); err != nil {
			return nil, nil, err
		}
		s := &subtraction{candidate: c, ownStays: ownStays, original: original}
		s.all()
		doc = r.remove(doc, s.paths)
		kept = append(kept, s.kept...)
	}
	left, err = json.Marshal(doc)
	return left, kept, err
}

func parseAgain(doc any) (*tree.Node, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return tree.Parse(text)
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
func (i *Injector) recorded(pod *tree.Node, names []string) []string {
	var all []string
	for _, t := range i.templates {
		if !slices.Contains(names, t.Name) {
			continue
		}
		all = append(all, annotationPath(t.injected))
		if pod.At("metadata", "annotations", t.customize).IsText("true") {
			continue // the pod's own; what was filled in is subtracted
		}
		for _, list := range containerLists() {
			items := pod.At("spec", list).Items()
			for j := range items {
				if slices.Contains(t.Containers, items[j].Get("name").Text()) {
					all = append(all, "/spec/"+list+"/"+strconv.Itoa(j))
				}
			}
		}
	}
	return all
}

// subtraction is what a pod has of a fragment.
type subtraction struct {
	*candidate
	paths, kept []string
	ownStays    bool // items of lists that are before others stay, in app containers
	inApp       bool
	original    *tree.Node // the pod with its keys in the order of its author, or nil
}

func (s *subtraction) all() {
	s.inApp = true
	elem := s.schema.At("spec").At("containers").Elem
	for i := range s.apps {
		app := &s.apps[i]
		existing := &s.pod.At("spec", app.list).Items()[app.index]
		for j := range app.fragments {
			s.object(existing, &app.fragments[j], elem, "/spec/"+app.list+"/"+strconv.Itoa(app.index))
		}
	}
	s.inApp = false
	s.object(s.pod, &s.fragment, s.schema, "")
}

func (s *subtraction) object(pod, fragment *tree.Node, in *schema.Schema, at string) {
	members := fragment.Members()
	for i := range members {
		name, value := members[i].Name(), &members[i]
		f, there := in.At(name), pod.Get(name)
		at := at + "/" + tree.Escape(name)
		switch {
		case there == nil || there.Kind() != value.Kind():
		case f.Shape == schema.Unit:
			if f.Contains(there, value) {
				s.take(at, s.isBeforeOwn(at, fragment))
			}
		case value.Kind() == tree.Array:
			s.list(there, value, f.Schema, at)
		default:
			s.object(there, value, f.Schema, at)
		}
	}
}

func (s *subtraction) list(pod, fragment *tree.Node, in *schema.Schema, at string) {
	items, theirs := fragment.Items(), pod.Items()
	before, next := false, len(items) // other items of the list, or the fragment's in another order
	for j := range slices.Backward(theirs) {
		at, found := at+"/"+strconv.Itoa(j), false
		for i := range items {
			switch {
			case in.Shape == schema.Set && in.Elem.Contains(&theirs[j], &items[i]) && in.Elem.Contains(&items[i], &theirs[j]):
				found, before, next = true, before || i >= next, i
			case in.Shape != schema.KeyedList || !in.SameKey(&theirs[j], &items[i]):
			case in.Elem.GoType == schema.ContainerType():
				s.object(&theirs[j], new(new(tree.Arena).Without(&items[i], "name")), in.Elem, at)
			case in.Elem.Contains(&theirs[j], &items[i]):
				found, before, next = true, before || i >= next, i
			}
		}
		if found {
			s.take(at, before && s.ownStays && s.inApp)
		}
		before = before || !found
	}
}

// take takes out what is at a path, unless it is the pod's own.
func (s *subtraction) take(at string, own bool) {
	if own {
		s.kept = append(s.kept, at)
	} else {
		s.paths = append(s.paths, at)
	}
}

// isBeforeOwn reports whether a label or annotation is before one of the pod's own,
// for what is added is behind them.
func (s *subtraction) isBeforeOwn(at string, fragment *tree.Node) bool {
	object, ok := strings.CutPrefix(at[:strings.LastIndexByte(at, '/')], "/metadata/")
	if !ok || s.original == nil {
		return false
	}
	name, found := schema.Unescape(at[strings.LastIndexByte(at, '/')+1:]), false
	members := s.original.At("metadata", object).Members()
	for i := range members {
		switch key := members[i].Name(); {
		case key == name:
			found = true
		case found && s.pod.At("metadata", object).Get(key) != nil && fragment.Get(key) == nil:
			return true
		}
	}
	return false
}

// remove takes the paths out of doc, with the parents that it leaves empty, and
// notes them in an order in which each is still right when its turn comes.
func (r *Removal) remove(doc any, paths []string) any {
	slices.SortFunc(paths, func(a, b string) int { return comparePaths(b, a) })
	for _, path := range slices.Compact(paths) {
		for ; path != ""; path = path[:strings.LastIndexByte(path, '/')] {
			r.Paths = append(r.Paths, path)
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

// without is doc without what is at the names, and whether that leaves its parent empty.
func without(doc any, names []string) (after any, empty bool) {
	name := schema.Unescape(names[0])
	switch at := doc.(type) {
	case map[string]any:
		if len(names) > 1 {
			at[name], empty = without(at[name], names[1:])
			return at, empty
		}
		delete(at, name)
		return at, len(at) == 0
	case []any:
		i, err := strconv.Atoi(name)
		if err != nil || i >= len(at) {
			return at, false
		}
		if len(names) > 1 {
			at[i], empty = without(at[i], names[1:])
			return at, empty
		}
		at = slices.Delete(at, i, i+1)
		return at, len(at) == 0
	}
	return doc, false
}

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var doc any
	err := d.Decode(&doc)
	return doc, err
}
