// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// FromTree returns the nodes of a JSON value.
func FromTree(value *jsontree.Node) *yaml.Node {
	switch value.Kind() {
	case jsontree.Object:
		node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		members := value.Members()
		for i := range members {
			node.Content = append(node.Content, String(members[i].Name()), FromTree(&members[i]))
		}
		return compactIfEmpty(node)
	case jsontree.Array:
		node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		items := value.Items()
		for i := range items {
			node.Content = append(node.Content, FromTree(&items[i]))
		}
		return compactIfEmpty(node)
	case jsontree.String:
		return String(value.Text())
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value.String()}
}

func compactIfEmpty(node *yaml.Node) *yaml.Node {
	if len(node.Content) == 0 {
		node.Style = yaml.FlowStyle
	}
	return node
}

// String returns the node of a string. It quotes a string that kubectl, which reads YAML 1.1,
// would take for another type: "on", "0777", "1:30". It also quotes a string with invisible
// characters.
func String(s string) *yaml.Node {
	node := &yaml.Node{}
	if err := node.Encode(s); err != nil || node.Kind != yaml.ScalarNode || node.Value != s || strings.HasSuffix(s, "\n\n") || strings.IndexFunc(s, isHidden) >= 0 {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
	}
	return node
}

func isHidden(r rune) bool {
	return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// style is the indentation style of a document.
type style struct {
	indent  int
	compact bool // list items are not indented below their key
	open    bool // the last line has no break
	quote   bool // quotes block scalars, because a line of spaces could continue one
}

// styleOf returns the style that the document shows first, or kubectl's if it shows none.
func styleOf(root *yaml.Node) style {
	indent, offset := 0, 0
	eachMember(root, func(key, value *yaml.Node) {
		switch {
		case len(value.Content) == 0 || value.Style&(yaml.FlowStyle|yaml.TaggedStyle) != 0 || value.Anchor != "":
		case value.Kind == yaml.MappingNode && indent == 0:
			indent = value.Column - key.Column
		case value.Kind == yaml.SequenceNode && offset == 0:
			offset = value.Column - key.Column + 1
		}
	})
	if indent < 2 || indent > 8 {
		indent = 2
	}
	return style{indent: indent, compact: offset <= 1}
}

// eachMember calls do for the members of all objects in order.
func eachMember(node *yaml.Node, do func(key, value *yaml.Node)) {
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 1 {
			do(node.Content[i-1], child)
		}
		eachMember(child, do)
	}
}

// renderBlock renders a value in block style, with line breaks.
func (s style) renderBlock(node *yaml.Node) string {
	quoteBlocks(node, s)
	var out strings.Builder
	s.renderLines(&out, node, "")
	return out.String()
}

// renderLines renders the lines of a value, each after the indentation. It does not use the YAML
// library, whose indentation is wrong for some widths.
func (s style) renderLines(out *strings.Builder, node *yaml.Node, at string) {
	isSequence := node.Kind == yaml.SequenceNode
	if node.Kind == yaml.ScalarNode || node.Style&yaml.FlowStyle != 0 || len(node.Content) == 0 {
		out.WriteString(at + strings.ReplaceAll(strings.TrimSuffix(s.encodeNode(node), "\n"), "\n", "\n"+at) + "\n")
		return
	}
	for i, child := range node.Content {
		var item strings.Builder
		switch {
		case isSequence:
			s.renderLines(&item, child, at+"  ")
			out.WriteString(at + "- " + item.String()[len(at)+2:])
		case i%2 == 0:
			out.WriteString(at + strings.TrimSuffix(s.encodeNode(child), "\n") + ":")
		case child.Kind == yaml.ScalarNode || child.Style&yaml.FlowStyle != 0 || len(child.Content) == 0:
			s.renderLines(&item, child, at)
			out.WriteString(" " + item.String()[len(at):])
		case child.Kind == yaml.SequenceNode && s.compact:
			out.WriteString("\n")
			s.renderLines(out, child, at)
		default:
			out.WriteString("\n")
			s.renderLines(out, child, strings.Repeat(" ", s.indent*(len(at)/s.indent+1)))
		}
	}
}

// encodeNode renders a scalar, or a value in flow style.
func (s style) encodeNode(node *yaml.Node) string {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(s.indent)
	if err := encoder.Encode(node); err != nil {
		panic("yamledit: " + err.Error()) // cannot fail: this package makes the nodes
	}
	return out.String()
}

// renderFlow renders a value in one line.
func renderFlow(node *yaml.Node) string {
	inOneLine(node)
	return strings.TrimSuffix(style{indent: 2}.renderBlock(node), "\n")
}

func inOneLine(node *yaml.Node) {
	switch {
	case node.Kind != yaml.ScalarNode:
		node.Style |= yaml.FlowStyle
	case strings.Contains(node.Value, "\n"):
		node.Style = yaml.DoubleQuotedStyle
	}
	for _, child := range node.Content {
		inOneLine(child)
	}
}

// quoteBlocks turns block scalars into quoted strings if the library renders them wrong, or if
// the source after them would change their meaning.
func quoteBlocks(node *yaml.Node, s style) {
	if node.Kind == yaml.ScalarNode && strings.Contains(node.Value, "\n") {
		plain := strings.TrimSuffix(node.Value, "\n")
		if s.quote || s.open && plain != node.Value || node.Style&yaml.FoldedStyle != 0 || strings.ContainsAny(node.Value, "\r\t\u0085\u2028\u2029") || strings.HasPrefix(plain, " ") || strings.HasPrefix(plain, "\n") ||
			strings.Contains(plain, " \n") || strings.HasSuffix(plain, " ") || strings.HasSuffix(plain, "\n") {
			node.Style = yaml.DoubleQuotedStyle
		}
	}
	for _, child := range node.Content {
		quoteBlocks(child, s)
	}
}

// asJSON renders a value as JSON, in several lines if prefix begins with a line break.
func asJSON(node *yaml.Node, prefix, indent string) string {
	value, err := jsontree.FromYAML(node)
	if err != nil {
		panic("yamledit: " + err.Error()) // cannot fail: this package makes the nodes
	}
	out := jsontext.Value(value.AppendTo(nil))
	if strings.ContainsAny(prefix, "\r\n") {
		if err := out.Indent(jsontext.WithIndentPrefix(strings.TrimLeft(prefix, "\r\n")), jsontext.WithIndent(indent)); err != nil {
			panic("yamledit: " + err.Error())
		}
		return strings.TrimLeft(string(out), " \t")
	}
	return out.String()
}
