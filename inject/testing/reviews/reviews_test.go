// SPDX-License-Identifier: Apache-2.0

package reviews

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	kjson "sigs.k8s.io/json"
)

// TestSynthetic checks that there are 60 reviews, each about a different pod, and that Kubernetes
// knows every field of them.
func TestSynthetic(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Synthetic(t) {
		var review admissionv1.AdmissionReview
		decode(t, r.Name, r.Body, &review)
		var pod corev1.Pod
		decode(t, r.Name, review.Request.Object.Raw, &pod)
		if review.Request.Operation != admissionv1.Create || review.Request.UID == "" || len(pod.Spec.Containers) == 0 || pod.Name == "" && pod.GenerateName == "" {
			t.Errorf("%s: %s", r.Name, r.Body)
		}
		text, err := json.Marshal(pod.Spec)
		if err != nil {
			t.Fatal(err)
		}
		seen[string(text)] = true
	}
	if len(seen) != 60 {
		t.Errorf("%d different pods", len(seen))
	}
}

func decode(t *testing.T, name string, text []byte, into any) {
	t.Helper()
	strict, err := kjson.UnmarshalStrict(text, into)
	if err != nil || len(strict) > 0 {
		t.Errorf("%s: %v %v", name, err, strict)
	}
}
