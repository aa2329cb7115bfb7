// SPDX-License-Identifier: Apache-2.0

package validity

import (
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// TestAppArmor checks the annotations of which the API server makes fields after the mutating webhook: the validating webhook,
// which sees the fields, agrees with the mutating one. The annotation may be for a container that a template completes or adds.
func TestAppArmor(t *testing.T) {
	const key = "container.apparmor.security.beta.kubernetes.io/"
	const required = `{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t1}, spec: {required: true, match: {condition: "pod.spec.containers.exists(c, has(c.securityContext))"}, forEachContainer: [{where: "has(container.securityContext)", add: {env: [{name: SEEN, value: "1"}]}}]}}`
	seen := map[inject.Code]int{}
	for _, protect := range []string{"all", "securityContext", "securityContext.appArmorProfile", "image"} {
		for _, security := range []string{"", ", securityContext: {runAsNonRoot: true}", ", securityContext: {appArmorProfile: {type: RuntimeDefault}}"} {
			for _, each := range []string{"", ", forEachContainer: [{add: {securityContext: {appArmorProfile: {type: RuntimeDefault}}}}]"} {
				var all []*templates.Template
				for _, document := range []string{`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: t0}, spec: {default: true, validate: {mode: Deny, protect: [` + protect + `]}, pod: {spec: {containers: [{name: side, image: s` + security + `}]}}` + each + `}}`, required} {
					found, problems := templates.Parse("t.yaml", []byte(document))
					if len(problems) > 0 {
						t.Fatal(problems)
					}
					all = append(all, found...)
				}
				for _, profile := range []string{"localhost/one", "localhost/", "runtime/default", "unconfined"} {
					for _, of := range []string{"side", "app"} {
						for _, rest := range []string{`,{"name":"side","image":"s"}]`, `,{"name":"side","image":"own"}]`, `]`, `],"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}`} {
							podJSON, err := sent([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{"t0.pillion.dev/customize":"true","` + key + of + `":"` + profile + `"}},"spec":{"containers":[{"name":"app","image":"a"}` + rest + `}}`))
							if err != nil {
								t.Fatal(err)
							}
							if _, err := stored(podJSON); err != nil {
								continue // for example a container that the pod does not have
							}
							c := &checker{T: t, injector: inject.New(templates.NewSet(all))}
							_, codes := c.inject(podJSON, false)
							if seen[codes["t0"]]++; t.Failed() {
								t.Fatalf("protect %s%s%s: %v\n%s", protect, security, each, codes, podJSON)
							}
						}
					}
				}
			}
		}
	}
	if seen[inject.CodeInjected] < 50 || seen[inject.CodeConflict] < 10 {
		t.Errorf("too few of each: %v", seen)
	}
}
