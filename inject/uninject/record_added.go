// SPDX-License-Identifier: Apache-2.0

package uninject

import (
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Usually, Pod infers what templates added to a pod: it is what they would add now. If their expressions read what other templates
// added, that may be something else. Then Record records the path of each addition.

// additionsToRecord returns the paths of everything that was added to a pod, or none if uninject restores the
// original pod without a record of them. Original is the pod before any injection, as JSON.
func additionsToRecord(i *inject.Injector, req inject.Request, original, injected []byte, b Before) ([]string, error) {
	was, err := decodeDocument(original)
	if err != nil {
		return nil, err
	}
	is, err := decodeDocument(injected)
	if err != nil {
		return nil, err
	}
	pod, err := jsontree.Parse(injected)
	if err != nil {
		return nil, err
	}
	req.Object = injected
	if _, left, err := removeInjection(i, req, pod, b); err == nil {
		if again, err := decodeDocument(left); err == nil && reflect.DeepEqual(again, was) {
			return nil, nil
		}
	}
	var all []string
	reportAdded(was, is, "", func(path string) { all = append(all, withContainerName(pod, path)) })
	return all, nil
}

// restoreOriginal returns a pod as it was before earlier injections. These may have been by fewer templates than the Injector has.
func restoreOriginal(i *inject.Injector, req inject.Request, pod *jsontree.Node, b Before) ([]byte, error) {
	if len(b.Added) > 0 {
		return new(Removal).removeRecorded(req.Object, pod, b)
	}
	_, left, err := removeInjection(i, req, pod, b)
	return left, err
}

// reportAdded reports the path of each value that one document has and an earlier one had not.
func reportAdded(was, is any, at string, report func(path string)) {
	switch is := is.(type) {
	case map[string]any:
		was, ok := was.(map[string]any)
		if !ok {
			report(at)
			return
		}
		for _, name := range slices.Sorted(maps.Keys(is)) {
			if before, ok := was[name]; ok {
				reportAdded(before, is[name], at+"/"+jsontree.Escape(name), report)
			} else {
				report(at + "/" + jsontree.Escape(name))
			}
		}
	case []any:
		was, ok := was.([]any)
		if !ok {
			report(at)
			return
		}
		for k, item := range is {
			if path := at + "/" + strconv.Itoa(k); len(was) > 0 && grownFrom(was[0], item) {
				reportAdded(was[0], item, path, report)
				was = was[1:]
			} else {
				report(path)
			}
		}
	default:
		if was != is {
			report(at)
		}
	}
}

// grownFrom reports whether additions alone can turn the value was into the value is.
func grownFrom(was, is any) bool {
	switch was := was.(type) {
	case nil:
		return true
	case map[string]any:
		is, ok := is.(map[string]any)
		for name := range was {
			if value, there := is[name]; !there || !grownFrom(was[name], value) {
				return false
			}
		}
		return ok
	case []any:
		is, ok := is.([]any)
		for _, item := range is {
			if len(was) > 0 && grownFrom(was[0], item) {
				was = was[1:]
			}
		}
		return ok && len(was) == 0
	}
	return was == is
}
