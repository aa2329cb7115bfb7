// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
)

// TestChangedSidecar checks that a webhook may change an unprotected field of a sidecar between two
// calls. The sidecar then counts as the user's for required templates, and what they add to it is no
// alteration, even if the sidecar's template protects that field. Any other value is.
func TestChangedSidecar(t *testing.T) {
	t.Parallel()
	for _, add := range []string{
		`securityContext: {runAsNonRoot: true, capabilities: {drop: [ALL]}}`,
		`ports: [{name: metrics, containerPort: 9}]`,
		`env: [{name: A, value: b}]`,
		`lifecycle: {preStop: {sleep: {seconds: 5}}}`,
		`resources: {limits: {cpu: "1"}}`,
	} {
		field, _, _ := strings.Cut(add, ":")
		for _, own := range []string{"", `, env: [{name: OWN, value: x}], ports: [{name: own, containerPort: 8}], securityContext: {readOnlyRootFilesystem: true}`} {
			for _, order := range []int{-1, 1} {
				injector := withSpecs(t,
					`validate: {mode: Deny, protect: [args, `+field+`]}, pod: {spec: {containers: [{name: k, image: "k:1"`+own+`}]}}`,
					fmt.Sprintf(`order: %d, required: true, forEachContainer: [{add: {%s}}]`, order, add))
				request := injectedBy(t, injector, `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`)
				request = injectedBy(t, injector, strings.Replace(string(request.Object), `"k:1"`, `"mirror/k:1"`, 1))
				if v := mustJudge(t, inject.NewJudge(injector, nil, true), request); len(v.Judged) > 0 {
					t.Errorf("%s%s: %v\n%s", add, own, v.Judged, request.Object)
				}
				request.Object = []byte(strings.Replace(string(request.Object), `"mirror/k:1",`, `"mirror/k:1","args":["evil"],`, 1))
				if v := mustJudge(t, inject.NewJudge(injector, nil, true), request); !v.Denied {
					t.Errorf("%s: another change passes", add)
				}
			}
		}
	}
}

// TestChangedSidecarDenied checks what a protected field of a sidecar may not have, although a
// required template adds something of it to all containers.
func TestChangedSidecarDenied(t *testing.T) {
	t.Parallel()
	const mount = `volumeMounts: [{name: v, mountPath: /v, readOnly: true}]`
	for name, c := range map[string]struct{ protect, add, has string }{
		"only protected fields differ":            {"all", `lifecycle: {preStop: {sleep: {seconds: 5}}}`, `"image":"k:1","lifecycle":{"preStop":{"sleep":{"seconds":5}}}`},
		"what the pod's author chooses":           {"all", `securityContext: {runAsUser: "${int(pod.metadata.labels['u'])}"}`, `"image":"k:1","securityContext":{"capabilities":{"drop":["ALL"]},"runAsUser":0}`},
		"a part beside the template's unit":       {"securityContext", `securityContext: {capabilities: {add: [NET_ADMIN]}}`, `"image":"k:2","securityContext":{"capabilities":{"drop":["ALL"],"add":["NET_ADMIN"]}}`},
		"a variable twice":                        {"env", `env: [{name: A, value: r}]`, `"image":"k:2","env":[{"name":"A","value":"own"},{"name":"A","value":"r"}]`},
		"an added variable twice":                 {"env", `env: [{name: B, value: r}]`, `"image":"k:2","env":[{"name":"A","value":"own"},{"name":"B","value":"r"},{"name":"B","value":"r"}]`},
		"a variable without its value":            {"env", `env: [{name: B, value: r}]`, `"image":"k:2","env":[{"name":"A","value":"own"},{"name":"B"}]`},
		"a mount that is not read-only":           {"volumeMounts", mount, `"image":"k:2","volumeMounts":[{"name":"v","mountPath":"/v"}]`},
		"a copy of itself":                        {"securityContext", `securityContext: "${container.?securityContext}"`, `"image":"k:2","securityContext":{"capabilities":{"drop":["ALL"]},"privileged":true}`},
		"a template that does not add to it":      {"env", `env: [{name: B, value: r}], ports: [{containerPort: 8}]`, `"image":"k:1","securityContext":{"capabilities":{"drop":["ALL"]}},"env":[{"name":"A","value":"own"},{"name":"B","value":"r"}]`},
		"another value of a field that is copied": {"ports", `ports: "${container.ports}"`, `"image":"k:2","ports":[{"containerPort":8}]`},
	} {
		injector := withSpecs(t,
			`validate: {mode: Deny, protect: [`+c.protect+`]}, pod: {spec: {containers: [{name: k, image: "k:1", securityContext: {capabilities: {drop: [ALL]}}, env: [{name: A, value: own}]}]}}`,
			`required: true, forEachContainer: [{add: {`+c.add+`}}], pod: {spec: {volumes: [{name: v, emptyDir: {}}]}}`)
		request := injectedBy(t, injector, `{"metadata":{"labels":{"u":"0"},"annotations":{"t0.pillion.dev/injected":"`+injector.Set().Templates[0].Revision+`"}},`+
			`"spec":{"containers":[{"name":"app","image":"a"},{"name":"k",`+c.has+`}]}}`)
		if v := mustJudge(t, inject.NewJudge(injector, nil, true), request); !v.Denied {
			t.Errorf("%s: it passes\n%s", name, request.Object)
		}
	}
}

// TestChangedSidecarCondition checks that a required template may read in a condition what it adds.
func TestChangedSidecarCondition(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t, `validate: {mode: Deny, protect: [env]}, pod: {spec: {containers: [{name: k, image: "k:1"}]}}`,
		`required: true, forEachContainer: [{where: "!container.env.exists(e, e.name == 'A')", add: {env: [{name: A, value: r}]}}]`)
	request := injectedBy(t, injector, `{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`)
	request = injectedBy(t, injector, strings.Replace(string(request.Object), `"k:1"`, `"mirror/k:1"`, 1))
	if v := mustJudge(t, inject.NewJudge(injector, nil, true), request); len(v.Judged) > 0 || strings.Count(string(request.Object), `"A"`) != 2 {
		t.Errorf("%v\n%s", v.Judged, request.Object)
	}
}

// TestDroppedPodResources checks that a pod is right without the resources that its containers were
// to share with it, if the API server drops those of the pod (feature gate PodLevelResources).
func TestDroppedPodResources(t *testing.T) {
	t.Parallel()
	injector := withSpecs(t, `required: true, forEachContainer: [{add: {resources: {requests: {memory: 1Mi}}}}],
		pod: {spec: {containers: [{name: k, image: k, resources: {requests: {cpu: 1m, memory: 8Mi}, limits: {cpu: "1", "example.com/gpu": "1"}}}]}}`)
	const pods = `"resources":{"limits":{"cpu":"2"}}`
	request := injectedBy(t, injector, `{"metadata":{"name":"web"},"spec":{`+pods+`,"containers":[{"name":"app","image":"a"}]}}`)
	for from, want := range map[string]string{
		"," + pods:                         "allowed",
		`"limits":{"example.com/gpu":"1"}`: "denied",
	} {
		final := request
		final.Object = []byte(strings.Replace(string(request.Object), from, "", 1))
		if v := mustJudge(t, inject.NewJudge(injector, nil, true), final); v.Word() != want {
			t.Errorf("without %s it is %s: %v\n%s", from, v.Word(), v.Judged, final.Object)
		}
	}
}
