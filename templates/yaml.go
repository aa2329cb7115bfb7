// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"iter"

	"go.yaml.in/yaml/v3"
)

// members returns the keys and values of a mapping.
func members(y *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; y != nil && y.Kind == yaml.MappingNode && i+1 < len(y.Content); i += 2 {
			if !yield(y.Content[i], y.Content[i+1]) {
				return
			}
		}
	}
}

// child returns a mapping's value, or nil.
func child(y *yaml.Node, name string) *yaml.Node {
	for key, value := range members(y) {
		if key.Value == name {
			return value
		}
	}
	return nil
}

// at returns the value at that path, or the last existing value on the way, so that a problem
// always has a line.
func at(y *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		next := child(y, key)
		if next == nil {
			return y
		}
		y = next
	}
	return y
}

// items returns the items of a sequence.
func items(y *yaml.Node) []*yaml.Node {
	if y == nil || y.Kind != yaml.SequenceNode {
		return nil
	}
	return y.Content
}
