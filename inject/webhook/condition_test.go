// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"testing"

	"github.com/pillion-dev/pillion/inject/webhook"
)

// TestConditionReadsRequest checks that a template's condition sees the fields of the request that the API server sent.
func TestConditionReadsRequest(t *testing.T) {
	t.Parallel()
	for condition, body := range map[string]func([]byte) []byte{
		"request.dryRun":                func(b []byte) []byte { return bytes.Replace(b, []byte(`"dryRun":false`), []byte(`"dryRun":true`), 1) },
		"!request.dryRun":               func(b []byte) []byte { return b },
		"request.operation == 'CREATE'": func(b []byte) []byte { return b },
		"request.username == 'user'":    func(b []byte) []byte { return b },
	} {
		e := newEdge(load(t, `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: agent}, spec: {
  default: true, match: {condition: "`+condition+`"}, pod: {spec: {containers: [{name: agent, image: "agent:1"}]}}}}`))
		sent := body(reviewOf(t, "v1", "CREATE", "shop", []byte(pod)))
		r, _ := checkContract(t, webhook.PathMutate, sent, e.answer(post(t, webhook.PathMutate, sent)))
		if r.Patch == nil {
			t.Errorf("%s is false for %s", condition, sent)
		}
	}
}
