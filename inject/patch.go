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

// Patch is the patch as RFC 6902 JSON, or nil when there is nothing to add. It
// is written here because the library writes paths without JSON escapes, and a
// pod's annotation keys are not validated yet when a webhook sees them.
func (r *Result) Patch() []byte {
	if len(r.Ops) == 0 {
		return nil
	}
	size := 2
	for i := range r.Ops {
		size += len(r.Ops[i].Path) + len(r.Ops[i].Value.(json.RawMessage)) + len(`{"op":"add","path":"","value":},`)
	}
	b := append(make([]byte, 0, size), '[')
	for i := range r.Ops {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"op":"add","path":`...)
		b, _ = jsontext.AppendQuote(b, r.Ops[i].Path)
		b = append(b, `,"value":`...)
		b = append(b, r.Ops[i].Value.(json.RawMessage)...)
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
