// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/tree"
)

// fromTree makes the nodes of a JSON value.
func fromTree(value *tree.Node) *yaml.Node {
	switch value.Kind() {
	case tree.Object:
		node := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		members := value.Members()
		for i := range members {
			node.Content = append(node.Content, text(members[i].Name()), fromTree(&members[i]))
		}
		return compactIfEmpty(node)
	case tree.Array:
		node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		items := value.Items()
		for i := range items {
			node.Content = append(node.Content, fromTree(&items[i]))
		}
		return compactIfEmpty(node)
	case tree.String:
		return text(value.Text())
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: value.String()}
}

func compactIfEmpty(node *yaml.Node) *yaml.Node {
	if len(node.Content) == 0 {
		node.Style = yaml.FlowStyle
	}
	return node
}

// text is a string, in quotes where a reader of YAML 1.1, as kubectl is, would
// take it for something else: "on", "0777", "1:30". So is one with hidden characters:
// in quotes a [screen] can show it as what it is.
func text(s string) *yaml.Node {
	node := &yaml.Node{}
	if err := node.Encode(s); err != nil || node.Kind != yaml.ScalarNode || node.Value != s || strings.IndexFunc(s, inject.Hidden) >= 0 {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s, Style: yaml.DoubleQuotedStyle}
	}
	return node
}

// asBefore makes after, which the library wrote, look like before, of which it
// is a copy with more lines in it: empty lines, which the library drops, come
// back, and so does the space inside a line. Where a line was written in another
// way its empty lines get lost, but no other line does.
func asBefore(before, after []byte) []byte {
	old, lines := slices.Collect(bytes.Lines(before)), slices.Collect(bytes.Lines(after))
	var out bytes.Buffer
	next := 0 // the line of old that is looked for
	for i, line := range lines {
		if empty(line) {
			if next < len(old) && empty(old[next]) {
				next++
			}
			out.Write(line)
			continue
		}
		wanted := next
		for wanted < len(old) && (empty(old[wanted]) || !slices.ContainsFunc(lines[i:], func(l []byte) bool { return same(l, old[wanted]) })) {
			wanted++
		}
		if wanted == len(old) || !same(line, old[wanted]) {
			out.Write(line)
			continue
		}
		writeEmptyEnd(&out, old[next:wanted])
		out.Write(old[wanted])
		next = wanted + 1
	}
	writeEmptyEnd(&out, old[next:])
	return out.Bytes()
}

// writeEmptyEnd writes the empty lines that the lines end with, as far as they
// are not there yet.
func writeEmptyEnd(out *bytes.Buffer, lines [][]byte) {
	start := len(lines)
	for start > 0 && empty(lines[start-1]) {
		start--
	}
	for there := out.Bytes(); start < len(lines) && bytes.HasSuffix(there, []byte("\n\n")); start++ {
		there = there[:len(there)-1]
	}
	for _, line := range lines[start:] {
		out.Write(line)
	}
}

// same says whether two lines differ in nothing but the space inside them.
func same(a, b []byte) bool {
	if indentation(a) != indentation(b) {
		return false
	}
	for {
		a, b = bytes.TrimLeft(a, " \t\r\n"), bytes.TrimLeft(b, " \t\r\n")
		if len(a) == 0 || len(b) == 0 {
			return len(a) == len(b)
		}
		if a[0] != b[0] {
			return false
		}
		a, b = a[1:], b[1:]
	}
}

func indentation(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }

func empty(line []byte) bool { return len(bytes.TrimSpace(line)) == 0 }
