// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"math"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// maxYAMLNodes bounds what aliases can unfold to (a pod of 3 MiB, the most that
// the API server takes, has fewer values than that).
const maxYAMLNodes = 1 << 20

// FromYAML makes the JSON value that a YAML node stands for, in the order of
// the YAML. Aliases and merge keys are unfolded. An error names the line.
func FromYAML(y *yaml.Node) (Node, error) {
	left := maxYAMLNodes
	return fromYAML(y, &left)
}

func fromYAML(y *yaml.Node, left *int) (Node, error) {
	if *left--; *left < 0 {
		return Node{}, fmt.Errorf("line %d: the aliases unfold to more than %d values", y.Line, maxYAMLNodes)
	}
	if tag := y.ShortTag(); y.Kind == yaml.MappingNode && tag != "!!map" || y.Kind == yaml.SequenceNode && tag != "!!seq" {
		return Node{}, fmt.Errorf("line %d: the YAML tag %s has no meaning here", y.Line, tag)
	}
	switch y.Kind {
	case yaml.DocumentNode:
		return fromYAML(y.Content[0], left)
	case yaml.AliasNode:
		return fromYAML(y.Alias, left)
	case yaml.SequenceNode:
		n := Items()
		for _, item := range y.Content {
			v, err := fromYAML(item, left)
			if err != nil {
				return Node{}, err
			}
			n.items = append(n.items, v)
		}
		return n, nil
	case yaml.MappingNode:
		return fromMapping(y, left)
	}
	return fromScalar(y)
}

func fromMapping(y *yaml.Node, left *int) (Node, error) {
	n := Members()
	merged := []Member{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		value, err := fromYAML(y.Content[i+1], left)
		if err != nil {
			return Node{}, err
		}
		if key.ShortTag() == "!!merge" {
			merged = append(merged, mergeSources(value)...)
			continue
		}
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return Node{}, fmt.Errorf("line %d: a key must be a plain text", key.Line)
		}
		if n.member(key.Value) != nil {
			return Node{}, fmt.Errorf("line %d: the key %q stands there twice", key.Line, key.Value)
		}
		n.members = append(n.members, Field(key.Value, value))
	}
	for _, m := range merged { // what the object says itself wins, then the first source
		if n.member(m.Name()) == nil {
			n.members = append(n.members, m)
		}
	}
	return n, nil
}

func mergeSources(value Node) []Member {
	if value.kind != Array {
		return value.members
	}
	var all []Member
	for i := range value.items {
		all = append(all, value.items[i].members...)
	}
	return all
}

func fromScalar(y *yaml.Node) (Node, error) {
	switch y.ShortTag() {
	case "!!null":
		return Node{kind: Null, text: []byte("null")}, nil
	case "!!bool":
		var b bool
		if err := y.Decode(&b); err != nil {
			return Node{}, fmt.Errorf("line %d: %w", y.Line, err)
		}
		return Bool(b), nil
	case "!!int", "!!float":
		return fromNumber(y)
	case "!!str", "!!timestamp", "!!binary":
		return Text(y.Value), nil
	}
	return Node{}, fmt.Errorf("line %d: the YAML tag %s has no meaning here", y.Line, y.Tag)
}

func fromNumber(y *yaml.Node) (Node, error) {
	if v := jsontext.Value(y.Value); v.IsValid() && v.Kind() == Number {
		return Node{kind: Number, text: []byte(y.Value)}, nil // keeps 12345678901234567890 and 1.0
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
	return Node{kind: Number, text: []byte(jsontext.Float(f).String())}
}
