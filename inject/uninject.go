// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/mattbaird/jsonpatch"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Removal is what makes of an injected pod the one that it was made of.
type Removal struct {
	Pod       Identity
	Templates []string // what was injected, in the order of application
	// Paths are JSON Pointers, to be removed one after another.
	Paths []string

	served bool // the pod came from an API server
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
	r := &Removal{Pod: identify(pod), served: pod.At("spec", "schedulerName") != nil && pod.At("spec", "dnsPolicy") != nil}
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
	if pod, err = tree.Parse(bare); err != nil {
		return nil, err
	}
	req.Scratch = &Scratch{}
	run := i.newRun(&req, pod)
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
		s := &subtraction{candidate: c}
		s.all()
		doc = r.remove(doc, s.paths)
		if bare, err = json.Marshal(doc); err != nil {
			return nil, err
		}
		if run.pod, err = tree.Parse(bare); err != nil {
			return nil, err
		}
		run.lookups = lookups{}
	}
	return r, i.verify(req, bare)
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
	paths []string
}

func (s *subtraction) all() {
	elem := s.schema.at("spec").at("containers").elem
	for i := range s.apps {
		app := &s.apps[i]
		existing := &s.pod.At("spec", app.list).Items()[app.index]
		for j := range app.fragments {
			s.object(existing, &app.fragments[j], elem, "/spec/"+app.list+"/"+strconv.Itoa(app.index))
		}
	}
	s.object(s.pod, &s.fragment, s.schema, "")
}

func (s *subtraction) object(pod, fragment *tree.Node, in *schema, at string) {
	members := fragment.Members()
	for i := range members {
		name, value := members[i].Name(), &members[i]
		f, there := in.at(name), pod.Get(name)
		at := at + "/" + tree.Escape(name)
		switch {
		case there == nil || there.Kind() != value.Kind():
		case f.shape == unit:
			if f.contains(there, value) {
				s.paths = append(s.paths, at)
			}
		case value.Kind() == tree.Array:
			s.list(there, value, f.schema, at)
		default:
			s.object(there, value, f.schema, at)
		}
	}
}

func (s *subtraction) list(pod, fragment *tree.Node, in *schema, at string) {
	items, theirs := fragment.Items(), pod.Items()
	for i := range items {
		for j := range theirs {
			switch at := at + "/" + strconv.Itoa(j); {
			case in.shape == set && in.elem.contains(&theirs[j], &items[i]) && in.elem.contains(&items[i], &theirs[j]):
				s.paths = append(s.paths, at)
			case in.shape != keyedList || !in.sameKey(&theirs[j], &items[i]):
			case in.elem.goType == container():
				s.object(&theirs[j], new(new(tree.Arena).Without(&items[i], "name")), in.elem, at)
			case in.elem.contains(&theirs[j], &items[i]):
				s.paths = append(s.paths, at)
			}
		}
	}
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
	return r.served && (parent == "/spec/securityContext" || strings.HasSuffix(parent, "/resources"))
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
	name := unescape(names[0])
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

// verify injects what is left once more.
func (i *Injector) verify(req Request, bare []byte) error {
	want, err := decode(req.Object)
	if err != nil {
		return err
	}
	req.Object = bare
	r, err := i.Inject(req)
	if err != nil {
		return err
	}
	got, err := apply(bare, r.Ops())
	if err != nil {
		return err
	}
	if reflect.DeepEqual(got, want) {
		return nil
	}
	for k := range r.Decisions {
		if d := &r.Decisions[k]; len(d.failures()) > 0 {
			return fmt.Errorf("without what was injected, %s cannot be injected again: %s", d.Template, d.Message)
		}
	}
	return errors.New("without what was injected and injected again it is another pod: it has been changed since, so take the changes back or edit it by hand")
}

// Apply is the pod with the operations of a [Result] for it done.
func Apply(pod []byte, ops []jsonpatch.JsonPatchOperation) ([]byte, error) {
	doc, err := apply(pod, ops)
	if err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

func apply(pod []byte, ops []jsonpatch.JsonPatchOperation) (any, error) {
	doc, err := decode(pod)
	if err != nil {
		return nil, err
	}
	for _, op := range ops {
		value, err := decode(op.Value.(json.RawMessage))
		if err != nil {
			return nil, err
		}
		doc = with(doc, strings.Split(op.Path, "/")[1:], value)
	}
	return doc, nil
}

// with is doc with an operation's value added at the names.
func with(doc any, names []string, value any) any {
	name := unescape(names[0])
	list, ok := doc.([]any)
	if !ok {
		object, _ := doc.(map[string]any)
		if len(names) > 1 {
			value = with(object[name], names[1:], value)
		}
		object[name] = value
		return object
	}
	i, err := strconv.Atoi(name)
	if err != nil {
		i = len(list) // -
	}
	if len(names) > 1 {
		list[i] = with(list[i], names[1:], value)
		return list
	}
	return slices.Insert(list, i, value)
}

func unescape(name string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(name) }

func decode(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var doc any
	err := d.Decode(&doc)
	return doc, err
}
