// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// buffers are reused memory for the body and the answer. An exchange holds them as long
// as its client takes to send and to read.
type buffers struct{ body, answer []byte }

// scratch is reused memory for processing, most of it for the tree of a body. All strings
// of a request are parts of the body: to keep a string longer than the exchange, clone it.
//
// A scratch is many times as large as the body. A request that waits for its turn or for its
// client has none, so few exist at a time.
type scratch struct {
	engine   inject.Scratch
	verifier jsontree.Verifier
	patch    []byte
	notes    []inject.Note
}
