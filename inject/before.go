// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/tree"
)

// Before is what an injected pod does not show of the pod that it was made of. Its
// paths are JSON Pointers with the names of containers in place of their indices:
// injection moves containers.
type Before struct {
	// Empty has how an empty value was written that was filled.
	Empty map[string]string `json:"empty,omitempty"`
	// Own is what the pod had just as a template has it.
	Own []string `json:"own,omitempty"`
}

// beforeOf returns what a pod's annotation says. Without the annotation it is nothing.
func beforeOf(pod *tree.Node) (b Before, err error) {
	said := pod.At("metadata", "annotations", AnnotationUninject)
	if said == nil {
		return b, nil
	}
	if err = json.Unmarshal([]byte(said.Text()), &b); err != nil {
		err = fmt.Errorf("the annotation %s is not as inject writes it; remove it: %w", AnnotationUninject, err)
	}
	return b, err
}

// owns reports whether the pod had what is at a path just as a template has it.
func (b *Before) owns(path string) bool {
	return slices.ContainsFunc(b.Own, func(own string) bool { return within(own, path) })
}

// within reports whether a path is in what is at another one.
func within(other, path string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || rest[0] == '/')
}

// yamlComment is a comment in YAML.
var yamlComment = regexp.MustCompile(`(?m)(^|\s)#.*$`)

// emptyOf is an empty value that is written so.
func emptyOf(text string) any {
	text = yamlComment.ReplaceAllString(text, "")
	switch at := strings.IndexAny(text, "[{"); {
	case at < 0:
		return nil
	case text[at] == '[':
		return []any{}
	}
	return map[string]any{}
}

// empties puts an empty value in the place of what is at the names.
func empties(doc any, names []string, value any) {
	name := schema.Unescape(names[0])
	object, isObject := doc.(map[string]any)
	switch {
	case isObject && len(names) == 1:
		object[name] = value
	case isObject:
		empties(object[name], names[1:], value)
	default:
		if list, ok := doc.([]any); ok && len(names) > 1 {
			if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(list) {
				empties(list[i], names[1:], value)
			}
		}
	}
}

// named returns a path with the name of a container in place of its index.
func named(pod *tree.Node, path string) string {
	return throughContainer(path, func(list, at string) string {
		items := pod.At("spec", list).Items()
		if k, err := strconv.Atoi(at); err == nil && k >= 0 && k < len(items) && items[k].Get("name").Text() != "" {
			return tree.Escape(items[k].Get("name").Text())
		}
		return at
	})
}

// indexed is the inverse of named.
func indexed(pod *tree.Node, path string) string {
	return throughContainer(path, func(list, at string) string {
		items := pod.At("spec", list).Items()
		for k := range items {
			if items[k].Get("name").IsText(schema.Unescape(at)) {
				return strconv.Itoa(k)
			}
		}
		return at
	})
}

// throughContainer replaces what names a container in a path.
func throughContainer(path string, replace func(list, at string) string) string {
	names, lists := strings.Split(path, "/"), containerLists()
	if len(names) > 3 && names[1] == "spec" && slices.Contains(lists[:], names[2]) {
		names[3] = replace(names[2], names[3])
	}
	return strings.Join(names, "/")
}

// withoutBefore takes the annotation out of a pod, which has others if it has this one.
func withoutBefore(pod any) {
	if object, ok := pod.(map[string]any); ok {
		if metadata, ok := object["metadata"].(map[string]any); ok {
			if annotations, ok := metadata["annotations"].(map[string]any); ok {
				delete(annotations, AnnotationUninject)
			}
		}
	}
}
