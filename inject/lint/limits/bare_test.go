// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/templates"
)

// TestFailsForSomeSamples checks that a template is reported if it fails for a pod with only names and images, or
// with requests and limits, and not if its condition excludes these pods. It is also reported if two of its entries exclude each other.
func TestFailsForSomeSamples(t *testing.T) {
	t.Parallel()
	const field = `securityContext: "${pod.spec.containers[0].%ssecurityContext}"`
	for spec, want := range map[string]string{
		`{pod: {spec: {containers: [{name: a, image: a, ` + strings.Replace(field, "%s", "", 1) + `}]}}}`:                                                                           "it fails for pods whose containers have only a name and an image (render_failed)",
		`{pod: {spec: {containers: [{name: a, image: a, ` + strings.Replace(field, "%s", "?", 1) + `}]}}}`:                                                                          "",
		`{match: {condition: "pod.spec.containers.all(c, has(c.securityContext))"}, pod: {spec: {containers: [{name: a, image: a, ` + strings.Replace(field, "%s", "", 1) + `}]}}}`: "",
		`{pod: {spec: {containers: [{name: a, image: a, args: ["${pod.spec.containers[0].resources.limits.size() > 1 ? string([1][2]) : ''}"]}]}}}`:                                 "it fails for pods with requests and limits (render_failed)",
		`{forEachContainer: [{add: {securityContext: {runAsUser: 0}}}, {add: {securityContext: {runAsNonRoot: true}}}]}`:                                                            "it fails for pods whose containers have only a name and an image (conflict): the template adds runAsUser: 0 to the container app, and cannot add securityContext.runAsNonRoot: true beside that",
		`{forEachContainer: [{add: {resources: {limits: {cpu: 1}}}}, {where: "container.name != 'x'", add: {resources: {requests: {cpu: 1m}}}}]}`:                                   "it fails for pods whose containers have only a name and an image (conflict): the template adds limits.cpu: 1 to the container app",
		`{forEachContainer: [{add: {securityContext: {runAsUser: 5}}}, {add: {securityContext: {runAsNonRoot: true}}}]}`:                                                            "",
	} {
		found, problems := templates.Parse("x", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: x}, spec: `+spec+`}`))
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		e, err := limits.NewEvaluator()
		if err != nil {
			t.Fatal(err)
		}
		if got := e.Try(templates.NewSet(found), nil)[0].Fails; !strings.HasPrefix(strings.Join(got, "\n"), want) || want == "" && got != nil {
			t.Errorf("%s: %q, not %q", spec, got, want)
		}
	}
}
