// SPDX-License-Identifier: Apache-2.0

// Package yamlnode looks up values in a YAML document that keeps the lines of its values.
package yamlnode

import (
	"iter"

	"go.yaml.in/yaml/v3"
)

// Members returns the keys and values of a mapping. It returns none for other nodes.
func Members(y *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; y != nil && y.Kind == yaml.MappingNode && i+1 < len(y.Content); i += 2 {
			if !yield(y.Content[i], y.Content[i+1]) {
				return
			}
		}
	}
}

// Child returns the value of a mapping's key, or nil if there is none, or if the node is no mapping.
func Child(y *yaml.Node, name string) *yaml.Node {
	for key, value := range Members(y) {
		if key.Value == name {
			return value
		}
	}
	return nil
}

// At returns the value at that path, or the last existing value on the way, so that a problem
// always has a line.
func At(y *yaml.Node, path ...string) *yaml.Node {
	for _, key := range path {
		next := Child(y, key)
		if next == nil {
			return y
		}
		y = next
	}
	return y
}

// Items returns the items of a sequence. It returns none for other nodes.
func Items(y *yaml.Node) []*yaml.Node {
	if y == nil || y.Kind != yaml.SequenceNode {
		return nil
	}
	return y.Content
}
