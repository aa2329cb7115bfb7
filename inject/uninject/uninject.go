// SPDX-License-Identifier: Apache-2.0

// Package uninject is the inverse of the engine: it removes from a pod what templates added, and records in manifests what it needs
// to know for that.
package uninject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Pod returns what to remove from a pod whose annotations record injections. It is the inverse of [inject.Injector.Inject]: if the
// remaining pod is injected again, the result is the same pod; otherwise Pod returns an error with the reason. Values that the
// original pod already had exactly as a template has them are removed too, unless the pod's [inject.AnnotationUninject] names them.
func Pod(i *inject.Injector, req inject.Request) (*Removal, error) {
	r, _, err := uninjectPod(i, req)
	return r, err
}

// Original returns a pod without what [Pod] removes.
func Original(i *inject.Injector, req inject.Request) ([]byte, error) {
	_, left, err := uninjectPod(i, req)
	return left, err
}

func uninjectPod(i *inject.Injector, req inject.Request) (*Removal, []byte, error) {
	i = i.For(req.Namespace.Name)
	pod, err := jsontree.Parse(req.Object)
	if err != nil {
		return nil, nil, notJSON(err)
	}
	before, err := beforeOf(pod)
	if err != nil {
		return nil, nil, err
	}
	return removeInjection(i, req, pod, before)
}

// removeInjection implements [Pod] for a parsed pod. Left is the remaining pod as JSON.
func removeInjection(i *inject.Injector, req inject.Request, pod *jsontree.Node, before Before) (r *Removal, left []byte, err error) {
	r = &Removal{Served: isFromServer(pod)}
	if r.Templates, err = injectingTemplates(i, pod); err != nil || len(r.Templates) == 0 {
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
		return inferRemoval(i, req, pod, before, r)
	}
	if left, err = r.removeRecorded(req.Object, pod, before); err == nil {
		err = verifyRemoval(i, req, left)
	}
	return r, left, err
}

// rolloutRecords returns the paths of the pod's annotations that rollouts have written. They are removed, too, but not injected
// again, so they must not be in the pod that verifyRemoval compares with.
func rolloutRecords(pod *jsontree.Node) (paths []string) {
	for _, m := range pod.At("metadata", "annotations").Members() {
		if _, name, ok := templates.SplitAnnotation(m.Name()); ok && name == templates.AnnotationBefore || m.Name() == inject.AnnotationUnproved {
			paths = append(paths, schema.AnnotationPath(m.Name()))
		}
	}
	return paths
}

// inferRemoval completes r with what the templates added, which it infers from what they would add now. It returns the remaining pod,
// and an error if injecting that pod again would not give the same result.
func inferRemoval(i *inject.Injector, req inject.Request, pod *jsontree.Node, before Before, r *Removal) (*Removal, []byte, error) {
	r.own = before.hadOwnValue
	// The containers go first, because expressions may count them.
	doc, err := decodeDocument(req.Object)
	if err != nil {
		return nil, nil, err
	}
	r.filled = before.Empty // except in containers, where nothing is removed yet
	doc = r.removePaths(doc, recordedPaths(i, pod, r))
	bare, err := json.Marshal(doc)
	if err != nil {
		return nil, nil, err
	}
	if err = r.recordEmptied(bare, before); err != nil {
		return nil, nil, err
	}
	added, err := addedBy(i, &req, r, bare)
	if err != nil {
		return nil, nil, err
	}
	// Injection adds items at the end of a list. So an item that equals a template's and precedes other items may be the pod's own. The
	// first attempt removes such items. If that does not restore the pod, the second attempt keeps them.
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
		if err = verifyRemoval(i, req, doc); err == nil {
			return &attempt, doc, nil
		}
		failed = err
	}
	return nil, nil, failed
}

// addedBy returns what the templates of r add to the pod bare. It removes what a template adds from the pod before it renders the next
// one.
func addedBy(i *inject.Injector, req *inject.Request, r *Removal, bare []byte) ([]*inject.Additions, error) {
	pod, err := jsontree.Parse(bare)
	if err != nil {
		return nil, err
	}
	doc, err := decodeDocument(bare)
	if err != nil {
		return nil, err
	}
	rendering := i.NewRendering(req, pod)
	var all []*inject.Additions
	for _, name := range r.Templates {
		added, err := rendering.Render(name)
		if err != nil {
			return nil, fmt.Errorf("%s was injected, but %w", name, err)
		}
		all = append(all, added)
		s := &subtraction{pod: pod, added: added, own: r.own}
		s.subtractAll()
		doc = (&Removal{Served: r.Served, filled: r.filled}).removePaths(doc, s.paths)
		if pod, err = parseAgain(doc); err != nil {
			return nil, err
		}
		rendering.ReplacePod(pod)
	}
	for _, added := range all { // the pod may list volumes of several templates in one annotation
		annotations := added.Fragment.At("metadata", "annotations")
		if there := pod.At("metadata", "annotations", inject.SafeToEvictLocalVolumes); there != nil && annotations.Get(inject.SafeToEvictLocalVolumes) != nil {
			(&subtraction{pod: pod, added: added, own: r.own, joined: joinedBy(all)}).takeJoined(there, annotations, schema.AnnotationPath(inject.SafeToEvictLocalVolumes))
		}
	}
	return all, nil
}

// subtractAdded removes what templates added from the pod bare. It removes the last template's additions first, because
// each template adds after the earlier ones. It returns the remaining pod and the paths that it
// keeps as the pod's own. Original is the pod with its author's order of keys, or nil if an API server has sorted them. OwnStays is that
// of subtraction.
func (r *Removal) subtractAdded(bare []byte, original *jsontree.Node, added []*inject.Additions, ownStays bool) (left []byte, kept []string, err error) {
	doc, err := decodeDocument(bare)
	if err != nil {
		return nil, nil, err
	}
	for _, one := range slices.Backward(added) {
		pod, err := parseAgain(doc)
		if err != nil {
			return nil, nil, err
		}
		s := &subtraction{pod: pod, added: one, own: r.own, ownStays: ownStays, original: original, joined: joinedBy(added)}
		s.subtractAll()
		doc = r.removePaths(doc, s.paths)
		kept = append(kept, s.kept...)
	}
	left, err = json.Marshal(doc)
	return left, kept, err
}

// injectingTemplates returns the names of the templates that injected a pod, as its annotations record
// them. It returns an error if the Injector has no template with that name and revision.
func injectingTemplates(i *inject.Injector, pod *jsontree.Node) ([]string, error) {
	revisions := inject.RecordedRevisions(pod)
	for _, t := range i.Set().Templates {
		_, said := revisions[t.Name]
		if base := i.Base(t.Name); said && base != nil {
			delete(revisions, base.Name) // a canary writes its record for its base, too
		}
	}
	var all []string
	for _, t := range i.Set().Templates {
		revision, ok := revisions[t.Name]
		if !ok {
			continue
		}
		if delete(revisions, t.Name); revision != t.Revision {
			return nil, fmt.Errorf("%s was injected by revision %s of the template, but this is revision %s; use the templates that it was injected with", t.Name, revision, t.Revision)
		}
		all = append(all, t.Name)
	}
	if names := slices.Sorted(maps.Keys(revisions)); len(names) > 0 {
		return nil, fmt.Errorf("%s was injected, but there is no template of that name here; use the templates that it was injected with", names[0])
	}
	return all, nil
}

// recordedPaths returns the paths of the templates' containers and of the records of injections.
func recordedPaths(i *inject.Injector, pod *jsontree.Node, r *Removal) []string {
	var all []string
	if pod.At("metadata", "annotations", inject.AnnotationUninject) != nil {
		all = append(all, schema.AnnotationPath(inject.AnnotationUninject))
	}
	for _, t := range i.Set().Templates {
		if !slices.Contains(r.Templates, t.Name) {
			continue
		}
		for _, m := range pod.At("metadata", "annotations").Members() {
			if i.IsRecord(t.Name, m.Name()) {
				all = append(all, schema.AnnotationPath(m.Name()))
			}
		}
		if pod.At("metadata", "annotations", t.Setting(templates.AnnotationCustomize)).IsText("true") {
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
