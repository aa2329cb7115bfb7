// SPDX-License-Identifier: Apache-2.0

package yamledit

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// isEmpty reports whether a value is null, an empty object or an empty list.
func isEmpty(n *yaml.Node) bool {
	switch n.Kind {
	case yaml.ScalarNode:
		return n.ShortTag() == "!!null"
	case yaml.MappingNode, yaml.SequenceNode:
		return len(n.Content) == 0
	}
	return false
}

// tokenOf returns the JSON of an empty value.
func tokenOf(text string) string {
	before, _ := splitEmpty(text)
	switch rest := text[len(before):]; {
	case strings.HasPrefix(rest, "["):
		return "[]"
	case strings.HasPrefix(rest, "{"):
		return "{}"
	}
	return "null"
}

// emptyText returns the source of an empty value, from the end of its key.
func (s *source) emptyText(key, value *yaml.Node) string {
	start := s.keyEnd(key)
	end := start
	switch {
	case value.Kind != yaml.ScalarNode:
		end = s.skipFlow(s.contentOffset(value))
	case value.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		end = s.skipQuoted(s.contentOffset(value))
	case value.Value != "":
		end = min(s.contentOffset(value)+len(value.Value), len(s.data))
	default:
		if at := s.skipSpace(start); at < len(s.data) && s.data[at] == ':' {
			end = at + 1
		}
	}
	return string(s.data[start:max(start, end)])
}

// keyEnd returns the offset after a key.
func (s *source) keyEnd(key *yaml.Node) int {
	at := s.contentOffset(key)
	if key.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		return s.skipQuoted(at)
	}
	return min(at+len(key.Value), len(s.data))
}

// splitEmpty splits the source of an empty value at the value. It returns the part before it,
// and the comments in its brackets.
func splitEmpty(text string) (before, inside string) {
	s := newSource([]byte(text))
	at := s.skipSpace(0)
	if at < len(text) && text[at] == ':' {
		if rest := s.skipProperties(s.skipSpace(at + 1)); rest < len(text) {
			at = rest
		} else {
			at = len(text)
		}
	}
	if end := s.skipFlow(at); at < len(text) && (text[at] == '[' || text[at] == '{') && strings.Contains(text[at:end], "#") {
		inside = text[at+1 : end-1]
	}
	return text[:at], inside
}
