// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// maxYAMLNodes limits the number of values after aliases are unfolded. The API server accepts
// pods of up to 3 MiB, which have fewer values.
const maxYAMLNodes = 1 << 20

// maxYAMLDepth limits the depth of aliases. An alias may refer to a node that contains it.
const maxYAMLDepth = 1000

// Unfold returns a node in which aliases are replaced by their values, and merge keys (<<) by the
// keys that they add. It returns an error with the line if the result has more than the given number
// of values.
func Unfold(y *yaml.Node, most int) (*yaml.Node, error) {
	u := unfolding{most: most, left: most}
	return u.unfoldNode(y)
}

type unfolding struct{ most, left, depth int }

func (u *unfolding) unfoldNode(y *yaml.Node) (*yaml.Node, error) {
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
		if unfolded.Content[i], err = u.unfoldNode(item); err != nil {
			return nil, err
		}
	}
	if unfolded.Kind == yaml.MappingNode {
		return &unfolded, expandMergeKeys(&unfolded)
	}
	return &unfolded, nil
}

// expandMergeKeys replaces the merge keys of an object by what they add. The object's own keys win, then those
// of the first source.
func expandMergeKeys(y *yaml.Node) error {
	isMerge := func(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge" }
	if !slices.ContainsFunc(y.Content, isMerge) { // inspects values too, which does no harm
		return nil
	}
	there := map[string]bool{}
	for i := 0; i < len(y.Content); i += 2 {
		if key := y.Content[i]; !isMerge(key) {
			there[key.Value] = true
		}
	}
	var all []*yaml.Node
	for i := 0; i+1 < len(y.Content); i += 2 {
		key, value := y.Content[i], y.Content[i+1]
		if !isMerge(key) {
			all = append(all, key, value)
			continue
		}
		sources := []*yaml.Node{value}
		if value.Kind == yaml.SequenceNode {
			sources = value.Content
		}
		for _, source := range sources {
			if source.Kind != yaml.MappingNode {
				return fmt.Errorf("line %d: the value of the merge key << must be an object or a list of objects", source.Line)
			}
			for j := 0; j+1 < len(source.Content); j += 2 {
				if key := source.Content[j]; !there[key.Value] {
					all, there[key.Value] = append(all, key, source.Content[j+1]), true
				}
			}
		}
	}
	y.Content = all
	return nil
}

// FromYAML converts a YAML node to JSON, in the same order. It unfolds aliases and merge keys.
// Errors contain the line.
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
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		value, err := fromNode(y.Content[i+1])
		if err != nil {
			return Node{}, err
		}
		if key.Kind != yaml.ScalarNode {
			return Node{}, fmt.Errorf("line %d: a key must be a plain string", key.Line)
		}
		if n.findMember(key.Value) != nil {
			return Node{}, fmt.Errorf("line %d: the key %q appears twice", key.Line, key.Value)
		}
		n.Set(key.Value, value)
	}
	return n, nil
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

// oldBool parses the booleans of YAML 1.1, as kubectl does.
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
		return Node{kind: Number, text: y.Value}, nil // keeps the digits of 12345678901234567890 and 1.0
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

// Float returns a JSON number. f must be finite.
func Float(f float64) Node {
	return Node{kind: Number, text: jsontext.Float(f).String()}
}

// CutLine splits an error about YAML that starts with "line N: ". N is 0 if there is no line.
func CutLine(text string) (line int, after string) {
	rest, ok := strings.CutPrefix(text, "line ")
	if number, after, found := strings.Cut(rest, ": "); ok && found {
		if n, err := strconv.Atoi(number); err == nil {
			return n, after
		}
	}
	return 0, text
}
