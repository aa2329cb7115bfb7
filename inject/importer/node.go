// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mapNode returns an object of names and values in turn.
func mapNode(members ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i+1 < len(members); i += 2 {
		setMember(n, members[i].(string), members[i+1].(*yaml.Node))
	}
	return n
}

// setMember sets a field of an object. A value of nil sets nothing.
func setMember(n *yaml.Node, name string, value *yaml.Node) {
	if value == nil {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content[i+1] = value
			return
		}
	}
	n.Content = append(n.Content, textNode(name), value)
}

// memberOf returns a field of an object, or nil.
func memberOf(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// ensureObject returns the object at a path of names, which is made if it does not exist.
func ensureObject(n *yaml.Node, names ...string) *yaml.Node {
	for _, name := range names {
		next := memberOf(n, name)
		if next == nil {
			next = mapNode()
			setMember(n, name, next)
		}
		n = next
	}
	return n
}

// appendItems appends to the list of a field of an object.
func appendItems(n *yaml.Node, name string, items ...*yaml.Node) {
	items = slices.DeleteFunc(slices.Clone(items), func(item *yaml.Node) bool { return item == nil })
	if len(items) == 0 {
		return
	}
	list := memberOf(n, name)
	if list == nil {
		list = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		setMember(n, name, list)
	}
	list.Content = append(list.Content, items...)
}

// valueOf returns the string of a field of an object, or "".
func valueOf(n *yaml.Node, name string) string {
	if v := memberOf(n, name); v != nil && v.Kind == yaml.ScalarNode {
		return v.Value
	}
	return ""
}

// textNode returns a string, in quotes if a reader of YAML could take it for something else.
func textNode(text string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(text)
	plain, err := yaml.Marshal(text)
	switch {
	case err != nil || n.Style != 0:
	case bytes.HasPrefix(plain, []byte(`"`)), bytes.HasPrefix(plain, []byte("'")) && strings.Contains(text, "'") && !strings.ContainsAny(text, `"\\`):
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func literalNode(tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
}

// listNode returns a list, or nil if it has no items.
func listNode(items ...*yaml.Node) *yaml.Node {
	if len(items) == 0 {
		return nil
	}
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: slices.Clone(items)}
}

// textList returns a list of strings in one line, or nil if it has no items.
func textList(texts ...string) *yaml.Node {
	var items []*yaml.Node
	for _, text := range texts {
		items = append(items, textNode(text))
	}
	n := listNode(items...)
	if n != nil {
		n.Style = yaml.FlowStyle
	}
	return n
}

func nilIfEmpty(n *yaml.Node) *yaml.Node {
	if n == nil || len(n.Content) == 0 {
		return nil
	}
	return n
}

// textWidth is the width of folded strings, with their indentation.
const textWidth = 100

// expressionNode returns an expression, which is folded if it is long.
func expressionNode(text string) *yaml.Node {
	n := textNode(text)
	if len(text) > textWidth-20 && text == strings.Join(strings.Fields(text), " ") {
		n.Style = yaml.FoldedStyle
	}
	return n
}

func itemsOf(n *yaml.Node) []*yaml.Node {
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil
	}
	return slices.Clone(n.Content)
}

func removeMember(n *yaml.Node, name string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}

// dropEmpty removes a list or an object without content from an object.
func dropEmpty(n *yaml.Node, name string) {
	if value := memberOf(n, name); value != nil && value.Kind != yaml.ScalarNode && len(value.Content) == 0 {
		removeMember(n, name)
	}
}

func hasItem(container *yaml.Node, list, name string) bool {
	return slices.ContainsFunc(itemsOf(memberOf(container, list)), func(n *yaml.Node) bool { return valueOf(n, "name") == name })
}
