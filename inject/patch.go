// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"slices"
	"unsafe"

	"github.com/mattbaird/jsonpatch"

	"github.com/pillion-dev/pillion/templates/tree"
)

// Adds says whether there is anything to add.
func (r *Result) Adds() bool { return r.size > 0 }

// Injected is the pod with what was added.
func (r *Result) Injected() *tree.Node { return r.pod }

// InjectedJSON is the same as JSON. What has no additions keeps its bytes.
func (r *Result) InjectedJSON() []byte {
	return r.pod.AppendWithAdditions(make([]byte, 0, r.pod.Size()+r.size))
}

// Ops is the patch (RFC 6902): one operation for each inserted item, created
// parent or missing key. Every operation is an add. Values are encoded JSON
// (json.RawMessage).
func (r *Result) Ops() []jsonpatch.JsonPatchOperation {
	var ops []jsonpatch.JsonPatchOperation
	if r.Adds() {
		r.pod.Additions(func(path []byte, value *tree.Node) {
			ops = append(ops, jsonpatch.NewPatch("add", string(path), json.RawMessage(value.AppendTo(nil))))
		})
	}
	return ops
}

// Patch is the patch as JSON, or nil when there is nothing to add.
func (r *Result) Patch() []byte { return r.AppendPatch(nil, "") }

// UnsoundError says that a patch is not what it must be: a defect of Pillion's.
type UnsoundError struct {
	Path string // of the operation
	Err  error
}

// Error implements error.
func (e *UnsoundError) Error() string {
	return "the patch would add at " + e.Path + ": " + e.Err.Error()
}

// AppendVerified is AppendPatch for a pod that came as a text, with each operation
// checked against that: it must be an add to a place that does not exist yet. If
// one is not, the error is an [UnsoundError] and the patch must not be used. An API
// server fails such a pod's creation, or loses what its author wrote, whatever the
// webhook's failurePolicy.
func (r *Result) AppendVerified(b []byte, with *tree.Verifier) ([]byte, error) {
	var unsound *UnsoundError
	with.Begin(r.pod)
	b = r.appendPatch(b, "", func(path []byte) {
		if unsound != nil {
			return
		}
		if err := with.Add(path); err != nil {
			unsound = &UnsoundError{string(path), err}
		}
	})
	if unsound != nil {
		return b, unsound
	}
	return b, nil
}

// roomAround is for the paths of a patch, most of the time.
const roomAround = 2 << 10

// AppendPatch writes the patch to the end of b, and nothing where there is nothing
// to add. Before all paths stands the pod's own, which is "" for a pod. The library
// would write paths without JSON's escapes, and a pod's annotation keys are not
// validated yet when a webhook sees them.
func (r *Result) AppendPatch(b []byte, podPath string) []byte {
	return r.appendPatch(b, podPath, func([]byte) {})
}

func (r *Result) appendPatch(b []byte, podPath string, check func(path []byte)) []byte {
	if !r.Adds() {
		return b
	}
	b = append(slices.Grow(b, r.size+roomAround), '[')
	first := len(b)
	r.pod.Additions(func(path []byte, value *tree.Node) {
		if len(b) > first {
			b = append(b, ',')
		}
		check(path)
		b = append(b, `{"op":"add","path":`...)
		if podPath != "" {
			path = append([]byte(podPath), path...)
		}
		b = tree.AppendQuoted(b, unsafe.String(unsafe.SliceData(path), len(path)))
		b = append(b, `,"value":`...)
		b = value.AppendTo(b)
		b = append(b, '}')
	})
	return append(b, ']')
}
