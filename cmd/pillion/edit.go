// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/tree"
)

// change is one value to put into a document, or to take out where it is nil.
// Like a patch's operation an addition goes in where nothing is, or before or
// behind the items of a list.
type change struct {
	path  []string
	value []byte // JSON
}

func (c change) make(root *yaml.Node) error {
	if c.value == nil {
		return remove(root, c.path)
	}
	value, err := tree.Parse(c.value)
	if err != nil {
		return err
	}
	return add(root, c.path, fromTree(value))
}

// remove takes out what is at the path, with its comments.
func remove(node *yaml.Node, path []string) error {
	for i, name := range path {
		last, at := i == len(path)-1, -1
		switch node.Kind {
		case yaml.MappingNode:
			for j := 0; j+1 < len(node.Content); j += 2 {
				if node.Content[j].Value == name {
					at = j + 1
				}
			}
			if last && at >= 0 {
				node.Content = slices.Delete(node.Content, at-1, at+1)
				return nil
			}
		case yaml.SequenceNode:
			if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(node.Content) {
				at = n
			}
			if last && at >= 0 {
				node.Content = slices.Delete(node.Content, at, at+1)
				return nil
			}
		}
		if at < 0 {
			return fmt.Errorf("there is no %s to take out", name)
		}
		node = node.Content[at]
	}
	return nil
}

// edit makes the changes in the document's nodes and writes them again: with the
// comments, the order, the indentation and the empty lines that were there, as
// far as the library lets it.
func edit(d document, root *yaml.Node, changes []change) (head, body []byte, err error) {
	style := styleOf(root)
	unfold(root)
	for _, c := range changes {
		if err := c.make(root.Content[0]); err != nil {
			return nil, nil, err
		}
	}
	sayNull(root, false)
	want, err := tree.FromYAML(root)
	if err != nil {
		return nil, nil, err
	}
	if head = d.head; len(head) > 0 && head[len(head)-1] != '\n' {
		head = append(head, '\n')
	}
	body, err = style.write(d, root, want.String())
	return head, body, err
}

// write encodes the document. What the library writes is read again before
// anybody relies on it: it makes mistakes with some blocks of text.
func (s style) write(d document, root *yaml.Node, want string) ([]byte, error) {
	for range 2 {
		plain, err := s.encode(root)
		if err != nil {
			return nil, err
		}
		if !d.isFlow() {
			if body := asBefore(d.body, plain); says(body, want) {
				return body, nil
			}
		}
		if says(plain, want) {
			return plain, nil
		}
		quoteBlocks(root)
	}
	return nil, errors.New("this document cannot be written again without changing it; please report it with the document")
}

// quoteBlocks writes blocks of text (| and >) as quoted text.
func quoteBlocks(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		quoteBlocks(child)
	}
}

// says tells whether the YAML means the JSON.
func says(body []byte, want string) bool {
	node, err := document{body: body}.parse()
	if err != nil {
		return false
	}
	got, err := tree.FromYAML(node)
	return err == nil && got.String() == want
}

// style is how a document is indented.
type style struct {
	indent  int
	compact bool // the - of a list's item stands under the first letter of its key
}

// styleOf is the style of the first places in a document that show one, and
// kubectl's where none does.
func styleOf(root *yaml.Node) style {
	indent, offset := 0, 0
	eachMember(root, func(key, value *yaml.Node) {
		switch {
		case len(value.Content) == 0 || value.Style&yaml.FlowStyle != 0:
		case value.Kind == yaml.MappingNode && indent == 0:
			indent = value.Column - key.Column
		case value.Kind == yaml.SequenceNode && offset == 0:
			offset = value.Column - key.Column + 1
		}
	})
	if indent < 2 || indent > 8 {
		indent = 2
	}
	return style{indent, offset <= 1}
}

// eachMember goes through the members of all objects in their order.
func eachMember(node *yaml.Node, do func(key, value *yaml.Node)) {
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 1 {
			do(node.Content[i-1], child)
		}
		eachMember(child, do)
	}
}

func (s style) encode(root *yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(s.indent)
	if s.compact {
		encoder.CompactSeqIndent()
	}
	if err := encoder.Encode(root); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// add is RFC 6902's add. What is there is replaced only where it says nothing:
// null and an empty list.
func add(node *yaml.Node, path []string, value *yaml.Node) error {
	for i, name := range path {
		last := i == len(path)-1
		switch node.Kind {
		case yaml.MappingNode:
			switch member := memberOf(node, name); {
			case last:
				setMember(node, name, value)
			case member == nil:
				return fmt.Errorf("there is no %s to add to", name)
			default:
				node = member
			}
		case yaml.SequenceNode:
			at := len(node.Content)
			if name != "-" {
				n, err := strconv.Atoi(name)
				if err != nil || n < 0 || n > at || n == at && !last {
					return fmt.Errorf("there is no item %s to add to", name)
				}
				at = n
			}
			if last {
				openUp(node)
				node.Content = slices.Insert(node.Content, at, value)
			} else {
				node = node.Content[at]
			}
		default:
			return fmt.Errorf("%s is in something that is neither an object nor a list", name)
		}
	}
	return nil
}

// setMember puts a member at the end, or first where people expect it there. Of
// one that says nothing it keeps the place and the comments.
func setMember(node *yaml.Node, name string, value *yaml.Node) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, old := node.Content[i], node.Content[i+1]
		if key.Value != name {
			continue
		}
		value.HeadComment, value.FootComment = old.HeadComment, old.FootComment
		if old.LineComment != "" {
			key.LineComment = old.LineComment // the value goes on the next line
		}
		node.Content[i+1] = value
		return
	}
	openUp(node)
	at := len(node.Content)
	if name == "metadata" {
		at = 0
	}
	node.Content = slices.Insert(node.Content, at, text(name), value)
}

// openUp writes an object or list over several lines that was empty, as {} or [].
func openUp(node *yaml.Node) {
	if len(node.Content) == 0 {
		node.Style &^= yaml.FlowStyle
	}
}

func memberOf(node *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

// unfold puts a copy in the place of every alias and merge key: what is added
// in one place must not appear in the others. [tree.FromYAML] has bounded it.
func unfold(node *yaml.Node) {
	for i, child := range node.Content {
		for child.Kind == yaml.AliasNode {
			copied := duplicate(child.Alias)
			copied.HeadComment, copied.LineComment, copied.FootComment = child.HeadComment, child.LineComment, child.FootComment
			child, node.Content[i] = copied, copied
		}
		unfold(child)
	}
	node.Anchor = ""
	if node.Kind == yaml.MappingNode {
		merge(node)
	}
}

// sayNull writes out a null that is written as nothing between braces, where the
// library would make an empty text of it.
func sayNull(node *yaml.Node, inFlow bool) {
	inFlow = inFlow || node.Style&yaml.FlowStyle != 0
	for _, child := range node.Content {
		if inFlow && child.Kind == yaml.ScalarNode && child.Value == "" && child.ShortTag() == "!!null" {
			child.Value = "null"
		}
		sayNull(child, inFlow)
	}
}

func duplicate(node *yaml.Node) *yaml.Node {
	copied := *node
	copied.Content = make([]*yaml.Node, len(node.Content))
	for i, child := range node.Content {
		copied.Content[i] = duplicate(child)
	}
	return &copied
}

// merge replaces the merge keys of an unfolded object by what they bring: what
// the object says itself wins, then the first source.
func merge(node *yaml.Node) {
	var own, brought []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.ShortTag() != "!!merge":
			own = append(own, key, value)
		case value.Kind == yaml.SequenceNode:
			for _, source := range value.Content {
				brought = append(brought, source.Content...)
			}
		default:
			brought = append(brought, value.Content...)
		}
	}
	node.Content = own
	for i := 0; i+1 < len(brought); i += 2 {
		if memberOf(node, brought[i].Value) == nil {
			node.Content = append(node.Content, brought[i], brought[i+1])
		}
	}
}
