// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Change is a value to add to a document, or to remove.
type Change struct {
	Path []string // member names and item indices; - is the end of a list
	// Value is JSON, or nil to remove the existing value. An addition may fill a missing, null
	// or empty value, or insert an item into a list, as in RFC 6902.
	Value []byte

	restores bool
	text     string // the source of an empty value to restore; see [Root.Restore]
}

// Edit applies the changes to the document, one after the other, and returns its new body. All
// other bytes stay unchanged.
func (r *Root) Edit(changes []Change) ([]byte, error) {
	body, _, err := r.EditMarked(changes)
	return body, err
}

// Span is a part of a document, from one offset in bytes up to another one.
type Span struct{ From, To int }

// EditMarked is like Edit and also returns the parts of the new body that are not in the old one.
func (r *Root) EditMarked(changes []Change) ([]byte, []Span, error) {
	root := r.Node
	e := &editor{source: r.indexedSource(), was: map[*yaml.Node][]*yaml.Node{}, texts: map[*yaml.Node]string{}, isJSON: r.offsets != nil}
	if err := e.checkAliases(root, changes); err != nil {
		return nil, nil, err
	}
	e.style = styleOf(root)
	e.style.open = len(r.body) > 0 && breakLength(r.body) == 0
	for line := 1; line <= e.lineCount() && !e.style.quote; line++ {
		e.style.quote = e.isBlank(line) && e.indentOf(line) > 0
	}
	for _, c := range changes {
		if err := e.applyChange(root, c); err != nil {
			return nil, nil, err
		}
	}
	want, err := jsontree.FromYAML(root)
	if err != nil {
		return nil, nil, err
	}
	e.cutDifferences(root.Content[0], e.lineCount()+1)
	e.keepLastScalar(root.Content[0])
	body, marks := e.applyCuts()
	if !matchesJSON(body, want.String()) {
		return nil, nil, errors.New("this document cannot be changed without changing more of it; please report it with the document")
	}
	return body, marks, nil
}

// Empty returns the path of the empty value that an addition at a path fills: null, an empty
// list or an empty object. The second result is its source, from the end of its key, so that
// it can be restored; see [Root.Restore].
func (r *Root) Empty(path []string) (at []string, text string, ok bool) {
	node := r.Content[0]
	for i, name := range path {
		k := childAt(node, name)
		if k < 0 {
			return nil, "", false
		}
		if value := node.Content[k]; node.Kind == yaml.MappingNode && isEmpty(value) {
			return path[:i+1], r.indexedSource().emptyText(node.Content[k-1], value), true
		}
		node = node.Content[k]
	}
	return nil, "", false
}

// Restore returns the change that restores an empty value with the source from [Root.Empty].
func (r *Root) Restore(path []string, text string) Change {
	token := tokenOf(text)
	if r.offsets != nil && strings.Join(strings.Fields(text), "") != ":"+token {
		text = ":" + token // the source was YAML
	}
	return Change{Path: slices.Clone(path), Value: []byte(token), restores: true, text: text}
}

// matchesJSON reports whether the YAML has the same value as the JSON. It verifies an edit by parsing
// the result.
func matchesJSON(body []byte, want string) bool {
	node, err := Document{Body: body}.Parse()
	if err != nil {
		return false
	}
	got, err := jsontree.FromYAML(node.Node)
	return err == nil && got.String() == want
}

// editor first changes the nodes of a document, and then writes the differences into the
// source.
type editor struct {
	*source

	style  style
	isJSON bool
	was    map[*yaml.Node][]*yaml.Node // the original content of changed nodes
	texts  map[*yaml.Node]string       // the source of empty values to restore
	cuts   []cut
}

// markTouched records the content of a node before it changes.
func (e *editor) markTouched(n *yaml.Node) {
	if _, touched := e.was[n]; !touched {
		e.was[n] = slices.Clone(n.Content)
	}
}

func (e *editor) applyChange(root *yaml.Node, c Change) error {
	if c.Value == nil {
		return e.removeValue(root.Content[0], c)
	}
	value, err := jsontree.Parse(c.Value)
	if err != nil {
		return err
	}
	node := FromTree(value)
	if c.restores {
		e.texts[node] = c.text
	}
	return e.addValue(root.Content[0], c.Path, node)
}

// removeValue removes the value at the path.
func (e *editor) removeValue(node *yaml.Node, c Change) error {
	for i, name := range c.Path {
		at := childAt(node, name)
		switch {
		case at < 0:
			return fmt.Errorf("there is no %s to take out", name)
		case i < len(c.Path)-1:
			node = node.Content[at]
		default:
			e.markTouched(node)
			node.Content = slices.Delete(node.Content, at+1-entrySize(node), at+1)
		}
	}
	return nil
}

func (e *editor) originalContent(n *yaml.Node) []*yaml.Node {
	if was, ok := e.was[n]; ok {
		return was
	}
	return n.Content
}

// addValue is the add operation of RFC 6902, but it replaces an existing value only if that is null
// or an empty list.
func (e *editor) addValue(node *yaml.Node, path []string, value *yaml.Node) error {
	for i, name := range path {
		last := i == len(path)-1
		switch node.Kind {
		case yaml.MappingNode:
			switch at := memberAt(node, name); {
			case last && at < 0 && e.isPair(node):
				return fmt.Errorf("line %d: nothing can be added to an object without braces in a list; put braces around it", node.Line)
			case last:
				e.setMember(node, at, name, value)
			case at < 0:
				return fmt.Errorf("there is no %s to add to", name)
			default:
				node = node.Content[at]
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
				e.markTouched(node)
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

// isPair reports whether an object is one pair in a list in flow style, as in [a: b].
func (e *editor) isPair(n *yaml.Node) bool {
	at := e.contentOffset(n)
	return n.Line > 0 && n.Style&yaml.FlowStyle != 0 && at < len(e.data) && e.data[at] != '{'
}

// setMember adds a member at the end, or at the beginning if readers expect it there. It fills
// an existing empty member in its place.
func (e *editor) setMember(node *yaml.Node, at int, name string, value *yaml.Node) {
	if at >= 0 {
		e.markTouched(node)
		node.Content[at] = value
		return
	}
	e.markTouched(node)
	if _, restores := e.texts[value]; restores && e.reinsertMember(node, name, value) {
		return
	}
	at = len(node.Content)
	if name == "metadata" && at > 0 && (node.Style&yaml.FlowStyle != 0 || node.Line == 0 || e.isFirst(e.offsetOf(node.Content[0]))) {
		at = 0
	}
	node.Content = slices.Insert(node.Content, at, String(name), value)
}

// reinsertMember restores a removed member in its old place.
func (e *editor) reinsertMember(node *yaml.Node, name string, value *yaml.Node) bool {
	at := 0
	for was := e.was[node]; len(was) > 1; was = was[2:] {
		if was[0].Value == name {
			node.Content = slices.Insert(node.Content, at, was[0], value)
			return true
		}
		if at < len(node.Content) && node.Content[at] == was[0] {
			at += 2
		}
	}
	return false
}

// Member returns a member of an object, or nil.
func Member(node *yaml.Node, name string) *yaml.Node {
	if at := memberAt(node, name); at >= 0 {
		return node.Content[at]
	}
	return nil
}

// mergeKey returns the key of an object that merges others into it, or nil.
func mergeKey(node *yaml.Node) *yaml.Node {
	for i := 0; i < len(node.Content); i += 2 {
		if node.Content[i].ShortTag() == "!!merge" {
			return node.Content[i]
		}
	}
	return nil
}

// childAt returns the index of the value of a member, or of an item of a list, or -1.
func childAt(node *yaml.Node, name string) int {
	switch node.Kind {
	case yaml.MappingNode:
		return memberAt(node, name)
	case yaml.SequenceNode:
		if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(node.Content) {
			return n
		}
	}
	return -1
}

// entrySize returns the number of nodes of an entry: the key and the value of a member, or an item.
func entrySize(node *yaml.Node) int {
	if node.Kind == yaml.MappingNode {
		return 2
	}
	return 1
}

// memberAt returns the index of a member's value, or -1.
func memberAt(node *yaml.Node, name string) int {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return i + 1
		}
	}
	return -1
}

// checkAliases returns an error if a change goes through an alias, or into the node that an
// alias refers to: the change would appear in other places too.
func (e *editor) checkAliases(root *yaml.Node, changes []Change) error {
	aliased := map[*yaml.Node]bool{}
	findAliased(root, aliased)
	if len(aliased) == 0 {
		return nil
	}
	for _, c := range changes {
		if at := throughAlias(root.Content[0], c.Path, aliased); at != nil {
			return fmt.Errorf("line %d: this part is used in several places by a YAML anchor and aliases, and cannot be changed in one of them alone; "+
				"write it out in each place (yq 'explode(.)' does), or use --output json", max(at.Line, 1))
		}
	}
	return nil
}

func findAliased(node *yaml.Node, aliased map[*yaml.Node]bool) {
	if node.Kind == yaml.AliasNode {
		aliased[node.Alias] = true
	}
	for _, child := range node.Content {
		findAliased(child, aliased)
	}
}

// throughAlias returns the first node of a path that is an alias, is the target of one, or is
// an object with merge keys.
func throughAlias(node *yaml.Node, path []string, aliased map[*yaml.Node]bool) *yaml.Node {
	for depth, name := range path {
		if node.Kind == yaml.AliasNode || aliased[node] {
			return node
		}
		at := childAt(node, name)
		if at < 0 {
			if depth == len(path)-1 || node.Kind != yaml.MappingNode {
				return nil
			}
			return mergeKey(node)
		}
		node = node.Content[at]
	}
	if node.Kind == yaml.AliasNode || aliased[node] {
		return node
	}
	return nil
}

// LineOf returns the line in the document of the last node of a path that exists.
func (d Document) LineOf(path []string) int {
	root, err := d.Parse()
	if err != nil || len(root.Content) == 0 {
		return 1
	}
	node := root.Content[0]
	for _, name := range path {
		at := childAt(node, name)
		if at < 0 {
			break
		}
		if node = node.Content[at]; node.Kind == yaml.AliasNode {
			node = node.Alias
		}
	}
	return node.Line
}
