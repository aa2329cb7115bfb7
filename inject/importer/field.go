// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// The limits of a document after its aliases are expanded: the number of fields, and the bytes of all their paths.
const (
	maxFields = 100_000
	maxPaths  = 32 << 20
)

// field is a node of the input: a field of an object, an item of a list, or the value itself if it is a scalar.
type field struct {
	// name is the key in the object, or "" for an item of a list.
	name     string
	line     int
	kind     yaml.Kind
	node     *yaml.Node // of a scalar: the value
	parent   *field
	children []*field
	// path is where the field is in its object.
	path string
	// read is true if a template expresses the field, or a finding names it. Only fields without children have it.
	read bool
	// embedded is true if the value is a document in a string.
	embedded bool
	// out is what the field became.
	out *yaml.Node
	// expression is set if the value is a CEL expression.
	expression string
	// fieldPath is set if the value is a field of the pod that only the downward API has.
	fieldPath string
	// impossible is set if no template can express the value. It is the reason.
	impossible string
	// when is a CEL expression that must be true for the field to exist, or "".
	when string
	// before is set for a list whose items come before those of the pod.
	before bool
	// loop is set for a container that stands for several containers of the pod.
	loop *loop
}

// loop selects containers of the pod.
type loop struct {
	where          string // a condition of container, or "" for all
	initContainers bool
}

// listName returns the name of the list with the containers.
func (l *loop) listName() string {
	if l.initContainers {
		return "initContainers"
	}
	return "containers"
}

// parseStream returns the documents of a YAML stream.
func parseStream(file string, data []byte) ([]*field, problem.Problems) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var all []*field
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil && (doc.Kind == 0 || doc.Content[0].Tag == "!!null") {
			continue
		}
		var root *field
		if err == nil {
			root, err = newField(doc.Content[0])
		}
		if err != nil {
			line, message := jsontree.CutLine(strings.TrimPrefix(err.Error(), "yaml: "))
			return all, problem.Problems{{File: file, Line: line, Message: "not YAML: " + message}}
		}
		all = append(all, root)
	}
}

// newField returns the tree of a node, with its aliases and merge keys expanded.
func newField(n *yaml.Node) (*field, error) {
	b := &treeBuilder{}
	root := b.buildField(n, nil, "", "")
	return root, b.err
}

// treeBuilder builds a tree of fields.
type treeBuilder struct {
	count int
	paths int          // in bytes
	open  []*yaml.Node // aliases whose targets are being built
	err   error
}

func (b *treeBuilder) buildField(n *yaml.Node, parent *field, name, path string) *field {
	f := &field{name: name, line: n.Line, kind: n.Kind, node: n, parent: parent, path: path}
	if b.count++; b.count > maxFields && b.err == nil {
		b.err = fmt.Errorf("line %d: the document has more than %d fields", n.Line, maxFields)
	}
	if b.paths += len(path); b.paths > maxPaths && b.err == nil {
		b.err = fmt.Errorf("line %d: the fields of the document are nested too deeply, or have too long names", n.Line)
	}
	if b.err != nil {
		return f
	}
	switch n.Kind {
	case yaml.AliasNode:
		if slices.Contains(b.open, n.Alias) {
			b.err = fmt.Errorf("line %d: the alias %q contains itself", n.Line, n.Value)
			return f
		}
		b.open = append(b.open, n.Alias)
		f = b.buildField(n.Alias, parent, name, path)
		b.open = b.open[:len(b.open)-1]
		f.line = n.Line
	case yaml.MappingNode:
		b.addMembers(f, n)
	case yaml.SequenceNode:
		for i, item := range n.Content {
			f.children = append(f.children, b.buildField(item, f, "", fmt.Sprintf("%s[%d]", path, i)))
		}
	}
	return f
}

// addMembers adds the fields of an object, and then those of its merge keys that it lacks.
func (b *treeBuilder) addMembers(f *field, n *yaml.Node) {
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if (key.Kind != yaml.ScalarNode || key.Value == "") && b.err == nil {
			b.err = fmt.Errorf("line %d: the name of a field is not a string", n.Content[i].Line)
		}
		if key.Tag == "!!merge" {
			merged = append(merged, value)
			continue
		}
		child := b.buildField(value, f, key.Value, joinPath(f.path, key.Value))
		child.line = n.Content[i].Line
		f.children = append(f.children, child)
	}
	for len(merged) > 0 && b.err == nil {
		value := merged[0]
		merged = merged[1:]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if value.Kind == yaml.SequenceNode {
			merged = append(slices.Clone(value.Content), merged...)
			continue
		}
		other := b.buildField(value, nil, "", f.path)
		for _, child := range other.children {
			if f.get(child.name) == nil {
				child.parent = f
				f.children = append(f.children, child)
			}
		}
	}
}

// inside separates the path of a string from the path in the document that it contains.
const inside = ": "

// joinPath returns the path of a field of an object.
func joinPath(path, name string) string {
	if outer, ok := strings.CutSuffix(path, inside); ok {
		return outer + inside + problem.JoinPath("", name)
	}
	return problem.JoinPath(path, name)
}

// get returns the field at a path of names, or nil.
func (f *field) get(names ...string) *field {
	for _, name := range names {
		if f == nil || f.kind != yaml.MappingNode {
			return nil
		}
		i := slices.IndexFunc(f.children, func(c *field) bool { return c.name == name })
		if i < 0 {
			return nil
		}
		f = f.children[i]
	}
	return f
}

// findAll returns those of the named fields that exist.
func (f *field) findAll(names ...string) (found []*field) {
	for _, name := range names {
		if child := f.get(name); child != nil {
			found = append(found, child)
		}
	}
	return found
}

// otherThan returns the first field with another name, or nil.
func (f *field) otherThan(names ...string) *field {
	i := slices.IndexFunc(f.members(), func(m *field) bool { return !slices.Contains(names, m.name) })
	if i < 0 {
		return nil
	}
	return f.children[i]
}

// items returns the items of a list. It returns nil if f is no list.
func (f *field) items() []*field {
	if f == nil || f.kind != yaml.SequenceNode {
		return nil
	}
	return f.children
}

// members returns the fields of an object.
func (f *field) members() []*field {
	if f == nil || f.kind != yaml.MappingNode {
		return nil
	}
	return f.children
}

// peekText returns the scalar at a path of names, or "". It does not count as read.
func (f *field) peekText(names ...string) string {
	if f = f.get(names...); f == nil || f.kind != yaml.ScalarNode || f.node.Tag == "!!null" {
		return ""
	}
	return f.node.Value
}

// readText returns the scalar at a path of names, or "", and counts it as read.
func (f *field) readText(names ...string) string {
	value := f.peekText(names...)
	f.markScalar(names...)
	return value
}

// markScalar counts a scalar as read. Something else in its place stays unread.
func (f *field) markScalar(names ...string) {
	if at := f.get(names...); at != nil && at.kind == yaml.ScalarNode {
		at.read = true
	}
}

// markAll counts everything in a field as read.
func (f *field) markAll() {
	if f == nil {
		return
	}
	f.read = true
	for _, child := range f.children {
		child.markAll()
	}
}

// isRead reports whether everything in a field is read.
func (f *field) isRead() bool {
	if len(f.children) == 0 {
		return f.read
	}
	return !slices.ContainsFunc(f.children, func(c *field) bool { return !c.isRead() })
}

// isUnread reports whether nothing in a field is read.
func (f *field) isUnread() bool {
	if len(f.children) == 0 {
		return !f.read
	}
	return !f.read && !slices.ContainsFunc(f.children, func(c *field) bool { return !c.isUnread() })
}

// isText reports whether a field is a string.
func (f *field) isText() bool {
	return f != nil && f.kind == yaml.ScalarNode && f.node.Tag == "!!str"
}

// asRoot makes a field the root of an object: paths inside it begin there.
func (f *field) asRoot() {
	f.parent = nil
	f.rebasePaths(f.path, "")
}

func (f *field) rebasePaths(old, now string) {
	f.path = strings.TrimPrefix(now+strings.TrimPrefix(f.path, old), ".")
	for _, child := range f.children {
		child.rebasePaths(old, now)
	}
}

// parseEmbedded parses the value of a string as a document, whose fields become those of f. It returns an error, with the
// line in the file, if the value is not YAML.
func (f *field) parseEmbedded(text string) (*field, error) {
	first := f.firstLine()
	doc, err := parseDocument(text)
	if err != nil {
		line, message := jsontree.CutLine(strings.TrimPrefix(err.Error(), "yaml: "))
		return nil, fmt.Errorf("line %d: not YAML: %s", first+max(line, 1)-1, message)
	}
	if doc.Kind == 0 {
		return nil, fmt.Errorf("line %d: the document is empty", f.line)
	}
	root, err := newField(doc.Content[0])
	if err != nil {
		return nil, err
	}
	root.rebasePaths("", f.path+inside)
	root.moveLines(first-1, f.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0)
	root.parent = f
	f.children, f.read, f.embedded = []*field{root}, true, true
	return root, nil
}

// parseDocument parses a string that is one document of YAML.
func parseDocument(text string) (doc yaml.Node, err error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	if err := decoder.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return doc, err
	}
	var more yaml.Node
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) && (err != nil || more.Content[0].Tag != "!!null") {
		return doc, fmt.Errorf("line %d: there are several documents; put each one into a file or a value of its own", more.Line)
	}
	return doc, nil
}

// firstLine returns the line of the first line of a string.
func (f *field) firstLine() int {
	if f.node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return f.line + 1
	}
	return f.line
}

// moveLines moves a tree down. In a quoted string, all lines are that of the string.
func (f *field) moveLines(by int, one bool) {
	if one {
		f.line = by + 1
	} else {
		f.line += by
	}
	for _, child := range f.children {
		child.moveLines(by, one)
	}
}

// maxWas limits a value in a finding, in bytes.
const maxWas = 200

// valueInOneLine returns the value of a field as YAML in one line.
func (f *field) valueInOneLine() string {
	if f.embedded {
		return "a document in a string"
	}
	if f.isText() {
		return problem.Cut(problem.OneLine(strings.TrimRight(f.node.Value, "\n")), maxWas)
	}
	n := f.plainNode()
	n.Style |= yaml.FlowStyle
	text, err := yaml.Marshal(n)
	if err != nil {
		return problem.Cut(problem.OneLine(f.node.Value), maxWas)
	}
	return problem.Cut(problem.OneLine(strings.TrimRight(string(text), "\n")), maxWas)
}

// plainNode returns the value of a field without comments, aliases and anchors.
func (f *field) plainNode() *yaml.Node {
	if f.kind == yaml.ScalarNode {
		return &yaml.Node{Kind: f.kind, Tag: f.node.Tag, Value: f.node.Value, Style: f.node.Style &^ yaml.FlowStyle}
	}
	n := &yaml.Node{Kind: f.kind}
	for _, child := range f.children {
		if f.kind == yaml.MappingNode {
			n.Content = append(n.Content, textNode(child.name))
		}
		n.Content = append(n.Content, child.plainNode())
	}
	return n
}

// pathIn returns the path of a field inside another one.
func pathIn(outer, f *field) string {
	return strings.TrimPrefix(strings.TrimPrefix(f.path, outer.path), ".")
}

// isInside reports whether a field is another one, or a part of it.
func (f *field) isInside(outer *field) bool {
	for at := f; at != nil; at = at.parent {
		if at == outer {
			return true
		}
	}
	return false
}

// markAs counts a field with an expression as read.
func (f *field) markAs(expression string) {
	if f != nil && f.expression == expression {
		f.read = true
	}
}

// markEmpty counts a list or an object without content as read. A scalar in its place stays unread.
func (f *field) markEmpty() {
	if f != nil && len(f.children) == 0 && (f.kind != yaml.ScalarNode || isNull(f)) {
		f.read = true
	}
}

func isNull(f *field) bool { return f.kind == yaml.ScalarNode && f.node.Tag == "!!null" }

// withoutChildren returns a list or an object without some of its children.
func (f *field) withoutChildren(drop func(*field) bool) *field {
	if f == nil || f.kind == yaml.ScalarNode {
		return f
	}
	kept := *f
	kept.children = slices.DeleteFunc(slices.Clone(f.children), drop)
	f.markEmpty()
	return &kept
}

func isContainerList(f *field) bool {
	return f != nil && (f.name == "containers" || f.name == "initContainers")
}

func (f *field) isMetadata() bool { return f.name == "annotations" || f.name == "labels" }
