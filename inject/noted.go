// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Before returns what to write into the annotation [AnnotationUninject] of a pod into
// which something is injected, or "". Empty finds the empty value that an addition at
// a path fills, and how it is written. After a second injection nothing tells any
// more what the pod had just as a template has it.
func (i *Injector) Before(req Request, result *Result, empty func(path string) (at, text string, ok bool)) (string, error) {
	if !result.Adds() {
		return "", nil
	}
	pod, err := tree.Parse(req.Object)
	if err != nil {
		return "", notJSON(err)
	}
	b, err := beforeOf(pod)
	if err != nil {
		return "", err
	}
	was := len(b.Empty) + len(b.Own)
	switch said := pod.At("metadata", "annotations", AnnotationUninject) != nil; {
	case len(revisions(pod)) > 0:
	case said:
		return "", fmt.Errorf("nothing has been injected into this pod, but it has the annotation %s, which only inject writes; remove it", AnnotationUninject)
	default:
		b.Own = i.own(req, pod, result)
	}
	for _, op := range result.Ops() {
		if at, text, ok := empty(op.Path); ok {
			if b.Empty == nil {
				b.Empty = map[string]string{}
			}
			b.Empty[named(pod, at)] = text
		}
	}
	if len(b.Empty)+len(b.Own) == was {
		return "", nil
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err = encoder.Encode(b)
	return strings.TrimSuffix(text.String(), "\n"), err
}

// own returns what a pod has just as the templates have it that are injected into it.
// It is nothing if one of them is injected only because of another: uninject says so.
func (i *Injector) own(req Request, pod *tree.Node, result *Result) (own []string) {
	r := &Removal{Served: served(pod), own: func(path string) bool {
		own = append(own, path)
		return true
	}}
	for k := range result.Decisions {
		if d := &result.Decisions[k]; d.Code == CodeInjected {
			r.Templates = append(r.Templates, d.Template)
		}
	}
	i.recorded(pod, r)
	if _, err := i.addedBy(&req, r, req.Object); err != nil {
		return nil
	}
	slices.Sort(own)
	return slices.CompactFunc(own, within) // what is in a container that is the pod's own need not be named
}
