// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// Document is a decoded YAML file, for callers that check more of it.
type Document struct {
	file string
	root *yaml.Node
}

// Decode reads a file with one YAML document of a kind into a struct. As in a template, unknown
// keys and wrong types are problems. A field of type json.RawMessage may have any value.
func Decode(file string, data []byte, kind string, into any) (*Document, problem.Problems) {
	c := newParser(file)
	y, wrong := onlyDocument(data)
	if wrong == nil {
		if y, wrong = unfoldAliases(y); wrong == nil && c.checkIdentity(y, kind) == "" {
			return nil, c.Problems()
		}
	}
	if wrong != nil {
		wrong.File = file
		return nil, problem.Problems{*wrong}
	}
	p := c.CheckNode(y, reflect.TypeOf(into), "", "")
	if len(c.Problems()) > 0 {
		return nil, c.Problems()
	}
	if err := json.Unmarshal(p.Static().AppendTo(nil), into); err != nil {
		c.ReportProblem(y, "", "%v", err) // a bug of the checker, which should have found it
	}
	return &Document{file, y}, c.Problems()
}

// onlyDocument returns the root of a YAML stream's only document.
func onlyDocument(data []byte) (*yaml.Node, *problem.Problem) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	err := decoder.Decode(&doc)
	switch {
	case errors.Is(err, io.EOF):
		return nil, &problem.Problem{Message: "the file is empty"}
	case err == nil:
		if err = decoder.Decode(&second); errors.Is(err, io.EOF) {
			return doc.Content[0], nil
		}
		if err == nil {
			return nil, &problem.Problem{Line: second.Line, Message: "the file must contain only one YAML document"}
		}
	}
	line, message := notYAML(data, err)
	return nil, &problem.Problem{Line: line, Message: message}
}

func unfoldAliases(y *yaml.Node) (*yaml.Node, *problem.Problem) {
	y, err := jsontree.Unfold(y, maxNodes)
	if err != nil {
		line, message := jsontree.CutLine(err.Error())
		return nil, &problem.Problem{Line: line, Message: message}
	}
	return y, nil
}

// Problem returns a problem with the value at a path of keys (string) and indexes (int), or with
// the last existing value on the way.
func (d *Document) Problem(message string, path ...any) problem.Problem {
	p := problem.Problem{File: d.file, Line: d.root.Line, Message: message}
	y := d.root
	for _, step := range path {
		switch step := step.(type) {
		case string:
			p.Path = problem.JoinPath(p.Path, step)
			y = yamlnode.Child(y, step)
		case int:
			p.Path += fmt.Sprintf("[%d]", step)
			if all := yamlnode.Items(y); step < len(all) {
				y = all[step]
			} else {
				y = nil
			}
		}
		if y != nil {
			p.Line = y.Line
		}
	}
	return p
}

// checkIdentity returns the kind of the document, or "" and a problem if it is none of these.
func (c *parser) checkIdentity(y *yaml.Node, kinds ...string) (kind string) {
	for _, key := range []struct {
		name    string
		allowed []string
	}{{"apiVersion", []string{APIVersion}}, {"kind", kinds}} {
		found, allowed := yamlnode.Child(y, key.name), strings.Join(key.allowed, " or ")
		switch {
		case found == nil:
			c.ReportProblem(y, key.name, "is missing; it must be %s", allowed)
		case slices.Contains(key.allowed, found.Value):
			kind = found.Value
		case found.Value == TestKind:
			c.ReportProblem(found, key.name, "must be %s, not %q; move tests to a subfolder", allowed, found.Value)
		default:
			c.ReportProblem(found, key.name, "must be %s, not %q%s", allowed, found.Value, problem.DidYouMean(found.Value, key.allowed))
		}
	}
	if len(c.Problems()) > 0 {
		return ""
	}
	return kind
}

// maxNodes limits the number of nodes of a document after its aliases are expanded.
const maxNodes = 100_000
