// SPDX-License-Identifier: Apache-2.0

package uninject_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/uninject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// injectorOf returns an Injector with templates with these specs, named a, b and so on, in this order.
func injectorOf(t *testing.T, specs ...string) *inject.Injector {
	t.Helper()
	var all []*templates.Template
	for i, spec := range specs {
		text := fmt.Sprintf("{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: %c}, spec: {order: %d, default: true, %s}}", 'a'+i, i, spec)
		found, problems := templates.Parse("t", []byte(text))
		if len(problems) > 0 {
			t.Fatal(problems.Error())
		}
		all = append(all, found...)
	}
	return inject.New(templates.NewSet(all))
}

// requestFor returns a request to create a pod.
func requestFor(pod []byte) inject.Request {
	return inject.Request{Operation: "CREATE", OptedIn: true, File: true, Namespace: request.Namespace{Name: "shop"}, Object: pod}
}

// injectAndRecord injects a pod, and writes the annotation that Record returns. The empty values of the pod are in empties, by path.
func injectAndRecord(t *testing.T, injector *inject.Injector, pod []byte, empties map[string]string) []byte {
	t.Helper()
	req := requestFor(pod)
	result, err := injector.Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	value, err := uninject.Record(injector, req, result, func(path string) (string, string, bool) {
		for at, text := range empties {
			if path == at || strings.HasPrefix(path, at+"/") {
				return at, text, true
			}
		}
		return "", "", false
	})
	if err != nil {
		t.Fatal(err)
	}
	if value == "" {
		return result.InjectedJSON()
	}
	n, err := jsontree.Parse(result.InjectedJSON())
	if err != nil {
		t.Fatal(err)
	}
	new(jsontree.Journal).Add(n.At("metadata", "annotations"), inject.AnnotationUninject, jsontree.Text(value))
	return n.AppendWithAdditions(nil)
}

// TestRoundTrip checks that Original and Pod restore pods that were injected, once or by one more template after another, also if they
// had empty values, or the same values as a template.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	const side = `pod: {spec: {initContainers: [{name: side, image: "s:1", restartPolicy: Always}]}}`
	const app = `"containers":[{"name":"app","image":"app:1"}]`
	for name, c := range map[string]struct {
		specs   []string
		pod     string
		empties map[string]string
		stays   bool // whether an addition for one template stays unchanged if another one is injected later
	}{
		"a container":      {[]string{side}, `{"metadata":{"name":"web"},"spec":{` + app + `}}`, nil, false},
		"without metadata": {[]string{side}, `{"spec":{` + app + `}}`, nil, false},
		"from an API server": {
			[]string{side + `, forEachContainer: [{add: {securityContext: {privileged: false}, resources: {limits: {cpu: 1}}}}]`},
			`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app:1","resources":{}}],"dnsPolicy":"Default","schedulerName":"x","securityContext":{}}}`, nil, false,
		},
		"the pod's own security context of a server": {
			[]string{`pod: {spec: {securityContext: {fsGroup: 1}}}`},
			`{"metadata":{"name":"web"},"spec":{` + app + `,"dnsPolicy":"Default","schedulerName":"x","securityContext":{}}}`, nil, false,
		},
		"volumes and mounts": {
			[]string{`pod: {spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: side, image: "s:1", volumeMounts: [{name: v, mountPath: /v}]}]}}, forEachContainer: [{add: {volumeMounts: [{name: v, mountPath: /v}], env: [{name: A, value: a}]}}]`},
			`{"metadata":{"name":"web","annotations":{"x":"y"}},"spec":{"containers":[{"name":"app","image":"app:1","env":[{"name":"B","value":"b"}]},{"name":"other","image":"o:1"}],"volumes":[{"name":"w","emptyDir":{}}]}}`, nil, false,
		},
		"the same variable": {
			[]string{`forEachContainer: [{add: {env: [{name: A, value: a}, {name: B, value: b}]}}]`},
			`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app:1","env":[{"name":"A","value":"a"}]}]}}`, nil, false,
		},
		"the same annotation and volume": {
			[]string{`pod: {metadata: {annotations: {x.example/a: "1", x.example/b: "2"}}, spec: {volumes: [{name: v, emptyDir: {}}, {name: w, emptyDir: {}}]}}`},
			`{"metadata":{"name":"web","annotations":{"x.example/a":"1","z":"z"}},"spec":{` + app + `,"volumes":[{"name":"w","emptyDir":{}}]}}`, nil, false,
		},
		"the same object": {
			[]string{`forEachContainer: [{add: {securityContext: {privileged: false, runAsNonRoot: true}}}]`},
			`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app:1","securityContext":{"privileged":false}}]}}`, nil, false,
		},
		"empty values": {
			[]string{side + `, forEachContainer: [{add: {env: [{name: A, value: a}], volumeMounts: [{name: "${'v'}", mountPath: /v}]}}]`},
			`{"metadata":{"name":"web","annotations":{}},"spec":{"initContainers":[],"containers":[{"name":"app","image":"app:1","env":[],"volumeMounts":null}],"volumes":[{"name":"v","emptyDir":{}}]}}`,
			map[string]string{"/metadata/annotations": "{}", "/spec/initContainers": "[]", "/spec/containers/0/env": "[]", "/spec/containers/0/volumeMounts": "null"},
			false,
		},
		"a set": {
			[]string{`pod: {spec: {tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists}], securityContext: {supplementalGroups: [1, 2]}}}`},
			`{"metadata":{"name":"web"},"spec":{` + app + `,"tolerations":[{"key":"b","operator":"Exists"}],"securityContext":{"supplementalGroups":[3]}}}`, nil, false,
		},
		"host aliases": {
			[]string{`pod: {spec: {hostAliases: [{ip: 192.0.2.1, hostnames: [a, b]}]}}`},
			`{"metadata":{"name":"web"},"spec":{` + app + `,"hostAliases":[{"ip":"192.0.2.1","hostnames":["a"]},{"ip":"192.0.2.2","hostnames":["c"]}]}}`, nil, false,
		},
		"host aliases of its own": {
			[]string{`pod: {spec: {hostAliases: [{ip: 192.0.2.1, hostnames: [a, b]}, {ip: 192.0.2.3, hostnames: [d]}]}}`},
			`{"metadata":{"name":"web"},"spec":{` + app + `,"hostAliases":[{"ip":"192.0.2.1","hostnames":["a","b"]}]}}`, nil, false,
		},
		"volumes of two templates that may be lost": {
			[]string{
				`pod: {metadata: {annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes: v}}, spec: {volumes: [{name: v, emptyDir: {}}]}}`,
				`pod: {metadata: {annotations: {cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes: w}}, spec: {volumes: [{name: w, emptyDir: {}}]}}`,
			},
			`{"metadata":{"name":"web"},"spec":{` + app + `}}`, nil, true,
		},
		"a template that reads what another one adds": {
			[]string{
				`labelDomains: [x.example], pod: {metadata: {labels: {x.example/mesh: "on"}}}`,
				`match: {condition: "'x.example/mesh' in pod.metadata.?labels.orValue({})"}, forEachContainer: [{add: {env: [{name: MESH, value: "1"}]}}]`,
				side,
			},
			`{"metadata":{"name":"web"},"spec":{` + app + `}}`, nil, false,
		},
		"a template that counts what another one adds": {
			[]string{
				`pod: {spec: {volumes: [{name: v, emptyDir: {}}], containers: [{name: side, image: "s:1"}]}}`,
				`forEachContainer: [{add: {env: [{name: VOLUMES, value: "${string(size(pod.spec.?volumes.orValue([])))}"}]}}]`,
			},
			`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app:1","env":[{"name":"A","value":"a"}]},{"name":"other","image":"o:1"}],"volumes":[{"name":"own","emptyDir":{}}]}}`, nil, true,
		},
		"a container that was customized": {
			[]string{`pod: {spec: {containers: [{name: side, image: "s:1", env: [{name: A, value: a}]}]}}`},
			`{"metadata":{"name":"web","annotations":{"a.pillion.dev/customize":"true"}},"spec":{"containers":[{"name":"app","image":"app:1"},{"name":"side","args":["x"]}]}}`, nil, false,
		},
		"a container of the template that the pod had": {
			[]string{`pod: {spec: {containers: [{name: side, image: "s:1"}]}}, forEachContainer: [{add: {env: [{name: A, value: a}]}}]`},
			`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"side","image":"s:1"},{"name":"app","image":"app:1"}]}}`, nil, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := injectorOf(t, c.specs...)
			check := func(how string, pod []byte) {
				t.Helper()
				if isSame(t, pod, []byte(c.pod)) {
					t.Errorf("%s: nothing was injected", how)
				}
				left, err := uninject.Original(all, requestFor(pod))
				if err != nil || !isSame(t, left, []byte(c.pod)) {
					t.Errorf("%s: the original is\n%s, and not\n%s (%v)", how, left, c.pod, err)
					return
				}
				removal, err := uninject.Pod(all, requestFor(pod))
				if err != nil {
					t.Fatal(err)
				}
				rest := withEmpty(t, without(t, pod, removal), removal.Empty)
				if !isSame(t, rest, []byte(c.pod)) {
					t.Errorf("%s: without %q, the pod is\n%s, and not\n%s", how, removal.Paths, rest, c.pod)
				}
			}
			check("at once", injectAndRecord(t, all, []byte(c.pod), c.empties))
			if c.stays {
				return // then injecting the original gives another pod, which is an error
			}
			pod := []byte(c.pod)
			for n := range c.specs {
				pod = injectAndRecord(t, injectorOf(t, c.specs[:n+1]...), pod, c.empties)
			}
			check("one after another", pod)
			check("again", injectAndRecord(t, all, pod, nil))
		})
	}
}

// TestServedPods checks that Original restores pods that were injected by the webhook, so that nothing is recorded. An API server has
// written empty objects into them, which stay.
func TestServedPods(t *testing.T) {
	t.Parallel()
	const served = `"dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler"`
	for name, c := range map[string]struct{ spec, pod string }{
		"resources": {
			`forEachContainer: [{add: {resources: {limits: {cpu: 1}}}}]`,
			`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app:1","resources":{}}],"securityContext":{},` + served + `}}`,
		},
		"the security context of the pod": {
			`pod: {spec: {securityContext: {fsGroup: 1}}}`,
			`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app:1","resources":{}}],"securityContext":{},` + served + `}}`,
		},
		"not from an API server": {
			`forEachContainer: [{add: {resources: {limits: {cpu: 1}}}}]`,
			`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app:1"}],"schedulerName":"mine"}}`,
		},
	} {
		injector := injectorOf(t, c.spec)
		result, err := injector.Inject(requestFor([]byte(c.pod)))
		if err != nil {
			t.Fatal(err)
		}
		if left, err := uninject.Original(injector, requestFor(result.InjectedJSON())); err != nil || !isSame(t, left, []byte(c.pod)) {
			t.Errorf("%s: the original is\n%s, and not\n%s (%v)", name, left, c.pod, err)
		}
	}
}

// withEmpty returns a pod with the values that were empty before the injection.
func withEmpty(t *testing.T, pod []byte, all []uninject.Empty) []byte {
	t.Helper()
	for _, empty := range all {
		pod = patchPod(t, pod, fmt.Sprintf(`[{"op":"add","path":%q,"value":%s}]`, empty.Path, empty.Text))
	}
	return pod
}

// TestRecordErrors checks that nothing is recorded for a pod whose annotation is not one that Record has written.
func TestRecordErrors(t *testing.T) {
	t.Parallel()
	injector := injectorOf(t, `pod: {spec: {containers: [{name: side, image: "s:1"}]}}`)
	nothing := func(string) (string, string, bool) { return "", "", false }
	for value, want := range map[string]string{
		`not JSON`: "is not as inject writes it; remove it", `{}`: "which only an injection writes, but nothing was injected; remove the annotation",
	} {
		req := requestFor(fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}},"spec":{"containers":[{"name":"app","image":"app:1"}]}}`, inject.AnnotationUninject, value))
		result, err := injector.Inject(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := uninject.Record(injector, req, result, nothing); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", value, err, want)
		}
		if _, err := uninject.Pod(injector, req); (err == nil) != (value == `{}`) {
			t.Errorf("%s: %v", value, err)
		}
	}
	req := requestFor([]byte(`{"spec":{"containers":[{"name":"app","image":"app:1"}]}}`))
	result, err := injectorOf(t, `match: {condition: "false"}, pod: {spec: {containers: [{name: side, image: "s:1"}]}}`).Inject(req)
	if err != nil {
		t.Fatal(err)
	}
	if value, err := uninject.Record(injector, req, result, nothing); value != "" || err != nil {
		t.Errorf("nothing was injected, and the record is %q (%v)", value, err)
	}
}
