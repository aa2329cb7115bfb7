// SPDX-License-Identifier: Apache-2.0

package webhook

// maxKept bounds the scratch that is kept for the next request, in bytes.
const maxKept = 1 << 20

// lendBuffers lends the exchange memory for its body and its answer until [Handler.returnBuffers].
func (h *Handler) lendBuffers(e *exchange) {
	var ok bool
	if e.buffers, ok = h.buffers.Get().(*buffers); !ok {
		e.buffers = &buffers{body: make([]byte, 0, freeBody)}
	}
	e.buffers.body = e.buffers.body[:0]
}

// lendScratch lends the exchange memory for processing until [Handler.returnScratch].
func (h *Handler) lendScratch(e *exchange) {
	var ok bool
	if e.scratch, ok = h.scratch.Get().(*scratch); !ok {
		e.scratch = &scratch{}
	}
}

// returnScratch takes the scratch back after metrics and log are written. The scratch still
// refers to the body, so keeping the scratch of a large body would keep that body.
func (h *Handler) returnScratch(e *exchange) {
	if s := e.scratch; s != nil && cap(e.buffers.body) <= largeBody && s.engine.Kept()+cap(s.patch) <= maxKept {
		h.scratch.Put(s)
	}
	e.scratch, e.request, e.answer = nil, nil, nil
}

// returnBuffers takes the buffers back after the answer is written. It drops buffers that are larger
// than the uncounted sizes, and those that a failed connection may still be writing from.
func (h *Handler) returnBuffers(e *exchange) {
	if b := e.buffers; e.written && b != nil && cap(b.body) <= freeBody {
		if cap(b.answer) > freeAnswer {
			b.answer = nil
		}
		h.buffers.Put(b)
	}
	e.buffers = nil
}
