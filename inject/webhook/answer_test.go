// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	gojson "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/inject"
)

// TestAppendReview checks that the handwritten encoder writes the same as the library.
func TestAppendReview(t *testing.T) {
	jsonPatch := admissionv1.PatchTypeJSONPatch
	odd := "quotes \" and \\ <&> \u2028 \x00 \xff é"
	for _, r := range []*admissionv1.AdmissionResponse{
		{},
		{UID: types.UID(odd), Allowed: true},
		{UID: "1", Allowed: true, Patch: []byte(`[{"op":"add"}]`), PatchType: &jsonPatch, AuditAnnotations: map[string]string{"a": "", "not_requested": strings.Repeat("a-template, ", 100) + "b", "b": strings.Repeat("x", 9), odd: "x"}},
		{UID: "1", Warnings: []string{odd, "second"}},
		{UID: "1", Result: &metav1.Status{Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: odd}},
	} {
		want, err := gojson.Marshal(admissionv1.AdmissionReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Response: r,
		}, gojson.Deterministic(true), jsontext.AllowInvalidUTF8(true))
		if err != nil {
			t.Fatal(err)
		}
		var notes []inject.Note
		for _, key := range slices.Sorted(maps.Keys(r.AuditAnnotations)) {
			notes = append(notes, inject.Note{Key: key, Text: r.AuditAnnotations[key]})
		}
		if got := appendReview(nil, "admission.k8s.io/v1", r, notes); !bytes.Equal(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
