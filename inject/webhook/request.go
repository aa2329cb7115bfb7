// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates/tree"
)

// maxBody bounds a request. The API server takes objects of up to 3 MiB; a
// review holds two of them on an update (6 MiB), managedFields that the API
// server adds to them, and the envelope.
const maxBody = 8 << 20

// maxKept bounds the memory to work in that is kept for the next one.
const maxKept = 1 << 20

// maxTimeout is the longest timeout that a webhook configuration may ask for.
const maxTimeout = 30 * time.Second

// buffers are memory for one exchange after another: the body, the patch and the
// answer. An exchange has them for as long as its client takes to send and to read.
type buffers struct{ body, patch, answer []byte }

// scratch is memory to work in, most of it the tree that is made of a body. All texts
// of a request are parts of the body, so whoever keeps one longer than the exchange has
// to clone it.
//
// It is many times as large as the body: those who wait, for their turn or for their
// client, have no scratch, and so there are only a few.
type scratch struct {
	engine   inject.Scratch
	verifier tree.Verifier
	notes    []inject.Note
}

// lendBuffers gives the exchange memory for its body and its answer until [Handler.release].
func (h *Handler) lendBuffers(e *exchange) {
	var ok bool
	if e.buffers, ok = h.buffers.Get().(*buffers); !ok {
		e.buffers = &buffers{body: make([]byte, 0, freeBody)}
	}
	e.buffers.body = e.buffers.body[:0]
}

// lend gives the exchange memory to work in until [Handler.settle].
func (h *Handler) lend(e *exchange) {
	var ok bool
	if e.scratch, ok = h.scratch.Get().(*scratch); !ok {
		e.scratch = &scratch{}
	}
}

// settle takes the memory to work in back from an exchange about which all is told. It still
// refers to the body, so it is not kept after a large one.
func (h *Handler) settle(e *exchange) {
	if s := e.scratch; s != nil && cap(e.buffers.body) <= largeBody && s.engine.Kept() <= maxKept {
		h.scratch.Put(s)
	}
	e.scratch, e.request, e.result, e.verdict, e.preview, e.advice = nil, nil, nil, nil, nil, nil
}

// release ends an exchange that is written. What is larger than what everyone may have is not
// kept, nor what a connection that failed may still be writing from.
func (h *Handler) release(e *exchange) {
	if b := e.buffers; e.written && b != nil && cap(b.body) <= freeBody && cap(b.patch)+cap(b.answer) <= freeAnswer {
		h.buffers.Put(b)
	}
	e.buffers = nil
}

const contentJSON = "application/json"

// head checks what stands before the body of a request that an API server may send, and says
// until when it wants the answer, which it waits for since the exchange's start.
//
// The caller stops listening after ?timeout=, so what is not read by then is
// answered with 503. After it, waiting for its turn may take time, see
// [Limiter]; the answer itself takes microseconds.
func (e *exchange) head(w http.ResponseWriter, r *http.Request) *refusal {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return refuse(http.StatusMethodNotAllowed, "the method must be POST, not %s", r.Method)
	}
	if text := r.Header.Get("Content-Type"); text != contentJSON { // as the API server writes it
		if kind, _, err := mime.ParseMediaType(text); err != nil || kind != contentJSON {
			return refuse(http.StatusUnsupportedMediaType, "the content type must be application/json, not %q", text)
		}
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" { // which no API server does
		return refuse(http.StatusUnsupportedMediaType, "the body must not be compressed (%q)", coding)
	}
	if r.ContentLength > maxBody {
		return tooLarge()
	}
	timeout, refused := timeout(r)
	e.deadline = e.start.Add(timeout)
	return refused
}

func tooLarge() *refusal {
	return refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
}

// read reads the body. Its memory grows with what has come; a promise, which costs a caller
// nothing, can only make it smaller.
func (h *Handler) read(e *exchange, w http.ResponseWriter, r *http.Request) *refusal {
	conn := http.NewResponseController(w)
	// Not every ResponseWriter can; the server's own ReadTimeout stands then.
	_ = conn.SetReadDeadline(e.deadline)
	from, promised := http.MaxBytesReader(w, r.Body, maxBody), int(r.ContentLength)+bytes.MinRead
	body := &e.buffers.body
	for {
		n, err := from.Read((*body)[len(*body):cap(*body)])
		*body = (*body)[:len(*body)+n]
		switch {
		case err == io.EOF && r.Context().Err() == nil:
			return nil
		case err != nil:
			return unread(err)
		case len(*body) < cap(*body):
			continue
		}
		room := min(2*cap(*body), maxBody+bytes.MinRead)
		if promised > cap(*body) {
			room = min(room, promised)
		}
		if !h.Limiter.take(&e.share, room) {
			return shed(shedMemory)
		}
		if h.Limiter.pressed() {
			_ = conn.SetReadDeadline(soonest(e.deadline, time.Now().Add(hurry)))
		}
		*body = append(make([]byte, 0, room), *body...)
	}
}

func soonest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// unread says why a body was not read; its end stands for a caller that is gone.
func unread(err error) *refusal {
	limit := (*http.MaxBytesError)(nil)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
		return tooLate()
	case errors.As(err, &limit):
		return tooLarge()
	}
	return refuse(http.StatusBadRequest, "the body could not be read: %v", err)
}

func tooLate() *refusal {
	return refuse(http.StatusServiceUnavailable, "the request did not come within the time that the caller waits")
}

// timeout is how long the caller waits.
func timeout(r *http.Request) (time.Duration, *refusal) {
	text, alone := strings.CutPrefix(r.URL.RawQuery, "timeout=") // as the API server writes it
	if !alone || strings.ContainsAny(text, "&%+") {
		text = r.URL.Query().Get("timeout")
	}
	if text == "" {
		return maxTimeout, nil
	}
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout <= 0 {
		return 0, refuse(http.StatusBadRequest, "the timeout must be a duration such as 5s, not %q", text)
	}
	return min(timeout, maxTimeout), nil
}

// request is what is wanted of an AdmissionReview's request.
type request struct {
	version string // of the review, to answer in it

	UID         string
	Kind        kind
	Resource    resource
	SubResource string
	Name        string
	Namespace   string
	Operation   admissionv1.Operation
	UserInfo    userInfo
	DryRun      bool
	Object      *tree.Node // not nil
	OldObject   *tree.Node // nil where there is none
}

type kind struct{ Group, Version, Kind string }

type resource struct{ Group, Version, Resource string }

type userInfo struct{ Username string }

// podLevel is how deep in a review the pod stands: review, request, object. A
// final pod is compared with the templates field by field, which goes deeper.
const (
	podLevel   = 2
	finalLevel = podLevel + 3
)

// decode reads a review of either version, in one pass with the pod in it; what
// is not wanted is checked to be JSON and skipped. As in the API server's own
// decoder names are told apart by case and the last of two equal ones counts.
func decode(parser *tree.Parser, room tree.Room, body []byte, levels int) (*request, *refusal) {
	// Nobody changes the body as long as the exchange lasts.
	root, err := parser.ParseIn(room, maxValues, unsafe.String(unsafe.SliceData(body), len(body)), levels)
	switch {
	case errors.Is(err, tree.ErrTooManyValues), errors.Is(err, tree.ErrNoRoom): // whose reason the exchange knows better
		return nil, refuse(http.StatusRequestEntityTooLarge, "the body is too large: %v", err)
	case err != nil:
		return nil, refuse(http.StatusBadRequest, "the body is not an AdmissionReview: %s", strings.TrimPrefix(err.Error(), "jsontext: "))
	}
	var f fields
	review := f.object("", root)
	sent := f.object("/request", review.Get("request"))
	of := f.object("/request/kind", sent.Get("kind"))
	res := f.object("/request/resource", sent.Get("resource"))
	r := &request{
		version: f.text("", review, "apiVersion"),
		UID:     f.text("/request", sent, "uid"),
		Kind: kind{
			Group:   f.text("/request/kind", of, "group"),
			Version: f.text("/request/kind", of, "version"),
			Kind:    f.text("/request/kind", of, "kind"),
		},
		Resource: resource{
			Group:    f.text("/request/resource", res, "group"),
			Version:  f.text("/request/resource", res, "version"),
			Resource: f.text("/request/resource", res, "resource"),
		},
		SubResource: f.text("/request", sent, "subResource"),
		Name:        f.text("/request", sent, "name"),
		Namespace:   f.text("/request", sent, "namespace"),
		Operation:   admissionv1.Operation(f.text("/request", sent, "operation")),
		UserInfo:    userInfo{f.text("/request/userInfo", f.object("/request/userInfo", sent.Get("userInfo")), "username")},
		DryRun:      f.is("/request/dryRun", sent.Get("dryRun"), tree.True, tree.False).Kind() == tree.True,
		Object:      cmp.Or(sent.Get("object"), &tree.Node{}),
		OldObject:   sent.Get("oldObject"),
	}
	switch name := f.text("", review, "kind"); {
	case f.wrong != "":
		return nil, refuse(http.StatusBadRequest, "the body is not an AdmissionReview: what is at %q in it is of the wrong type", f.wrong)
	case name != "AdmissionReview":
		return nil, refuse(http.StatusBadRequest, "the kind must be AdmissionReview, not %q", name)
	case r.version != admissionv1.SchemeGroupVersion.String() && r.version != admissionv1beta1.SchemeGroupVersion.String():
		return nil, refuse(http.StatusBadRequest, "the apiVersion must be %s or %s, not %q",
			admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion, r.version)
	case sent == nil:
		return nil, refuse(http.StatusBadRequest, "the AdmissionReview has no request")
	case r.UID == "":
		return nil, refuse(http.StatusBadRequest, "the request has no uid")
	}
	return r, nil
}

// fields reads typed fields, and remembers the pointer of the first of another type.
type fields struct{ wrong string }

// is gives n if it is of one of the kinds, else nil; null is like nothing.
func (f *fields) is(at string, n *tree.Node, kinds ...jsontext.Kind) *tree.Node {
	switch {
	case n.Kind() == 0 || n.Kind() == tree.Null:
		return nil
	case slices.Contains(kinds, n.Kind()):
		return n
	case f.wrong == "":
		f.wrong = "/" + strings.TrimPrefix(at, "/")
	}
	return nil
}

func (f *fields) object(at string, n *tree.Node) *tree.Node { return f.is(at, n, tree.Object) }

func (f *fields) text(at string, in *tree.Node, name string) string {
	n := in.Get(name)
	if n != nil && n.Kind() != tree.String {
		f.is(at+"/"+name, n)
	}
	return n.Text()
}

// createsPod tells the one thing that the engine is asked about.
func (r *request) createsPod() bool {
	return r.Operation == admissionv1.Create && r.SubResource == "" &&
		r.Resource == resource{Version: "v1", Resource: "pods"}
}
