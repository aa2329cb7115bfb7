// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/templates"
)

// TestSampleValuesFit checks that lint tries a template with values of its parameters that are right for the fields that read them.
// The type of a parameter does not say that: a quantity can be 1, but a memory limit of 1 byte starts no container. In a pod, each
// parameter has the same field with and without a default, and with a condition that no sample pod meets before.
func TestSampleValuesFit(t *testing.T) {
	t.Parallel()
	fields := map[string]string{
		"quantity, description: memory": `resources: {limits: {memory: "%s"}}`,
		"quantity, description: both":   `resources: {limits: {memory: "%s", cpu: "%[1]s"}}`,
		"quantity, description: cpu":    `resources: {requests: {cpu: "%s"}}`,
		"string":                        `resources: {limits: {memory: "%s"}}`,
		"string, description: path":     `workingDir: "%s"`,
	}
	for param, field := range fields {
		for _, condition := range []string{"true", "pod.metadata.labels[?'tier'].orValue('') == 'front'"} {
			for _, optional := range []bool{true, false} {
				expression := map[bool]string{true: "${params.?p}", false: "${params.p}"}[optional]
				text := fmt.Sprintf(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: {
					match: {condition: %q}, params: [{name: p, type: %s, optional: %t}, {name: q, type: %[2]s, optional: %[3]t}],
					pod: {spec: {containers: [{name: a, image: "a:1", %s}, {name: b, image: "b:1", %s}]}}}}`,
					condition, param, optional, fmt.Sprintf(field, expression), fmt.Sprintf(field, strings.Replace(expression, "p}", "q}", 1)))
				found, problems := templates.Parse("x", []byte(text))
				if len(problems) > 0 {
					t.Fatal(problems)
				}
				e, err := limits.NewEvaluator()
				if err != nil {
					t.Fatal(err)
				}
				trial := e.Try(templates.NewSet(found), nil)[0]
				fails := func(hint string) bool { return strings.Contains(hint, "does not get it") }
				if len(trial.Fails) > 0 || slices.ContainsFunc(trial.Hints, fails) {
					t.Errorf("%s, %s, optional %t: %q, %q", param, condition, optional, trial.Fails, trial.Hints)
				}
			}
		}
	}
}
