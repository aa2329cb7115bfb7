// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/mattbaird/jsonpatch"

	"github.com/pillion-dev/pillion/templates/tree"
)

// operations tells what was added to a pod, one operation for each inserted
// item, created parent or missing key.
func operations(pod *tree.Node) []jsonpatch.JsonPatchOperation {
	var ops []jsonpatch.JsonPatchOperation
	pod.Additions(func(path string, value *tree.Node) {
		ops = append(ops, jsonpatch.NewPatch("add", path, json.RawMessage(value.AppendTo(nil))))
	})
	return ops
}

// Patch is the patch as RFC 6902 JSON, or nil when there is nothing to add.
func (r *Result) Patch() []byte { return EncodePatch(r.Ops) }

// EncodePatch writes operations of a [Result] as JSON, and nil for none. The
// library would write their paths without JSON's escapes, and a pod's annotation
// keys are not validated yet when a webhook sees them.
func EncodePatch(ops []jsonpatch.JsonPatchOperation) []byte {
	if len(ops) == 0 {
		return nil
	}
	size := 2
	for i := range ops {
		size += len(ops[i].Path) + len(ops[i].Value.(json.RawMessage)) + len(`{"op":"add","path":"","value":},`)
	}
	b := append(make([]byte, 0, size), '[')
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

// part is a pointer's first two names as "spec.volumes", the unit in which
// [templates.Template.Reads] speaks.
func part(path string) string {
	names := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	if len(names) < 2 {
		return "*"
	}
	return names[0] + "." + names[1]
}
