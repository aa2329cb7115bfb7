// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"iter"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlMembers returns the keys and values of a mapping.
func yamlMembers(y *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; y != nil && y.Kind == yaml.MappingNode && i+1 < len(y.Content); i += 2 {
			if !yield(y.Content[i], y.Content[i+1]) {
				return
			}
		}
	}
}

// yamlChild returns a mapping's value, or nil.
func yamlChild(y *yaml.Node, name string) *yaml.Node {
	for key, value := range yamlMembers(y) {
		if key.Value == name {
			return value
		}
	}
	return nil
}

// yamlAt returns the value at that path, or the last existing value on the way, so that a problem
// always has a line.
func yamlAt(y *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		next := yamlChild(y, key)
		if next == nil {
			return y
		}
		y = next
	}
	return y
}

// yamlItems returns the items of a sequence.
func yamlItems(y *yaml.Node) []*yaml.Node {
	if y == nil || y.Kind != yaml.SequenceNode {
		return nil
	}
	return y.Content
}

// countExpressions returns the number of ${...} in a node and below it.
func countExpressions(y *yaml.Node) (n int) {
	for _, item := range y.Content {
		n += countExpressions(item)
	}
	return n + strings.Count(y.Value, "${")
}
