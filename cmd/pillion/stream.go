// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/tree"
)

// document is one document of a YAML stream, by its bytes: the bytes of all
// documents, one after the other, are the stream.
type document struct {
	head []byte // the line that begins it: --- and what may stand beside it
	body []byte
	tail []byte // the line that ends it: ...
	line int    // of the body, from 1
}

// split takes a stream apart at the lines that begin or end a document. YAML
// allows such a line nowhere else, not even in a block of text.
func split(data []byte) []document {
	all := []document{{line: 1}}
	line := 0
	for text := range bytes.Lines(data) {
		line++
		d := &all[len(all)-1]
		switch {
		case isMarker(text, "---"):
			if len(d.head)+len(d.body) > 0 {
				all = append(all, document{})
				d = &all[len(all)-1]
			}
			d.head, d.body = splitMarker(text)
			d.line = line
			if len(d.body) == 0 {
				d.line++
			}
		case isMarker(text, "..."):
			d.tail = text
			all = append(all, document{line: line + 1})
		default:
			d.body = append(d.body, text...)
		}
	}
	return all
}

func isMarker(line []byte, marker string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(marker))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}

// splitMarker leaves content on the line of a --- to the body.
func splitMarker(line []byte) (head, body []byte) {
	rest := bytes.TrimSpace(line[3:])
	if len(rest) == 0 || rest[0] == '#' {
		return bytes.Clone(line), nil
	}
	return bytes.Clone(line[:3]), bytes.Clone(line[3:])
}

// empty says whether there is nothing but comments and directives.
func (d document) empty() bool {
	for line := range bytes.Lines(d.body) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\uFEFF")))
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return false
		}
	}
	return true
}

// isFlow says whether the document is JSON, or YAML that is written like it.
func (d document) isFlow() bool { return bytes.HasPrefix(bytes.TrimSpace(d.body), []byte("{")) }

// withLF is the document with line ends that the library keeps: it makes a mixture
// of others.
func (d document) withLF() document {
	if !bytes.Contains(d.body, []byte("\r\r")) { // two line ends
		d.body = bytes.ReplaceAll(d.body, []byte("\r\n"), []byte("\n"))
		d.head = bytes.ReplaceAll(d.head, []byte("\r\n"), []byte("\n"))
	}
	return d
}

// rewritten has another head and body, with the line ends of most of its lines.
func (d document) rewritten(head, body []byte) document {
	crlf := 2*bytes.Count(d.body, []byte("\r\n")) > bytes.Count(d.body, []byte("\n")) && !bytes.Contains(d.body, []byte("\r\r"))
	d.head, d.body = head, body
	if crlf {
		d.body = bytes.ReplaceAll(d.body, []byte("\n"), []byte("\r\n"))
		d.head = bytes.ReplaceAll(d.head, []byte("\n"), []byte("\r\n"))
	}
	return d
}

// parse reads the document. Its errors begin with "line N: ", counted from the
// body's first, as those of [tree.FromYAML] do.
//
// JSON is read as what it is: not all of it is YAML, whatever they say (a
// character above U+FFFF may be written as two escapes, and DEL as itself). It
// is then written as YAML that people can read.
func (d document) parse() (*yaml.Node, error) {
	if d.isFlow() {
		if value, err := tree.Parse(d.body); err == nil {
			return &yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{fromTree(value)}}, nil
		}
	}
	var node yaml.Node
	err := yaml.Unmarshal(d.body, &node)
	if err == nil {
		return &node, nil
	}
	line, text := tree.WhereYAML(d.body, err)
	return nil, fmt.Errorf("line %d: %s", line, text)
}

// locate says where in which file an error of the document is.
func (d document) locate(file string, err error) error {
	line, text := tree.CutLine(err.Error())
	return fmt.Errorf("%s:%d: %s", file, d.line+max(line, 1)-1, text)
}
