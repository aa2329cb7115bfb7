// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
)

// maxBody bounds a request. The API server takes objects of up to 3 MiB; a
// review holds two of them on an update (6 MiB), managedFields that the API
// server adds to them, and the envelope.
const maxBody = 8 << 20

// maxTrust bounds what is set aside because a Content-Length says so, before a
// byte of it has come. 99 of 100 bodies are smaller than a tenth of it.
const maxTrust = 256 << 10

// maxTimeout is the longest timeout that a webhook configuration may ask for.
const maxTimeout = 30 * time.Second

// read gives the body of a request that an API server may send, and until when it
// wants the answer.
//
// The caller stops listening after ?timeout=, so what is not read by then is
// answered with 503. After it, waiting for its turn may take time, see
// [Limiter]; the answer itself takes microseconds.
func read(w http.ResponseWriter, r *http.Request, from io.ReadCloser) ([]byte, time.Time, *refusal) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, time.Time{}, refuse(http.StatusMethodNotAllowed, "the method must be POST, not %s", r.Method)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, time.Time{}, refuse(http.StatusUnsupportedMediaType, "the content type must be application/json, not %q", r.Header.Get("Content-Type"))
	}
	if r.ContentLength > maxBody {
		return nil, time.Time{}, refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
	}
	timeout, refused := timeout(r)
	if refused != nil {
		return nil, time.Time{}, refused
	}
	deadline := time.Now().Add(timeout)
	// Not every ResponseWriter can; the server's own ReadTimeout stands then.
	_ = http.NewResponseController(w).SetReadDeadline(deadline)
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), maxTrust)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, from, maxBody))
	if err != nil || r.Context().Err() != nil {
		return nil, time.Time{}, unread(err)
	}
	return body.Bytes(), deadline, nil
}

// unread says why a body was not read; nil stands for a caller that is gone.
func unread(err error) *refusal {
	tooLarge := (*http.MaxBytesError)(nil)
	switch {
	case err == nil, errors.Is(err, os.ErrDeadlineExceeded):
		return tooLate()
	case errors.Is(err, errMemory):
		return shed(shedMemory)
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, "the body is larger than %d bytes", maxBody)
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

// review is what is wanted of an AdmissionReview; the rest is checked to be
// JSON and skipped.
type review struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Request    *request `json:"request"`
}

type request struct {
	version string // of the review, to answer in it

	UID         string                `json:"uid"`
	Kind        kind                  `json:"kind"`
	Resource    resource              `json:"resource"`
	SubResource string                `json:"subResource"`
	Name        string                `json:"name"`
	Namespace   string                `json:"namespace"`
	Operation   admissionv1.Operation `json:"operation"`
	UserInfo    userInfo              `json:"userInfo"`
	DryRun      bool                  `json:"dryRun"`
	Object      jsontext.Value        `json:"object"`
	OldObject   jsontext.Value        `json:"oldObject"`
}

type kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

type resource struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Resource string `json:"resource"`
}

type userInfo struct {
	Username string `json:"username"`
}

// decode reads a review of either version. As in the API server's own decoder
// names are told apart by case and the last of two equal ones counts.
func decode(body []byte) (*request, *refusal) {
	var r review
	if err := json.Unmarshal(body, &r, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, refuse(http.StatusBadRequest, "the body is not an AdmissionReview: %s", explain(err))
	}
	switch {
	case r.Kind != "AdmissionReview":
		return nil, refuse(http.StatusBadRequest, "the kind must be AdmissionReview, not %q", r.Kind)
	case r.APIVersion != admissionv1.SchemeGroupVersion.String() && r.APIVersion != admissionv1beta1.SchemeGroupVersion.String():
		return nil, refuse(http.StatusBadRequest, "the apiVersion must be %s or %s, not %q",
			admissionv1.SchemeGroupVersion, admissionv1beta1.SchemeGroupVersion, r.APIVersion)
	case r.Request == nil:
		return nil, refuse(http.StatusBadRequest, "the AdmissionReview has no request")
	case r.Request.UID == "":
		return nil, refuse(http.StatusBadRequest, "the request has no uid")
	}
	r.Request.version = r.APIVersion
	return r.Request, nil
}

// explain says what is wrong with the JSON, and nothing of Go.
func explain(err error) string {
	if wrong := (*json.SemanticError)(nil); errors.As(err, &wrong) {
		return fmt.Sprintf("what is at %q in it is of the wrong type", "/"+strings.TrimPrefix(string(wrong.JSONPointer), "/"))
	}
	return strings.TrimPrefix(err.Error(), "jsontext: ")
}

// createsPod tells the one thing that the engine is asked about.
func (r *request) createsPod() bool {
	return r.Operation == admissionv1.Create && r.SubResource == "" &&
		r.Resource == resource{Version: "v1", Resource: "pods"}
}
