// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"encoding/json"
	"slices"
	"unsafe"

	"github.com/mattbaird/jsonpatch"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Adds reports whether there is anything to add.
func (r *Result) Adds() bool { return r.size > 0 }

// Injected returns the pod with all additions.
func (r *Result) Injected() *jsontree.Node { return r.pod }

// InjectedJSON returns the pod with all additions as JSON. Parts without additions keep their
// bytes.
func (r *Result) InjectedJSON() []byte {
	return r.pod.AppendWithAdditions(make([]byte, 0, r.pod.Size()+r.size))
}

// Ops returns the patch (RFC 6902). It has one operation for each inserted item, created parent or
// missing key. Every operation is an add. Values are encoded JSON (json.RawMessage).
func (r *Result) Ops() []jsonpatch.JsonPatchOperation {
	var ops []jsonpatch.JsonPatchOperation
	if r.Adds() {
		r.pod.Additions(func(path []byte, value *jsontree.Node) {
			ops = append(ops, jsonpatch.NewPatch("add", string(path), json.RawMessage(value.AppendTo(nil))))
		})
	}
	return ops
}

// Patch returns the patch as JSON, or nil if there is nothing to add.
func (r *Result) Patch() []byte { return r.AppendPatch(nil, "") }

// UnsoundError reports that a patch is not valid for its pod. It is always caused by a bug in
// Pillion.
type UnsoundError struct {
	Path string // of the operation
	Err  error
}

// Error implements error.
func (e *UnsoundError) Error() string {
	return "the patch would add at " + e.Path + ": " + e.Err.Error()
}

// AppendVerified is like AppendPatch, but checks each operation against the pod's original JSON.
// Each operation must be an add to a place that does not exist yet. Otherwise AppendVerified
// returns an [UnsoundError], and the caller must not use the patch. With such a patch, the API
// server would fail the pod's creation or lose a part of the pod, whatever the webhook's
// failurePolicy is.
func (r *Result) AppendVerified(b []byte, with *jsontree.Verifier) ([]byte, error) {
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

// roomAround is usually enough room for the paths of a patch, in bytes.
const roomAround = 2 << 10

// AppendPatch appends the patch to b, or nothing if there is nothing to add. It prefixes all paths
// with podPath, which is "" if the document is the pod itself. It does not use the library's
// encoder, which writes paths without JSON's escapes. When a webhook sees a pod, the keys of its
// annotations are not validated yet.
func (r *Result) AppendPatch(b []byte, podPath string) []byte {
	return r.appendPatch(b, podPath, func([]byte) {})
}

func (r *Result) appendPatch(b []byte, podPath string, check func(path []byte)) []byte {
	if !r.Adds() {
		return b
	}
	b = append(slices.Grow(b, r.size+roomAround), '[')
	first := len(b)
	r.pod.Additions(func(path []byte, value *jsontree.Node) {
		if len(b) > first {
			b = append(b, ',')
		}
		check(path)
		b = append(b, `{"op":"add","path":`...)
		if podPath != "" {
			path = append([]byte(podPath), path...)
		}
		b = jsontree.AppendQuoted(b, unsafe.String(unsafe.SliceData(path), len(path)))
		b = append(b, `,"value":`...)
		b = value.AppendTo(b)
		b = append(b, '}')
	})
	return append(b, ']')
}
