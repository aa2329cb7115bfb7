// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// maxYAMLNodes bounds what aliases can unfold to (a pod of 3 MiB, the most that
// the API server takes, has fewer values than that).
const maxYAMLNodes = 1 << 20

// maxYAMLDepth bounds how deep they can nest; an alias may stand inside of what
// it stands for.
const maxYAMLDepth = 1000

// Unfold returns a node with the values of its aliases in their place. It returns an
// error, which names the line, if that has more than so many values.
func Unfold(y *yaml.Node, most int) (*yaml.Node, error) {
	u := unfolding{most: most, left: most}
	return u.node(y)
}

type unfolding struct{ most, left, depth int }

func (u *unfolding) node(y *yaml.Node) (*yaml.Node, error) {
	if y.Kind == yaml.AliasNode {
		y = y.Alias
	}
	if u.left--; u.left < 0 {
		return nil, fmt.Errorf("line %d: the aliases unfold to more than %d values", y.Line, u.most)
	}
	if u.depth++; u.depth > maxYAMLDepth {
		return nil, fmt.Errorf("line %d: the values nest deeper than %d levels, or an alias contains itself", y.Line, maxYAMLDepth)
	}
	defer func() { u.depth-- }()
	if len(y.Content) == 0 {
		return y, nil
	}
	unfolded := *y
	unfolded.Content = make([]*yaml.Node, len(y.Content))
	for i, item := range y.Content {
		var err error
		if unfolded.Content[i], err = u.node(item); err != nil {
			return nil, err
		}
	}
	return &unfolded, nil
}

// FromYAML makes the JSON value that a YAML node stands for, in the order of
// the YAML. Aliases and merge keys are unfolded. An error names the line.
func FromYAML(y *yaml.Node) (Node, error) {
	unfolded, err := Unfold(y, maxYAMLNodes)
	if err != nil {
		return Node{}, err
	}
	return fromNode(unfolded)
}

func fromNode(y *yaml.Node) (Node, error) {
	if tag := y.ShortTag(); y.Kind == yaml.MappingNode && tag != "!!map" || y.Kind == yaml.SequenceNode && tag != "!!seq" {
		return Node{}, fmt.Errorf("line %d: the YAML tag %s has no meaning here", y.Line, tag)
	}
	switch y.Kind {
	case yaml.DocumentNode:
		return fromNode(y.Content[0])
	case yaml.SequenceNode:
		n := Items()
		for _, item := range y.Content {
			v, err := fromNode(item)
			if err != nil {
				return Node{}, err
			}
			n.Append(v)
		}
		return n, nil
	case yaml.MappingNode:
		return fromMapping(y)
	}
	return fromScalar(y)
}

func fromMapping(y *yaml.Node) (Node, error) {
	n := Members()
	var merged []Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		value, err := fromNode(y.Content[i+1])
		if err != nil {
			return Node{}, err
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, mergeSources(value)...)
			continue
		}
		if key.Kind != yaml.ScalarNode {
			return Node{}, fmt.Errorf("line %d: a key must be a plain string", key.Line)
		}
		if n.member(key.Value) != nil {
			return Node{}, fmt.Errorf("line %d: the key %q appears twice", key.Line, key.Value)
		}
		n.Set(key.Value, value)
	}
	for _, m := range merged { // what the object says itself wins, then the first source
		if n.member(m.Name()) == nil {
			n.kids = append(n.kids, m)
		}
	}
	return n, nil
}

func mergeSources(value Node) []Node {
	if value.kind != Array {
		return value.kids
	}
	var all []Node
	for i := range value.kids {
		all = append(all, value.kids[i].kids...)
	}
	return all
}

func fromScalar(y *yaml.Node) (Node, error) {
	switch y.ShortTag() {
	case "!!null":
		return Node{kind: Null, text: "null"}, nil
	case "!!bool":
		var b bool
		if err := y.Decode(&b); err != nil {
			return Node{}, fmt.Errorf("line %d: %w", y.Line, err)
		}
		return Bool(b), nil
	case "!!int", "!!float":
		return fromNumber(y)
	case "!!str", "!!timestamp", "!!binary":
		if b, ok := oldBool(y); ok {
			return Bool(b), nil
		}
		return Text(y.Value), nil
	}
	return Node{}, fmt.Errorf("line %d: the YAML tag %s has no meaning here", y.Line, y.Tag)
}

// oldBool reads the booleans of YAML 1.1, as kubectl does.
func oldBool(y *yaml.Node) (value, ok bool) {
	if y.Style != 0 || y.Tag != "!!str" {
		return false, false
	}
	switch y.Value {
	case "y", "Y", "yes", "Yes", "YES", "on", "On", "ON":
		return true, true
	case "n", "N", "no", "No", "NO", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

func fromNumber(y *yaml.Node) (Node, error) {
	if v := jsontext.Value(y.Value); v.IsValid() && v.Kind() == Number {
		return Node{kind: Number, text: y.Value}, nil // keeps 12345678901234567890 and 1.0
	}
	if y.ShortTag() == "!!int" {
		var i int64
		if y.Decode(&i) == nil {
			return Int(i), nil
		}
		var u uint64
		if y.Decode(&u) == nil {
			return Uint(u), nil
		}
	}
	var f float64
	if err := y.Decode(&f); err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return Node{}, fmt.Errorf("line %d: %s is not a JSON number", y.Line, y.Value)
	}
	return Float(f), nil
}

// Float makes a JSON number of a finite f.
func Float(f float64) Node {
	return Node{kind: Number, text: jsontext.Float(f).String()}
}

// WhereYAML says in which line a YAML stream goes wrong, and how; err is what reading it gave. The library may tell
// the line before the one where the object around the error begins, so this is the first line up to which the text
// fails as the whole does.
func WhereYAML(text []byte, err error) (line int, message string) {
	told, message := CutLine(strings.TrimPrefix(err.Error(), "yaml: "))
	ends, end := []int{}, 0
	for line := range bytes.Lines(text) {
		end += len(line)
		ends = append(ends, end)
	}
	first := min(max(told, 1)-1, len(ends))
	found := sort.Search(len(ends)-first, func(i int) bool {
		decoder := yaml.NewDecoder(bytes.NewReader(text[:ends[first+i]]))
		for {
			if e := decoder.Decode(new(yaml.Node)); e != nil {
				return !errors.Is(e, io.EOF) && e.Error() == err.Error()
			}
		}
	})
	if first+found == len(ends) {
		return max(told, 1), message
	}
	return first + found + 1, message
}

// CutLine takes "line N: text" apart, as errors about YAML begin; N is 0 if it is not said.
func CutLine(text string) (line int, after string) {
	rest, ok := strings.CutPrefix(text, "line ")
	if number, after, found := strings.Cut(rest, ": "); ok && found {
		if n, err := strconv.Atoi(number); err == nil {
			return n, after
		}
	}
	return 0, text
}
