// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"testing"

	"github.com/pillion-dev/pillion/inject/policy"
	"github.com/pillion-dev/pillion/templates"
)

// TestComputedPaths checks that two templates may mount volumes at paths that each computes from a
// parameter of its own, even if the parameters have the same name.
func TestComputedPaths(t *testing.T) {
	t.Parallel()
	var all []*templates.Template
	for _, name := range []string{"one", "two"} {
		found, problems := templates.Parse(name, []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: `+name+`}, spec: {
			params: [{name: directory, type: string, default: /`+name+`, pattern: "/[a-z]+"}],
			pod: {spec: {volumes: [{name: `+name+`, emptyDir: {}}]}},
			forEachContainer: [{add: {volumeMounts: [{name: `+name+`, mountPath: "${params.directory}"}]}}]}}`))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		all = append(all, found...)
	}
	if _, err := policy.Mutating(templates.NewSet(all), policy.Options{}); err != nil {
		t.Error(err)
	}
}
