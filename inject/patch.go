// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattbaird/jsonpatch"

	"github.com/pillion-dev/pillion/templates/tree"
)

// operations tells what was added to a pod, about that many bytes: one operation
// for each inserted item, created parent or missing key.
func operations(pod *tree.Node, size int) []jsonpatch.JsonPatchOperation {
	ops, text := make([]jsonpatch.JsonPatchOperation, 0, 8+size/256), make([]byte, 0, size)
	pod.Additions(func(path string, value *tree.Node) {
		first := len(text)
		text = value.AppendTo(text)
		ops = append(ops, jsonpatch.NewPatch("add", path, json.RawMessage(text[first:len(text):len(text)])))
	})
	return ops
}

// Patch is the patch as RFC 6902 JSON, or nil when there is nothing to add.
func (r *Result) Patch() []byte { return AppendPatch(nil, r.Ops) }

// AppendPatch writes operations of a [Result] as JSON to the end of b, and nothing
// for none. The library would write paths without JSON's escapes, and a pod's
// annotation keys are not validated yet when a webhook sees them.
func AppendPatch(b []byte, ops []jsonpatch.JsonPatchOperation) []byte {
	if len(ops) == 0 {
		return b
	}
	b = append(b, '[')
	for i := range ops {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"op":"add","path":`...)
		b, _ = jsontext.AppendQuote(b, ops[i].Path)
		b = append(b, `,"value":`...)
		b = append(b, ops[i].Value.(json.RawMessage)...)
		b = append(b, '}')
	}
	return append(b, ']')
}

// top is a pointer's first two names, as a pointer.
func top(path string) string {
	names := 0
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if names++; names > 2 {
			return path[:i]
		}
	}
	return path
}

// part is what [top] gives as "spec.volumes", the unit in which
// [templates.Template.Reads] speaks.
func part(top string) string {
	first, second, found := strings.Cut(strings.TrimPrefix(top, "/"), "/")
	if !found {
		return "*"
	}
	return first + "." + second
}
