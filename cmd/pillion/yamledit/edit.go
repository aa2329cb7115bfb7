// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Change is one value to put into a document, or to take out.
type Change struct {
	Path []string // names of members and indices of items; - is the end of a list
	// Value is JSON, or nil to take out what is there. An addition goes where nothing,
	// null or an empty list is, or between the items of a list, as in RFC 6902.
	Value []byte
}

// Edit makes the changes in the document, one after the other, and returns its new
// body. All other bytes stay as they are.
func (r *Root) Edit(changes []Change) ([]byte, error) {
	root := r.Node
	e := &editor{source: newSource(r.body), was: map[*yaml.Node][]*yaml.Node{}, isJSON: r.offsets != nil}
	e.json = r.offsets
	e.style = styleOf(root)
	e.style.open = len(r.body) > 0 && breakLength(r.body) == 0
	for line := 1; line <= e.lines() && !e.style.quote; line++ {
		e.style.quote = e.isBlank(line) && e.indent(line) > 0
	}
	e.unfoldTouched(root, changes)
	for _, c := range changes {
		if err := e.make(root, c); err != nil {
			return nil, err
		}
	}
	want, err := tree.FromYAML(root)
	if err != nil {
		return nil, err
	}
	e.walk(root.Content[0], e.lines()+1)
	e.keepLastScalar(root.Content[0])
	body := e.splice()
	if !says(body, want.String()) {
		return nil, errors.New("this document cannot be changed without changing more of it; please report it with the document")
	}
	return body, nil
}

// says reports whether the YAML means the JSON. The text is read again before
// anybody relies on it.
func says(body []byte, want string) bool {
	node, err := Document{Body: body}.Parse()
	if err != nil {
		return false
	}
	got, err := tree.FromYAML(node.Node)
	return err == nil && got.String() == want
}

// editor makes changes in a document's nodes first, and then writes the difference
// into the text.
type editor struct {
	*source

	style  style
	isJSON bool
	was    map[*yaml.Node][]*yaml.Node // the content of nodes before they were changed
	cuts   []cut
}

// content of a node is about to change.
func (e *editor) touch(n *yaml.Node) {
	if _, touched := e.was[n]; !touched {
		e.was[n] = slices.Clone(n.Content)
	}
}

func (e *editor) make(root *yaml.Node, c Change) error {
	if c.Value == nil {
		return e.remove(root.Content[0], c)
	}
	value, err := tree.Parse(c.Value)
	if err != nil {
		return err
	}
	return e.add(root.Content[0], c.Path, FromTree(value))
}

// remove takes out what is at the path.
func (e *editor) remove(node *yaml.Node, c Change) error {
	var holder *yaml.Node // of node, as a member
	holderAt := 0
	for i, name := range c.Path {
		last, at, size := i == len(c.Path)-1, -1, 1
		switch node.Kind {
		case yaml.MappingNode:
			at, size = memberAt(node, name), 2
		case yaml.SequenceNode:
			if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(node.Content) {
				at = n
			}
		}
		if at < 0 {
			return fmt.Errorf("there is no %s to take out", name)
		}
		if !last {
			holder, holderAt = node, at
			node = node.Content[at]
			continue
		}
		e.touch(node)
		if size == 2 {
			if was := e.filled(node, at); was != "" {
				node.Content[at] = emptyValue(was)
				return nil
			}
		}
		node.Content = slices.Delete(node.Content, at+1-size, at+1)
		if len(node.Content) == 0 && holder != nil && holder.Kind == yaml.MappingNode {
			if was := e.filled(holder, holderAt); was != "" {
				e.touch(holder)
				holder.Content[holderAt] = emptyValue(was)
			}
		}
	}
	return nil
}

// A comment on the line of a member that meant nothing and was filled has what was
// there, so that it can be put back.
var filledComment = regexp.MustCompile(`# was (\[ *\]|\{ *\}|null|Null|NULL|~|empty)`)

// filled returns what was in the place of a member before it was filled, or "".
func (e *editor) filled(object *yaml.Node, at int) string {
	key := object.Content[at-1]
	if object.Style&yaml.FlowStyle != 0 || key.Line == 0 {
		return ""
	}
	if found := filledComment.FindSubmatch(e.line(key.Line)); found != nil {
		return string(found[1])
	}
	return ""
}

// emptyValue makes the node of an empty value that is written so.
func emptyValue(text string) *yaml.Node {
	switch text[0] {
	case '[':
		return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
	case '{':
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}
}

func (e *editor) original(n *yaml.Node) []*yaml.Node {
	if was, ok := e.was[n]; ok {
		return was
	}
	return n.Content
}

// add is RFC 6902's add. What is there is replaced only if it means nothing: null
// and an empty list.
func (e *editor) add(node *yaml.Node, path []string, value *yaml.Node) error {
	for i, name := range path {
		last := i == len(path)-1
		switch node.Kind {
		case yaml.MappingNode:
			switch at := memberAt(node, name); {
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
				e.touch(node)
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

// setMember puts a member at the end, or first if that is what readers expect. An
// existing one that means nothing is filled in its place.
func (e *editor) setMember(node *yaml.Node, at int, name string, value *yaml.Node) {
	if at >= 0 {
		e.touch(node)
		node.Content[at] = value
		return
	}
	e.touch(node)
	at = len(node.Content)
	if name == "metadata" && at > 0 && (node.Style&yaml.FlowStyle != 0 || node.Line == 0 || e.isFirst(e.offset(node.Content[0]))) {
		at = 0
	}
	node.Content = slices.Insert(node.Content, at, String(name), value)
}

// Member returns a member of an object, or nil.
func Member(node *yaml.Node, name string) *yaml.Node {
	if at := memberAt(node, name); at >= 0 {
		return node.Content[at]
	}
	return nil
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

// unfoldTouched puts copies in the places of all aliases if a change goes through
// one, or into what one stands for: what is added in one place must not appear in
// the others. [tree.FromYAML] has bounded the size.
func (e *editor) unfoldTouched(root *yaml.Node, changes []Change) {
	aliased := map[*yaml.Node]bool{}
	findAliased(root, aliased)
	if len(aliased) == 0 {
		return
	}
	for _, c := range changes {
		if throughAlias(root.Content[0], c.Path, aliased) {
			e.unfold(root)
			return
		}
	}
}

func findAliased(node *yaml.Node, aliased map[*yaml.Node]bool) {
	if node.Kind == yaml.AliasNode {
		aliased[node.Alias] = true
	}
	for _, child := range node.Content {
		findAliased(child, aliased)
	}
}

// throughAlias reports whether a path leads through an alias, an object with merge
// keys, or what an alias stands for.
func throughAlias(node *yaml.Node, path []string, aliased map[*yaml.Node]bool) bool {
	for _, name := range path {
		if node.Kind == yaml.AliasNode || aliased[node] {
			return true
		}
		next := (*yaml.Node)(nil)
		switch node.Kind {
		case yaml.MappingNode:
			next = Member(node, name)
			for i := 0; i < len(node.Content); i += 2 {
				if node.Content[i].ShortTag() == "!!merge" && next == nil {
					return true
				}
			}
		case yaml.SequenceNode:
			if n, err := strconv.Atoi(name); err == nil && n >= 0 && n < len(node.Content) {
				next = node.Content[n]
			}
		}
		if node = next; node == nil {
			return false
		}
	}
	return node.Kind == yaml.AliasNode || aliased[node]
}

func (e *editor) unfold(node *yaml.Node) {
	for i, child := range node.Content {
		if child.Kind == yaml.AliasNode {
			e.touch(node)
			for child.Kind == yaml.AliasNode {
				child = duplicate(child.Alias)
			}
			node.Content[i] = child
		}
		e.unfold(child)
	}
	if node.Kind == yaml.MappingNode {
		e.merge(node)
	}
}

// duplicate copies a node. A copy has no place in the text.
func duplicate(node *yaml.Node) *yaml.Node {
	copied := &yaml.Node{Kind: node.Kind, Style: node.Style, Tag: node.Tag, Value: node.Value, Alias: node.Alias}
	if node.Kind == yaml.ScalarNode && node.Value == "" && node.ShortTag() == "!!null" {
		copied.Value = "null" // of nothing the library would make an empty string
	}
	for _, child := range node.Content {
		copied.Content = append(copied.Content, duplicate(child))
	}
	return copied
}

// merge replaces the merge keys of an unfolded object by what they bring: what
// the object has itself wins, then the first source.
func (e *editor) merge(node *yaml.Node) {
	var own, brought []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case key.ShortTag() != "!!merge":
			own = append(own, key, value)
		case value.Kind == yaml.SequenceNode:
			for _, source := range value.Content {
				brought = append(brought, duplicate(source).Content...)
			}
		default:
			brought = append(brought, duplicate(value).Content...)
		}
	}
	if len(own) == len(node.Content) {
		return
	}
	e.touch(node)
	node.Content = own
	for i := 0; i+1 < len(brought); i += 2 {
		if memberAt(node, brought[i].Value) < 0 {
			node.Content = append(node.Content, brought[i], brought[i+1])
		}
	}
}
