// SPDX-License-Identifier: Apache-2.0

package uninject

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Removal is what to remove from an injected pod to get the original one.
type Removal struct {
	Templates []string // injected templates, in the order of application
	// Paths are JSON Pointers, to be removed one after another.
	Paths []string
	// Kept are places at which the pod has the value of a template, and that stay nevertheless: their position shows that the pod
	// had them before.
	Kept []string
	// Served reports whether the pod comes from an API server, which sets defaults and sorts keys.
	Served bool
	// Empty are the values that were empty before the injection. Their paths are those in the pod from which Paths have been removed.
	Empty []Empty

	own    func(path string) bool // whether the original pod had the same value as a template
	filled map[string]string      // Empty by path
}

// Empty is a value that was empty in the original pod, with its JSON.
type Empty struct{ Path, Text string }

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

// recordEmptied records which values of the original pod were empty, with their paths in bare, the pod without the templates'
// containers. The indexes of containers in bare are those in the original pod.
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

// removeRecorded removes the recorded additions from a pod, and returns the remaining pod as JSON. It records the paths in r.
func (r *Removal) removeRecorded(object []byte, pod *jsontree.Node, before Before) ([]byte, error) {
	doc, err := decodeDocument(object)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, path := range before.Added {
		paths = append(paths, withContainerIndex(pod, path))
	}
	if at := schema.AnnotationPath(inject.AnnotationUninject); pod.At("metadata", "annotations", inject.AnnotationUninject) != nil {
		paths = append(paths, at)
	}
	slices.SortFunc(paths, comparePaths)
	paths = slices.Compact(paths)
	filled := map[string]any{}
	for path, text := range before.Empty {
		at := withContainerIndex(pod, path)
		if at == path {
			at = pathInInjected(path, paths)
		}
		filled[at] = emptyOf(text)
	}
	for _, path := range slices.Backward(paths) {
		if at, ok := enclosingPath(path, filled); !ok {
			r.Paths = append(r.Paths, path)
			doc, _ = removeValue(doc, path)
		} else if !slices.Contains(r.Paths, at) {
			r.Paths = append(r.Paths, at)
			setMember(doc, at, filled[at])
		}
	}
	left, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	return left, r.recordEmptied(left, before)
}

// enclosingPath returns the path that contains another one, if there is one.
func enclosingPath(path string, all map[string]any) (string, bool) {
	for at := path; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		if _, ok := all[at]; ok {
			return at, true
		}
	}
	return "", false
}

// pathInInjected converts a path of the original pod to the path of the same value in the injected pod, for a container without
// a name. Added has the sorted paths of what was added.
func pathInInjected(path string, added []string) string {
	return throughContainer(path, func(list, at string) string {
		k, err := strconv.Atoi(at)
		if err != nil {
			return at
		}
		for _, one := range added {
			if item, ok := strings.CutPrefix(one, "/spec/"+list+"/"); ok {
				if i, err := strconv.Atoi(item); err == nil && i <= k {
					k++
				}
			}
		}
		return strconv.Itoa(k)
	})
}
