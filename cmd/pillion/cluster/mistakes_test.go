// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/problem"
)

// TestSecretsHidden checks that a message that quotes a value of the pod's environment, commands, arguments, probes or HTTP headers, as a
// string, as JSON, or only its beginning, is hidden, and that a message with none of these stays.
func TestSecretsHidden(t *testing.T) {
	const letters = "abcdefghijkmnopqrstuvwxyzABCDEFGHIJK0123456789-_/\"\\\näé"
	runes := []rune(letters)
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		secret := strings.Builder{}
		for range 8 + random.IntN(60) {
			secret.WriteRune(runes[random.IntN(len(runes))])
		}
		value := secret.String()
		at := []func(any) map[string]any{
			func(v any) map[string]any {
				return map[string]any{"env": []any{map[string]any{"name": "A", "value": v}}}
			},
			func(v any) map[string]any { return map[string]any{"command": []any{"sh", v}} },
			func(v any) map[string]any { return map[string]any{"args": []any{v}} },
			func(v any) map[string]any {
				return map[string]any{"livenessProbe": map[string]any{"exec": map[string]any{"command": []any{v}}}}
			},
			func(v any) map[string]any {
				return map[string]any{"lifecycle": map[string]any{"preStop": map[string]any{"httpGet": map[string]any{"httpHeaders": []any{map[string]any{"name": "X", "value": v}}}}}}
			},
		}[random.IntN(5)]
		list := []string{"containers", "initContainers", "ephemeralContainers"}[random.IntN(3)]
		text, err := json.Marshal(map[string]any{"spec": map[string]any{list: []any{at(value)}}})
		if err != nil {
			t.Fatal(err)
		}
		quoted, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{value, string(quoted), fmt.Sprintf("%q", value), problem.Cut(value, 20), string(quoted)[:min(len(quoted), 20)]} {
			message := "the pod has " + said + " for the variable A, and this template needs 1"
			if got := secretsIn(text).redactMessage(message); got != hidden {
				t.Fatalf("seed %d: %q in %s is not hidden: %s", seed, value, text, got)
			}
		}
		const harmless = "the container app has another port named dns; rename that port"
		if got := secretsIn(text).redactMessage(harmless); got != harmless {
			t.Fatalf("seed %d: with %q, the message is %q", seed, value, got)
		}
	}
	short := secrets{"1", "info", ""}
	for message, want := range map[string]string{
		`the annotation is "loud"; it must be one of info, warn`: `the annotation is "loud"; it must be one of info, warn`,
		`the pod has "info" for the variable A`:                  hidden,
		`the pod has {"name":"A","value":"1"}`:                   hidden,
	} {
		if got := short.redactMessage(message); got != want {
			t.Errorf("%s: %s", message, got)
		}
	}
}
