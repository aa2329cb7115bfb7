// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
)

// TestRecordsOfChangedPods checks pods whose records say that templates were injected, and whose containers were changed
// afterwards, or whose records are copies. A changed pod is denied. What the mutating webhook makes of a pod is allowed.
func TestRecordsOfChangedPods(t *testing.T) {
	t.Parallel()
	const head = "---\napiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\n"
	conditional := head + "metadata: {name: a}\nspec: {RULES, match: {condition: \"size(pod.spec.initContainers) == 0\"}, pod: {spec: {initContainers: [{name: ia, image: \"c:1\"}]}}}\n"
	canary := head + "metadata: {name: a}\nspec: {default: true, pod: {spec: {initContainers: [{name: sa, image: \"a:1\", restartPolicy: Always}]}}}\n" +
		head + "metadata: {name: b}\nspec: {replaces: a, validate: {mode: Deny, protect: [all]}, pod: {spec: {initContainers: [{name: sb, image: \"b:1\"}, {name: sc, image: \"b:2\"}]}}}\n"
	needy := head + "metadata: {name: a}\nspec: {default: true, pod: {metadata: {labels: {a.pillion.dev/l: x}}, spec: {containers: [{name: sa, image: \"a:1\"}]}}}\n" +
		head + "metadata: {name: b}\nspec: {replaces: a, validate: {mode: Deny}, pod: {metadata: {labels: {b.pillion.dev/l: \"${pod.metadata.labels['a.pillion.dev/l']}\"}}, spec: {containers: [{name: sb, image: \"b:1\"}]}}}\n"
	deny, required := "default: true, validate: {mode: Deny, protect: [all]}", "required: true"
	const app = `"containers":[{"name":"app","image":"app:1"}`
	for name, c := range map[string]struct {
		templates, annotations, spec string
		want                         string
		injects                      bool // judge what the mutating webhook makes of the pod
	}{
		"its own container with other args, Deny":      {templates: strings.Replace(conditional, "RULES", deny, 1), annotations: `"a.pillion.dev/injected":"old"`, spec: `"initContainers":[{"name":"ia","image":"c:1","args":["x"]}],` + app + "]", want: "denied"},
		"its own container with other args, required":  {templates: strings.Replace(conditional, "RULES", required, 1), annotations: `"a.pillion.dev/injected":"old"`, spec: `"initContainers":[{"name":"ia","image":"c:1","args":["x"]}],` + app + "]", want: "denied"},
		"its own container with another image, Deny":   {templates: strings.Replace(conditional, "RULES", deny, 1), annotations: `"a.pillion.dev/injected":"old"`, spec: `"initContainers":[{"name":"ia","image":"d:1"}],` + app + "]", want: "denied"},
		"a container of the user's, without a record":  {templates: strings.Replace(conditional, "RULES", deny, 1), spec: `"initContainers":[{"name":"other","image":"c:1"}],` + app + "]", want: "allowed"},
		"its own container, as it is":                  {templates: strings.Replace(conditional, "RULES", deny, 1), spec: app + "]", want: "allowed", injects: true},
		"a canary's container in another list":         {templates: canary, annotations: `"a.pillion.dev/injected":"090a0d8914f9","b.pillion.dev/injected":"090a0d8914f9"`, spec: `"initContainers":[{"name":"sc","image":"b:2"}],` + app + `,{"name":"sb","image":"b:1"}]`, want: "denied"},
		"a canary's container is gone":                 {templates: canary, annotations: `"a.pillion.dev/injected":"090a0d8914f9","b.pillion.dev/injected":"090a0d8914f9"`, spec: `"initContainers":[{"name":"sc","image":"b:2"}],` + app + "]", want: "denied"},
		"a copied record of a canary":                  {templates: canary, annotations: `"b.pillion.dev/injected":"x"`, spec: app + "]", want: "allowed", injects: true},
		"copied records of a canary and its base":      {templates: canary, annotations: `"a.pillion.dev/injected":"x","b.pillion.dev/injected":"x"`, spec: app + "]", want: "allowed", injects: true},
		"a copied record of the base":                  {templates: canary, annotations: `"a.pillion.dev/injected":"x"`, spec: app + "]", want: "allowed", injects: true},
		"a copied record of a canary that needs a":     {templates: needy, annotations: `"b.pillion.dev/injected":"x"`, spec: app + "]", want: "allowed", injects: true},
		"no record of a canary that needs a":           {templates: needy, spec: app + "]", want: "allowed", injects: true},
		"a copied record of a base, and the other one": {templates: needy, annotations: `"a.pillion.dev/injected":"x","b.pillion.dev/injected":"y"`, spec: app + "]", want: "allowed", injects: true},
	} {
		injector := parsed(t, c.templates)
		pod := []byte(`{"metadata":{"name":"web","annotations":{` + c.annotations + `}},"spec":{` + c.spec + `}}`)
		req := inject.Request{Operation: "CREATE", OptedIn: true, Namespace: shopNamespace(), Object: keptBy(t, pod, true)}
		if c.injects {
			checkOwnWork(t, injector, pod)
			r := mustInject(t, injector, req)
			req.Object = keptBy(t, r.InjectedJSON(), true)
			if r := mustInject(t, injector, req); r.Adds() {
				t.Errorf("%s: a second run adds %s", name, r.Patch())
			}
			if both := strings.Contains(string(req.Object), `"name":"sa"`) && strings.Contains(string(req.Object), `"name":"sb"`); both {
				t.Errorf("%s: the pod has both templates: %s", name, req.Object)
			}
		}
		if v := mustJudge(t, inject.NewJudge(injector, nil, true), req); v.Word() != c.want {
			t.Errorf("%s: %s, and must be %s: %v\n%s", name, v.Word(), c.want, v.Judged, req.Object)
		}
	}
}
