// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gojson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// TestAppendReview: what is written by hand is what a library writes.
func TestAppendReview(t *testing.T) {
	jsonPatch := admissionv1.PatchTypeJSONPatch
	odd := "quotes \" and \\ <&> \u2028 \x00 \xff é"
	for _, r := range []*admissionv1.AdmissionResponse{
		{},
		{UID: types.UID(odd), Allowed: true},
		{UID: "1", Allowed: true, Patch: []byte(`[{"op":"add"}]`), PatchType: &jsonPatch, AuditAnnotations: map[string]string{"b": odd, "a": "", odd: "x"}},
		{UID: "1", Warnings: []string{odd, "second"}},
		{UID: "1", Result: &metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: odd}},
	} {
		want, err := gojson.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Response: r,
		}, gojson.Deterministic(true), jsontext.AllowInvalidUTF8(true))
		if err != nil {
			t.Fatal(err)
		}
		if got := appendReview(nil, "admission.k8s.io/v1", r); !bytes.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestNothingSharesTheScratch: what there is to tell of an exchange stays as it
// is when the next one has its memory.
func TestNothingSharesTheScratch(t *testing.T) {
	set, err := templates.Compile(templates.File{Path: "t.yaml", Data: []byte(`{"apiVersion":"pillion.dev/v1alpha1","kind":"SidecarTemplate","metadata":{"name":"t"},
"spec":{"default":true,"params":[{"name":"p"}],"pod":{"metadata":{"annotations":{"k":"${params.p}-${pod.metadata.labels['a']}"}}}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","namespace":"n\u0061","operation":"CREATE","userInfo":{"username":"me"},
"resource":{"version":"v1","resource":"pods"},
"object":{"metadata":{"name":"x","labels":{"a":"b"},"annotations":{"t.pillion.dev/p":"v","t.pillion.dev/q":"w","gone.pillion.dev/p":""}},"spec":{"containers":[{"name":"c"}]}}}}`)
	injector := inject.New(set)
	h := &Handler{
		Injector:   func() *inject.Injector { return injector },
		Judge:      func() *inject.Judge { return inject.NewJudge(injector, nil, true) },
		Namespaces: nowhere{},
	}
	for _, path := range []string{PathMutate, PathValidate} {
		e := &exchange{}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		if refused := h.ask(e, httptest.NewRecorder(), r); refused != nil {
			t.Fatal(refused.sentence)
		}
		tell := func() string {
			return fmt.Sprintf("%s %s %q %q %q %+v", encode(e), e.result.Patch(), e.uid(), e.request.Namespace, e.request.UserInfo.Username, e.result)
		}
		want := tell()
		for i, b := range e.scratch.body.Bytes() {
			if e.scratch.body.Bytes()[i] = '#'; 'a' <= b && b <= 'z' {
				e.scratch.body.Bytes()[i] = 'z'
			}
		}
		if _, err := e.scratch.parser.Parse(bytes.Repeat([]byte(" "), 1), 0); err == nil {
			t.Fatal("a blank is JSON")
		}
		if _, err := e.scratch.parser.Parse([]byte("["+strings.Repeat(`{"other":["x"]},`, 100)+"0]"), 4); err != nil {
			t.Fatal(err)
		}
		if got := tell(); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", path, got, want)
		}
	}
}

type nowhere struct{}

func (nowhere) Namespace(name string) (templates.Namespace, error) {
	return templates.Namespace{Name: name}, nil
}
