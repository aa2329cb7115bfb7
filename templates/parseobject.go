// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"bytes"
	"fmt"

	"github.com/pillion-dev/pillion/templates/problem"
)

// ParseObject is like [Parse] for an object of the API server, as JSON. Problems have no line, because
// users have never seen this text. The name is for messages, for example "sidecartemplate/team-a/agent".
func ParseObject(name string, data []byte) (*Template, problem.Problems) {
	if len(data) > MaxObject {
		return nil, TooLarge(name)
	}
	all, problems := Parse(name, escapeForYAML(data))
	for i := range problems {
		problems[i].Line = 0
	}
	if len(problems) > 0 || len(all) != 1 { // an object is one document
		return nil, problems
	}
	all[0].line = 0
	return all[0], nil
}

// TooLarge is what is wrong with an object of more than [MaxObject] bytes.
func TooLarge(name string) problem.Problems {
	return problem.Problems{{File: name, Message: fmt.Sprintf("has more than %d bytes as JSON, which is the limit", MaxObject)}}
}

// escapeForYAML returns JSON in which those characters are escapes that YAML does not accept otherwise, or
// reads as line breaks. JSON has them only in strings.
func escapeForYAML(data []byte) []byte {
	if !bytes.ContainsFunc(data, needsYAMLEscape) {
		return data
	}
	var b bytes.Buffer
	for _, r := range string(data) {
		if needsYAMLEscape(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.Bytes()
}

func needsYAMLEscape(r rune) bool {
	return '\x7f' <= r && r <= '\u009f' || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff'
}
