// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
)

// TestHidden checks the hint about containers that a required template does not see.
func TestHidden(t *testing.T) {
	t.Parallel()
	const reads = `{required: true, match: {hostNetwork: true, condition: "pod.spec.containers.exists(c, c.name == 'a')"}, pod: {metadata: {annotations: {a: b}}}}`
	const each = `{required: true, match: {hostNetwork: true}, forEachContainer: [{add: {env: [{name: A, value: b}]}}]}`
	const neither = `{required: true, match: {hostNetwork: true}, pod: {metadata: {annotations: {a: b}}}}`
	for _, c := range []struct {
		spec, other string
		hint        bool
	}{
		{reads, "", true},
		{each, "", true},
		{neither, "", false},
		{reads, "validate: {mode: Warn, protect: [all]}, ", true},
		{reads, "validate: {mode: Deny, protect: [image]}, ", true},
		{reads, "validate: {mode: Deny, protect: [all]}, ", false},
		{strings.Replace(reads, "required: true, ", "", 1), "", false},
	} {
		var all []*templates.Template
		for name, spec := range map[string]string{"x": c.spec, "z": "{" + c.other + "pod: {spec: {containers: [{name: side, image: s}]}}}"} {
			found, problems := templates.Parse(name, []byte("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: "+name+"}, spec: "+spec+"}"))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			all = append(all, found...)
		}
		for _, trial := range evaluator(t).Try(templates.NewSet(all), nil) {
			if got := strings.Contains(strings.Join(trial.Hints, "; "), "like one of the template z"); got != (c.hint && trial.Template == "x") {
				t.Errorf("%s beside %q: %s: %q", c.spec, c.other, trial.Template, trial.Hints)
			}
		}
	}
}
