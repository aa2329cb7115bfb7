// SPDX-License-Identifier: Apache-2.0

package templates

import "go.yaml.in/yaml/v3"

// child returns a mapping's value, or nil.
func child(y *yaml.Node, key string) *yaml.Node {
	if y == nil || y.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(y.Content); i += 2 {
		if y.Content[i].Value == key {
			return y.Content[i+1]
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
