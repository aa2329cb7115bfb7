// SPDX-License-Identifier: Apache-2.0

package sample_test

import (
	"testing"

	"github.com/pillion-dev/pillion/inject/lint/sample"
)

// TestValueOfPattern checks that a parameter gets a sample value that its pattern requires.
func TestValueOfPattern(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{
		"(s3|gs)://[a-z]+/[a-z]+":          "s3://a/a",
		"[a-z]+=[a-z/]+(,[a-z]+=[a-z/]+)*": "a=a",
		"[0-9]{4}-[0-9]{2}":                "0000-00",
	} {
		tmpl := parse(t, `params: [{name: p, type: string, pattern: "`+pattern+`"}]
  pod: {metadata: {annotations: {x.example.com/a: b}}}`)
		if got := sample.Value(tmpl, &tmpl.Spec.Params[0]); got != want {
			t.Errorf("%s gives %q, want %q", pattern, got, want)
		}
	}
}
