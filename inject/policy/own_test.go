// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestOwnContainers checks that expressions see the same containers in a policy and in the engine,
// whatever annotations the pod has.
func TestOwnContainers(t *testing.T) {
	t.Parallel()
	env := environment(t).env
	template := func(name, spec string) *templates.Template {
		return parse(t, fmt.Sprintf(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: %s}, spec: {default: true, %s}}`, name, spec))
	}
	set := templates.NewSet([]*templates.Template{
		template("plain", `pod: {spec: {containers: [{name: plain, image: p, args: [a, "b\"c"]}]}}`),
		template("computed", `params: [{name: v, default: "1"}], pod: {spec: {initContainers: [{name: computed, restartPolicy: Always, image: "c:${params.v}-x", command: ["${params.v}"]}]}}`),
		template("reader", `match: {condition: "size(pod.spec.containers) < 9"}, pod: {metadata: {annotations: {saw: "=${(pod.spec.containers + pod.spec.initContainers).map(c, c.name).join(',')} ${has(pod.spec.initContainers)}"}}}`),
	})
	m, ns := newMutations(t, env, set), request.Namespace{Name: "shop", Known: true, Labels: map[string]string{inject.LabelInject: inject.Enabled}}
	if m == nil {
		t.Fatal("the templates cannot be expressed")
	}
	m.ns = ns
	saw := func(pod []byte) string {
		var typed corev1.Pod
		if err := json.Unmarshal(pod, &typed); err != nil {
			t.Fatal(err)
		}
		return typed.Annotations["saw"]
	}
	seen := map[string]int{}
	for _, name := range []string{"plain", "computed", "app"} {
		for _, runs := range []string{
			`"image":"p"`, `"image":"p","args":["a","b\"c"]`, `"image":"p","args":["a"]`, `"image":"p","command":["a"]`, `"image":"legacy"`,
			`"image":"c:9-x"`, `"image":"c:9-x","command":["z"]`, `"image":"c:9-x","args":["z"]`, `"image":"c:9"`,
		} {
			for _, says := range []string{`"x":"y"`, `"plain.pillion.dev/injected":"0","computed.pillion.dev/injected":"0"`, `"plain.pillion.dev/customize":"true"`, `"computed.pillion.dev/customize":"no"`} {
				for _, lists := range []string{`"containers":[{"name":"web","image":"web:1"},%s]`, `"containers":[{"name":"web","image":"web:1"}],"initContainers":[%s]`} {
					pod := fmt.Appendf(nil, `{"metadata":{"name":"web","annotations":{%s}},"spec":{`+lists+`}}`, says, fmt.Sprintf(`{"name":%q,%s}`, name, runs))
					want, got := saw(injected(t, set, ns, pod)), saw(m.admit(t, pod))
					if want != got {
						t.Errorf("of %s, a template sees %q and a policy %q", pod, want, got)
					}
					seen[want]++
				}
			}
		}
	}
	if len(seen) < 5 {
		t.Errorf("all pods look alike: %v", seen)
	}
}
