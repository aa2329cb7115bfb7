// SPDX-License-Identifier: Apache-2.0

// Package yamledit changes values in YAML and JSON documents and keeps every byte
// that is not part of a change: comments, order, quoting, white space and line
// breaks. A YAML library keeps comments at most: it writes the whole document anew.
package yamledit

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Document is one document of a stream. The stream is the concatenation of all documents.
type Document struct {
	Head []byte // the line that starts it: --- and the rest of this line
	Body []byte
	Tail []byte // the line that ends it: ...
	Line int    // the body's first line in the stream, from 1
}

// Split splits a stream at the lines that start or end a document, and between JSON values. In
// YAML, such a line is a marker everywhere, even in a block scalar.
func Split(data []byte) []Document {
	all := []Document{{Line: 1}}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		d := &all[len(all)-1]
		switch {
		case isMarker(text, "---"):
			if len(d.Head)+len(d.Body) > 0 {
				all = append(all, Document{})
				d = &all[len(all)-1]
			}
			d.Head, d.Body = splitMarker(text)
			d.Line = line
			if len(d.Body) == 0 {
				d.Line++
			}
		case isMarker(text, "..."):
			d.Tail = text
			all = append(all, Document{Line: line + 1})
		default:
			d.Body = append(d.Body, text...)
		}
	}
	var split []Document
	for _, d := range all {
		split = append(split, d.splitJSON()...)
	}
	return split
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// splitMarker moves content after --- to the body.
func splitMarker(line []byte) (head, body []byte) {
	rest := bytes.TrimSpace(line[3:])
	if len(rest) == 0 || rest[0] == '#' {
		return bytes.Clone(line), nil
	}
	return bytes.Clone(line[:3]), bytes.Clone(line[3:])
}

// splitJSON splits objects that follow each other without a marker, as jq writes them. Readers
// of manifests take each for a document.
func (d Document) splitJSON() []Document {
	if !d.isFlow() {
		return []Document{d}
	}
	var all []Document
	rest, line := d.Body, d.Line
	for {
		decoder := jsontext.NewDecoder(bytes.NewReader(rest), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
		if _, err := decoder.ReadValue(); err != nil {
			break
		}
		end := int(decoder.InputOffset())
		if !bytes.HasPrefix(bytes.TrimSpace(rest[end:]), []byte("{")) {
			break
		}
		all = append(all, Document{Body: rest[:end:end], Line: line})
		line += bytes.Count(rest[:end], []byte("\n"))
		rest = rest[end:]
	}
	all = append(all, Document{Body: rest, Tail: d.Tail, Line: line})
	all[0].Head = d.Head
	return all
}

// Empty reports whether the document contains only comments and directives.
func (d Document) Empty() bool {
	for line := range bytes.Lines(d.Body) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte(byteOrderMark)))
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// isFlow reports whether the document is JSON, or YAML in flow style.
func (d Document) isFlow() bool {
	return bytes.HasPrefix(bytes.TrimSpace(bytes.TrimPrefix(d.Body, []byte(byteOrderMark))), []byte("{"))
}

// Root is a parsed document: a document node.
type Root struct {
	*yaml.Node

	body    []byte
	offsets map[*yaml.Node]int // of JSON nodes, which have no columns
	lines   *source            // the body; nil until it is used
}

// indexedSource returns the source of the document.
func (r *Root) indexedSource() *source {
	if r.lines == nil {
		r.lines = newSource(r.body)
		r.lines.json = r.offsets
	}
	return r.lines
}

// Parse parses the document. Its errors begin with "line N: ", counted from the first line of
// the body, like those of [jsontree.FromYAML]. A document that consists of a byte order mark has
// no content.
func (d Document) Parse() (*Root, error) {
	if root := d.parseJSON(); root != nil {
		return root, nil
	}
	if bytes.HasPrefix(d.Body, []byte("\xff\xfe")) || bytes.HasPrefix(d.Body, []byte("\xfe\xff")) {
		return nil, errors.New("line 1: this is UTF-16; convert it to UTF-8, for example with iconv -f UTF-16 -t UTF-8")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(d.Body))
	node := &yaml.Node{Kind: yaml.DocumentNode}
	err := decoder.Decode(node)
	if errors.Is(err, io.EOF) {
		return &Root{Node: node, body: d.Body}, nil
	}
	if err == nil {
		if err = decoder.Decode(&yaml.Node{}); errors.Is(err, io.EOF) {
			return &Root{Node: node, body: d.Body}, nil
		}
		if err == nil {
			err = errors.New("there is a second document; put a line --- before it")
		}
	}
	line, text := jsontree.WhereYAML(d.Body, err)
	return nil, fmt.Errorf("line %d: %s", line, text)
}

// parseJSON parses the document as JSON, because some JSON is not valid YAML: for example, a
// character above U+FFFF as two escapes, or an unescaped DEL. It returns nil if the document is
// not JSON.
func (d Document) parseJSON() *Root {
	if !d.isFlow() {
		return nil
	}
	if _, err := jsontree.Parse(d.Body); err != nil {
		return nil
	}
	p := jsonParser{jsontext.NewDecoder(bytes.NewReader(d.Body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)), d.Body, map[*yaml.Node]int{}, 0, 1}
	value, err := p.parseValue()
	if err != nil {
		return nil
	}
	return &Root{Node: &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{value}}, body: d.Body, offsets: p.at}
}

type jsonParser struct {
	*jsontext.Decoder

	data []byte
	at   map[*yaml.Node]int
	seen int // the number of bytes in which line breaks were counted
	line int
}

func (p *jsonParser) parseValue() (*yaml.Node, error) {
	kind := p.PeekKind()
	before := int(p.InputOffset())
	begin := before + bytes.IndexFunc(p.data[before:], func(r rune) bool { return r > ' ' && r != ',' && r != ':' })
	p.line += bytes.Count(p.data[p.seen:max(begin, p.seen)], []byte("\n"))
	p.seen = begin
	line := p.line
	token, err := p.ReadToken()
	if err != nil {
		return nil, err
	}
	var node *yaml.Node
	switch kind {
	case '{', '[':
		node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Style: yaml.FlowStyle}
		if kind == '[' {
			node.Kind, node.Tag = yaml.SequenceNode, "!!seq"
		}
		for p.PeekKind() != '}' && p.PeekKind() != ']' {
			child, err := p.parseValue()
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, child)
		}
		if _, err := p.ReadToken(); err != nil {
			return nil, err
		}
	case '"':
		node = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: token.String(), Style: yaml.DoubleQuotedStyle}
	default:
		node = &yaml.Node{Kind: yaml.ScalarNode, Value: token.String()}
	}
	p.at[node], node.Line = begin, line
	return node, nil
}

// Locate adds the file and the line in the file to an error of the document.
func (d Document) Locate(file string, err error) error {
	line, text := jsontree.CutLine(err.Error())
	return fmt.Errorf("%s:%d: %s", file, d.Line+max(line, 1)-1, text)
}
