// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Removal is what to remove from an injected pod to get the original one.
type Removal struct {
	Pod       Identity
	Templates []string // injected templates, in the order of application
	// Paths are JSON Pointers, to be removed one after another.
	Paths []string
	// Kept are places that equal a template's but that stay, because they precede other items of
	// the pod's own.
	Kept []string
	// Served reports whether the pod comes from an API server, which sets defaults and sorts keys.
	Served bool
	// Empty are the values that were empty before injection. Their paths are correct after the
	// removal of Paths.
	Empty []Empty

	own    func(path string) bool // whether the original pod had the same value as a template
	filled map[string]string      // Empty by path
}

// Empty is a value that was empty in the original pod, with its JSON.
type Empty struct{ Path, Text string }

// Uninject is the inverse of [Injector.Inject]. It returns what to remove from a pod whose
// annotations record injections. If the remaining pod is injected again, the result is the same
// pod; otherwise Uninject returns an error with the reason. Values that the original pod already
// had exactly as a template has them are removed too, unless the pod's [AnnotationUninject] names
// them.
func (i *Injector) Uninject(req Request) (*Removal, error) {
	r, _, err := i.uninjectPod(req)
	return r, err
}

// Original returns a pod without what [Injector.Uninject] removes.
func (i *Injector) Original(req Request) ([]byte, error) {
	_, left, err := i.uninjectPod(req)
	return left, err
}

func (i *Injector) uninjectPod(req Request) (*Removal, []byte, error) {
	i = i.For(req.Namespace.Name)
	pod, err := jsontree.Parse(req.Object)
	if err != nil {
		return nil, nil, notJSON(err)
	}
	before, err := beforeOf(pod)
	if err != nil {
		return nil, nil, err
	}
	return i.removeInjection(req, pod, before)
}

// removeInjection implements [Injector.Uninject] for a parsed pod. Left is the remaining pod as JSON.
func (i *Injector) removeInjection(req Request, pod *jsontree.Node, before Before) (r *Removal, left []byte, err error) {
	r = &Removal{Pod: identifyPod(pod), Served: isFromServer(pod)}
	if r.Templates, err = i.injectedBy(pod); err != nil || len(r.Templates) == 0 {
		return r, req.Object, err
	}
	if records := rolloutRecords(pod); len(records) > 0 {
		doc, err := decodeDocument(req.Object)
		if err != nil {
			return nil, nil, err
		}
		if req.Object, err = json.Marshal(r.removePaths(doc, records)); err != nil {
			return nil, nil, err
		}
		if pod, err = jsontree.Parse(req.Object); err != nil {
			return nil, nil, err
		}
	}
	if len(before.Added) == 0 {
		return i.inferRemoval(req, pod, before, r)
	}
	if left, err = r.removeRecorded(req.Object, pod, before); err == nil {
		err = i.verifyRemoval(req, left)
	}
	return r, left, err
}

// rolloutRecords returns the paths of the pod's annotations that rollouts have written. They are removed, too, but not injected
// again, so they must not be in the pod that verifyRemoval compares with.
func rolloutRecords(pod *jsontree.Node) (paths []string) {
	for _, m := range pod.At("metadata", "annotations").Members() {
		if _, name, ok := templates.SplitAnnotation(m.Name()); ok && name == templates.AnnotationBefore || m.Name() == AnnotationUnproved {
			paths = append(paths, schema.AnnotationPath(m.Name()))
		}
	}
	return paths
}

// inferRemoval completes r with what the templates added, which it infers from what they would add now. It returns the remaining pod,
// and an error if injecting that pod again would not give the same result.
func (i *Injector) inferRemoval(req Request, pod *jsontree.Node, before Before, r *Removal) (*Removal, []byte, error) {
	r.own = before.hadOwnValue
	// The containers go first, because expressions may count them.
	doc, err := decodeDocument(req.Object)
	if err != nil {
		return nil, nil, err
	}
	r.filled = before.Empty // except in containers, where nothing is removed yet
	doc = r.removePaths(doc, i.recordedPaths(pod, r))
	bare, err := json.Marshal(doc)
	if err != nil {
		return nil, nil, err
	}
	if err = r.recordEmptied(bare, before); err != nil {
		return nil, nil, err
	}
	added, err := i.addedBy(&req, r, bare)
	if err != nil {
		return nil, nil, err
	}
	// Injection adds items at the end of a list. So an item that equals a template's and precedes other items may be the pod's own.
	// The first attempt removes such items, and the second one keeps them.
	var failed error
	for _, ownStays := range []bool{false, true} {
		attempt := *r
		original := pod
		if attempt.Served {
			original = nil
		}
		doc, kept, err := attempt.subtractAdded(bare, original, added, ownStays)
		if err != nil {
			return nil, nil, err
		}
		attempt.Kept = kept
		if err = i.verifyRemoval(req, doc); err == nil {
			return &attempt, doc, nil
		}
		failed = err
	}
	return nil, nil, failed
}

// recordEmptied records which values of the original pod were empty. Bare is the pod without the templates' containers, because the
// paths are those in it.
func (r *Removal) recordEmptied(bare []byte, before Before) error {
	pod, err := jsontree.Parse(bare)
	if err != nil {
		return err
	}
	r.filled = map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(before.Empty)) {
		at := withContainerIndex(pod, path)
		r.Empty, r.filled[at] = append(r.Empty, Empty{at, before.Empty[path]}), before.Empty[path]
	}
	return nil
}

// addedBy returns the templates of r with what they add to the pod bare. It removes what a template adds from the pod before it renders
// the next one.
func (i *Injector) addedBy(req *Request, r *Removal, bare []byte) ([]*candidate, error) {
	pod, err := jsontree.Parse(bare)
	if err != nil {
		return nil, err
	}
	doc, err := decodeDocument(bare)
	if err != nil {
		return nil, err
	}
	round := i.newRound(req, pod)
	var all []*candidate
	for _, t := range i.templates {
		if !slices.Contains(r.Templates, t.Name) {
			continue
		}
		c := &candidate{subject: &round.subject, t: t, input: round.input, decision: &Decision{}}
		if code, message := c.renderFragment(i.rules); code != "" {
			return nil, fmt.Errorf("%s was injected, but would not be injected now (%s: %s), so its additions are unknown", t.Name, code, message)
		}
		if err := round.owners.renderApps(c); err != nil {
			return nil, fmt.Errorf("%s was injected, but its additions cannot be computed now: %w", t.Name, err)
		}
		all = append(all, c)
		s := &subtraction{candidate: c, own: r.own}
		s.subtractAll()
		doc = (&Removal{Served: r.Served, filled: r.filled}).removePaths(doc, s.paths)
		if pod, err = parseAgain(doc); err != nil {
			return nil, err
		}
		round.subject.replacePod(pod)
		round.owners.users = [2][]appContainer{}
	}
	for _, c := range all { // the pod may list volumes of several templates in one annotation
		annotations := c.fragment.At("metadata", "annotations")
		if there := pod.At("metadata", "annotations", SafeToEvictLocalVolumes); there != nil && annotations.Get(SafeToEvictLocalVolumes) != nil {
			(&subtraction{candidate: c, own: r.own, joined: joinedBy(all)}).takeJoined(there, annotations, schema.AnnotationPath(SafeToEvictLocalVolumes))
		}
	}
	return all, nil
}

// subtractAdded removes what templates added from the pod bare. It removes the last template's additions first, because
// each template adds after the earlier ones. It returns the remaining pod and the paths that it
// keeps as the pod's own. Original is the pod with its author's order of keys, or nil if an API server has sorted them. OwnStays is that
// of subtraction.
func (r *Removal) subtractAdded(bare []byte, original *jsontree.Node, added []*candidate, ownStays bool) (left []byte, kept []string, err error) {
	doc, err := decodeDocument(bare)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range slices.Backward(added) {
		if c.subject.pod, err = parseAgain(doc); err != nil {
			return nil, nil, err
		}
		s := &subtraction{candidate: c, own: r.own, ownStays: ownStays, original: original, joined: joinedBy(added)}
		s.subtractAll()
		doc = r.removePaths(doc, s.paths)
		kept = append(kept, s.kept...)
	}
	left, err = json.Marshal(doc)
	return left, kept, err
}

// injectedBy returns the names of the templates that injected a pod, as its annotations record
// them. It returns an error if the Injector has no template with that name and revision.
func (i *Injector) injectedBy(pod *jsontree.Node) ([]string, error) {
	said := injectedRevisions(pod)
	for _, t := range i.templates {
		if _, ok := said[t.Name]; ok && t.base != nil {
			delete(said, t.base.Name) // a canary writes its record for its base, too
		}
	}
	var all []string
	for _, t := range i.set.Templates {
		revision, ok := said[t.Name]
		if !ok {
			continue
		}
		if delete(said, t.Name); revision != t.Revision {
			return nil, fmt.Errorf("%s was injected by revision %s of the template, but this is revision %s; use the templates that it was injected with", t.Name, revision, t.Revision)
		}
		all = append(all, t.Name)
	}
	if names := slices.Sorted(maps.Keys(said)); len(names) > 0 {
		return nil, fmt.Errorf("%s was injected, but there is no template of that name here; use the templates that it was injected with", names[0])
	}
	return all, nil
}

// recordedPaths returns the paths of the templates' containers and of the records of injections.
func (i *Injector) recordedPaths(pod *jsontree.Node, r *Removal) []string {
	var all []string
	if pod.At("metadata", "annotations", AnnotationUninject) != nil {
		all = append(all, schema.AnnotationPath(AnnotationUninject))
	}
	for _, t := range i.templates {
		if !slices.Contains(r.Templates, t.Name) {
			continue
		}
		for _, m := range pod.At("metadata", "annotations").Members() {
			if t.isRecord(m.Name()) {
				all = append(all, schema.AnnotationPath(m.Name()))
			}
		}
		if pod.At("metadata", "annotations", t.customize).IsText("true") {
			continue // the user's container; subtract removes what was added to it
		}
		for _, list := range schema.ContainerLists() {
			items := pod.At("spec", list).Items()
			for j := range items {
				at := "/spec/" + list + "/" + strconv.Itoa(j)
				if t.Brings(items[j].Get("name").Text()) && !r.own(withContainerName(pod, at)) {
					all = append(all, at)
				}
			}
		}
	}
	return all
}

// removePaths removes the values at the paths from doc, together with parents that become empty, and returns doc. It appends the
// removed paths to r.Paths in an order in which each path is still correct when it is removed.
func (r *Removal) removePaths(doc any, paths []string) any {
	slices.SortFunc(paths, func(a, b string) int { return comparePaths(b, a) })
	for _, path := range slices.Compact(paths) {
		for ; path != ""; path = path[:strings.LastIndexByte(path, '/')] {
			r.Paths = append(r.Paths, path)
			if text, filled := r.filled[path]; filled {
				setMember(doc, path, emptyOf(text))
				break
			}
			var empty bool
			if doc, empty = removeValue(doc, path); !empty || r.keepsEmptyParent(path) {
				break
			}
			r.Paths = r.Paths[:len(r.Paths)-1] // remove the parent instead
		}
	}
	return doc
}

// keepsEmptyParent reports whether the parent of a path stays even if it is empty, because an API server
// writes this object into every pod.
func (r *Removal) keepsEmptyParent(path string) bool {
	parent := path[:strings.LastIndexByte(path, '/')]
	return r.Served && (parent == "/spec/securityContext" || strings.HasSuffix(parent, "/resources"))
}

// comparePaths orders pointers, with list indexes as numbers.
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
