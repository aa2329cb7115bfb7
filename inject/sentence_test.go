// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
)

// TestMessagesAreSentences checks that a pod's author cannot put line breaks, escapes of a terminal or
// very long strings into the messages of decisions and findings.
func TestMessagesAreSentences(t *testing.T) {
	t.Parallel()
	const bad = "z\nlevel=ERROR \x1b[31m\u202e"
	for name, c := range map[string]struct{ spec, annotation, value, volume string }{
		"key of CEL":    {`params: [{name: k, default: a}], pod: {spec: {containers: [{name: s, image: "${pod.metadata.labels[params.k]}"}]}}`, "t0.pillion.dev/k", bad, "v"},
		"tag of YAML":   {`params: [{name: k, type: json, default: "{}"}], pod: {spec: {containers: [{name: s, image: i}]}}`, "t0.pillion.dev/k", "!<%0Apwned%1B[31m> {a: b}", "v"},
		"long tag":      {`params: [{name: k, type: json, default: "{}"}], pod: {spec: {containers: [{name: s, image: i}]}}`, "t0.pillion.dev/k", "!" + strings.Repeat("x", 10_000) + " {a: b}", "v"},
		"key of a map":  {`params: [{name: k, type: map, keyPattern: "[^=]+", default: ""}], pod: {spec: {containers: [{name: s, image: i}]}}`, "t0.pillion.dev/k", bad + "=1," + bad + "=2", "v"},
		"volume":        {`params: [{name: k, default: a}], pod: {spec: {containers: [{name: s, image: i, volumeMounts: [{name: "${pod.spec.volumes[0].name}x", mountPath: /a}]}]}}`, "t0.pillion.dev/k", "a", bad},
		"mount":         {`pod: {spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: s, image: i}]}}, forEachContainer: [{add: {volumeMounts: [{name: v, mountPath: /a}]}}]`, "a", "a", bad},
		"unknown names": {`pod: {spec: {containers: [{name: s, image: i}]}}`, "pillion.dev/templates", bad, "v"},
	} {
		injector := withSpecs(t, "validate: {mode: Deny}, "+c.spec)
		pod, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"annotations": map[string]string{c.annotation: c.value}},
			"spec":     map[string]any{"volumes": []any{map[string]any{"name": c.volume}}, "containers": []any{map[string]any{"name": "app", "volumeMounts": []any{map[string]any{"name": c.volume, "mountPath": "/a"}}}}},
		})
		if err != nil {
			t.Fatal(err)
		}
		r, err := injector.Inject(inject.Request{Operation: "CREATE", OptedIn: true, Object: pod, Detail: true})
		if err != nil {
			t.Fatal(err)
		}
		d := &r.Decisions[0]
		all := append([]string{d.Message}, d.Notes...)
		for _, o := range d.Obstacles {
			all = append(all, o.Message)
		}
		for _, f := range append(r.Check(), r.Findings...) {
			all = append(all, f.Message)
		}
		if len(strings.Join(all, "")) == 0 {
			t.Errorf("%s: there is no message: %s", name, d.Code)
		}
		for _, message := range all {
			if strings.ContainsAny(message, "\n\r\x1b\u202e") || len(message) > 4096 {
				t.Errorf("%s: %d bytes: %.200q", name, len(message), message)
			}
		}
	}
}
