// SPDX-License-Identifier: Apache-2.0

package uninject

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Before is what the injected pod does not show about the original one. Its paths are JSON Pointers into the pod, with the names of
// containers instead of their indexes, because injection changes the indexes.
type Before struct {
	// Empty has the original JSON or YAML of each empty value that was filled, by path.
	Empty map[string]string `json:"empty,omitempty"`
	// Own has the paths of values that the original pod had exactly as a template has them.
	Own []string `json:"own,omitempty"`
	// Added has the paths of everything that was added, if that cannot be inferred from the templates.
	Added []string `json:"added,omitempty"`
}

// annotationValue returns the value of the annotation, or "" if there is nothing to record.
func (b *Before) annotationValue() (string, error) {
	if len(b.Empty)+len(b.Own)+len(b.Added) == 0 {
		return "", nil
	}
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(b)
	return strings.TrimSuffix(text.String(), "\n"), err
}

// beforeOf parses the pod's annotation. It returns a zero Before if there is none.
func beforeOf(pod *jsontree.Node) (b Before, err error) {
	said := pod.At("metadata", "annotations", inject.AnnotationUninject)
	if said == nil {
		return b, nil
	}
	if err = json.Unmarshal([]byte(said.Text()), &b); err != nil {
		err = fmt.Errorf("the annotation %s is not as inject writes it; remove it: %w", inject.AnnotationUninject, err)
	}
	return b, err
}

// hadOwnValue reports whether the original pod had the value at a path exactly as a template has it.
func (b *Before) hadOwnValue(path string) bool {
	return slices.ContainsFunc(b.Own, func(own string) bool { return isAtOrBelow(own, path) })
}

// isAtOrBelow reports whether a path is equal to another one or below it.
func isAtOrBelow(other, path string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || rest[0] == '/')
}

// yamlComment matches a comment in YAML.
var yamlComment = regexp.MustCompile(`(?m)(^|\s)#.*$`)

// emptyOf parses an empty value in JSON or YAML, with comments: a list, an object or null.
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

// withContainerName replaces the index of a container in a path with its name.
func withContainerName(pod *jsontree.Node, path string) string {
	return throughContainer(path, func(list, at string) string {
		items := pod.At("spec", list).Items()
		if k, err := strconv.Atoi(at); err == nil && k >= 0 && k < len(items) && items[k].Get("name").Text() != "" {
			return jsontree.Escape(items[k].Get("name").Text())
		}
		return at
	})
}

// withContainerIndex is the inverse of withContainerName.
func withContainerIndex(pod *jsontree.Node, path string) string {
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

// throughContainer returns a path in which replace has changed the name or the index of the container, if the path leads through one.
func throughContainer(path string, replace func(list, at string) string) string {
	names, lists := strings.Split(path, "/"), schema.ContainerLists()
	if len(names) > 3 && names[1] == "spec" && slices.Contains(lists[:], names[2]) {
		names[3] = replace(names[2], names[3])
	}
	return strings.Join(names, "/")
}
