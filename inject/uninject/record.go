// SPDX-License-Identifier: Apache-2.0

package uninject

import (
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Record returns the value for the annotation [inject.AnnotationUninject] of a pod that is injected, or "" if there is nothing to
// record. The annotation has what [Pod] does not find in the injected pod: for example, values that the original pod had exactly as a
// template has them, which [Pod] would remove otherwise.
//
// The request has the pod before the injection, and result is that of the injection. If an addition at a path fills an empty value,
// the function empty returns the path of that value, and its JSON or YAML. Record returns an error if the pod is not JSON, or has the
// annotation although nothing was injected.
func Record(i *inject.Injector, req inject.Request, result *inject.Result, empty func(path string) (at, text string, ok bool)) (string, error) {
	if !result.Adds() {
		return "", nil
	}
	i = i.For(req.Namespace.Name)
	pod, err := jsontree.Parse(req.Object)
	if err != nil {
		return "", notJSON(err)
	}
	b, err := beforeOf(pod)
	if err != nil {
		return "", err
	}
	already, err := b.annotationValue()
	if err != nil {
		return "", err
	}
	original := req.Object
	switch said := pod.At("metadata", "annotations", inject.AnnotationUninject) != nil; {
	case len(inject.RecordedRevisions(pod)) > 0:
		if original, err = restoreOriginal(i, req, pod, b); err != nil {
			original = nil // unknown
		}
	case said:
		return "", fmt.Errorf("the pod has the annotation %s, which only an injection writes, but nothing was injected; remove the annotation", inject.AnnotationUninject)
	default:
		b.Own = ownPaths(i, req, pod, result)
	}
	for _, op := range result.Ops() {
		if at, text, ok := empty(op.Path); ok {
			if b.Empty == nil {
				b.Empty = map[string]string{}
			}
			b.Empty[withContainerName(pod, at)] = text
		}
	}
	if original != nil {
		b.Added = nil
		if b.Added, err = additionsToRecord(i, req, original, result.InjectedJSON(), b); err != nil {
			return "", err
		}
	}
	text, err := b.annotationValue()
	if text == already {
		return "", err
	}
	return text, err
}

// ownPaths returns the paths at which the original pod has exactly what the injected templates have there. It returns none if one of
// the templates is injected only because of another one, because it cannot be rendered for the original pod. Then [Pod] returns an error.
func ownPaths(i *inject.Injector, req inject.Request, pod *jsontree.Node, result *inject.Result) (own []string) {
	r := &Removal{Served: isFromServer(pod), own: func(path string) bool {
		own = append(own, path)
		return true
	}}
	for k := range result.Decisions {
		if d := &result.Decisions[k]; d.Code == inject.CodeInjected {
			r.Templates = append(r.Templates, d.Template)
		}
	}
	recordedPaths(i, pod, r)
	if _, err := addedBy(i, &req, r, req.Object); err != nil {
		return nil
	}
	slices.Sort(own)
	return slices.CompactFunc(own, isAtOrBelow) // a path covers everything below it
}
