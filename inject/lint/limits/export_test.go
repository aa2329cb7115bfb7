// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// EffectOf returns the sentences of one effect, of which [EffectsOf] returns those of all.
func EffectOf(t *testing.T, e *Effect, before, after []byte, kind string) []string {
	t.Helper()
	var was, is corev1.Pod
	if err := json.Unmarshal(before, &was); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(after, &is); err != nil {
		t.Fatal(err)
	}
	return e.of(newChange(&was, &is, kind))
}
