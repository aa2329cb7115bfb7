// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates"
)

// fields are what another webhook sets in the sidecar of a pod, as JSON, and what the app has, after a comma.
type fields struct{ sidecar, app string }

// createPods sends pods of some owners to both webhooks, as the API server does. Another webhook changes the sidecar in
// between.
func createPods(t *testing.T, e *edge, namespace string, owners int, with fields) {
	t.Helper()
	for i := range owners {
		review := func(pod []byte) []byte {
			return []byte(strings.Replace(string(sampleBody(pod)), `"namespace":"shop"`, `"namespace":"`+namespace+`"`, 1))
		}
		body := review(fmt.Appendf(nil, `{"metadata":{"generateName":"web-","ownerReferences":[{"kind":"ReplicaSet","name":"web-%d","controller":true}]},"spec":{"containers":[{"name":"app","image":"a"%s}]}}`, i, with.app))
		_, patched := checkContract(t, webhook.PathMutate, body, e.answer(post(t, webhook.PathMutate, body)))
		var pod map[string]any
		if err := json.Unmarshal(patched, &pod); err != nil {
			t.Fatal(err)
		}
		for _, c := range pod["spec"].(map[string]any)["initContainers"].([]any) {
			changed := c.(map[string]any)
			if err := json.Unmarshal([]byte(with.sidecar), &changed); err != nil {
				t.Fatal(err)
			}
		}
		final, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		body = review(final)
		if r, _ := checkContract(t, webhook.PathValidate, body, e.answer(post(t, webhook.PathValidate, body))); !r.Allowed {
			t.Fatal(r.Result.Message)
		}
	}
}

// clusterReview is a review of a change of the template log-agent of the cluster.
func clusterReview(spec string, dryRun bool) []byte {
	return fmt.Appendf(nil, `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"pillion.dev","version":"v1alpha1","kind":"ClusterSidecarTemplate"},`+
		`"resource":{"group":"pillion.dev","version":"v1alpha1","resource":"clustersidecartemplates"},"name":"log-agent","operation":"CREATE","dryRun":%t,"userInfo":{"username":"u"},"object":`+
		`{"apiVersion":"pillion.dev/v1alpha1","kind":"ClusterSidecarTemplate","metadata":{"name":"log-agent"},"spec":{"default":true,%s}}}}`, dryRun, spec)
}

// loadObject returns an injector with the template log-agent of the cluster.
func loadObject(t *testing.T) func() *inject.Injector {
	t.Helper()
	set, err := templates.Load(templates.Source{Data: []byte(sidecar)})
	if err != nil {
		t.Fatal(err)
	}
	set.Templates[0].File = "clustersidecartemplate/log-agent" // it comes from the API server
	injector := inject.New(set)
	return func() *inject.Injector { return injector }
}

// TestLintDenials checks that the author of a template is warned if it would deny pods like those that were created
// lately, with what another webhook did to them, and by the new content of the template.
func TestLintDenials(t *testing.T) {
	t.Parallel()
	const container = `"pod":{"spec":{"initContainers":[{"name":"log-agent","image":"registry.example/log-agent:2","restartPolicy":"Always"}]}}`
	const port = `"pod":{"spec":{"containers":[{"name":"log-agent","image":"l","ports":[{"containerPort":80,"hostPort":80}]}]}}`
	for what, test := range map[string]struct {
		others, app string // fields that another webhook sets, and fields of the app
		spec        string
		want        string // part of the reason, or "" if no pod would be denied
	}{
		"nobody changes it":               {`{}`, "", `"required":true,` + container, ""},
		"a command":                       {`{"command":["sh"]}`, "", `"required":true,` + container, `log-agent: altered at /spec/initContainers/0/command`},
		"a command, and it only warns":    {`{"command":["sh"]}`, "", container, ""},
		"a mount":                         {`{"volumeMounts":[{"name":"v","mountPath":"/v"}]}`, "", `"required":true,` + container, ""},
		"a mount that it forbids":         {`{"volumeMounts":[{"name":"v","mountPath":"/v"}]}`, "", `"required":true,"validate":{"protect":["all","volumeMounts"]},` + container, `log-agent: altered at /spec/initContainers/0/volumeMounts`},
		"no restartPolicy":                {`{"restartPolicy":null}`, "", `"required":true,` + container, `log-agent: missing at /spec/initContainers/0/restartPolicy`},
		"another image":                   {`{"image":"mirror/log-agent:1"}`, "", `"required":true,` + container, `log-agent: altered at /spec/initContainers/0/image`},
		"a conflict with the app":         {`{}`, `,"ports":[{"containerPort":80,"hostPort":80}]`, `"required":true,` + port, `log-agent: conflict`},
		"a conflict that is not required": {`{}`, `,"ports":[{"containerPort":80,"hostPort":80}]`, port, ""},
	} {
		for _, dryRun := range []bool{false, true} {
			e := newEdge(loadObject(t))
			e.Log = discard()
			createPods(t, e, "shop", 2, fields{test.others, test.app})
			r, _ := checkContract(t, webhook.PathLint, clusterReview(test.spec, dryRun), e.answer(post(t, webhook.PathLint, clusterReview(test.spec, dryRun))))
			text := strings.Join(r.Warnings, "\n")
			first := test.want != "" && strings.HasPrefix(text, "2 of 2 pods that were created lately would be denied if they were created again: ReplicaSet shop/web-")
			if denied := strings.Contains(text, "would be denied"); !r.Allowed || denied != first || !strings.Contains(text, test.want) {
				t.Errorf("%s: %t %s", what, r.Allowed, text)
			}
		}
	}
}

// TestLintDenialsOfTenants checks that the author of a template of a namespace reads nothing about pods of others.
func TestLintDenialsOfTenants(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	e.Log = discard()
	const spec = `{"default":true,"required":true,"pod":{"spec":{"containers":[{"name":"mine","image":"m","ports":[{"containerPort":80,"hostPort":80}]}]}}}`
	warned := func() string {
		t.Helper()
		r, _ := checkContract(t, webhook.PathLint, templateReview(spec), e.answer(post(t, webhook.PathLint, templateReview(spec))))
		return strings.Join(r.Warnings, "\n")
	}
	createPods(t, e, "shop", 3, fields{"{}", `,"ports":[{"containerPort":80,"hostPort":80}]`})
	if text := warned(); strings.Contains(text, "denied") || strings.Contains(text, "shop") {
		t.Errorf("a user of team-a reads %s", text)
	}
	createPods(t, e, "team-a", 1, fields{"{}", `,"ports":[{"containerPort":80,"hostPort":80}]`})
	if text := warned(); !strings.Contains(text, "1 of 1 pods that were created lately would be denied if they were created again: ReplicaSet team-a/web-0\n") || strings.Contains(text, "shop") {
		t.Errorf("a user of team-a reads %s", text)
	}
}

// TestDeniedPodsAreForgotten checks that no warning is about a pod that was denied.
func TestDeniedPodsAreForgotten(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, strings.Replace(sidecar, "default: true", "default: true\n  required: true", 1)))
	e.Log = discard()
	body := sampleBody([]byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`))
	for _, path := range []string{webhook.PathMutate, webhook.PathValidate} { // the patch gets lost
		e.answer(post(t, path, body))
		if kept := webhook.RecentPods(e.Handler)["shop"]; (kept > 0) != (path == webhook.PathMutate) {
			t.Errorf("after %s, %d pods are kept", path, kept)
		}
	}
}

// TestInjectedPodsAreNotKept checks that a replica that is called only for the second round, after another webhook has added
// a container, does not take the injected pod for the one that its author wrote.
func TestInjectedPodsAreNotKept(t *testing.T) {
	t.Parallel()
	const each = "  forEachContainer: [{add: {env: [{name: A, value: b}]}}]\n"
	first, second := newEdge(load(t, sidecar+each)), newEdge(load(t, sidecar+each))
	first.Log, second.Log = discard(), discard()
	body := sampleBody([]byte(`{"metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"a"}]}}`))
	_, patched := checkContract(t, webhook.PathMutate, body, first.answer(post(t, webhook.PathMutate, body)))
	again := sampleBody([]byte(strings.Replace(string(patched), `"containers":[`, `"containers":[{"name":"other","image":"o"},`, 1)))
	if w := second.answer(post(t, webhook.PathMutate, again)); !strings.Contains(w.Body.String(), `"patch":`) {
		t.Fatalf("the second round adds nothing: %s", w.Body)
	}
	if kept := webhook.RecentPods(second.Handler)["shop"]; kept > 0 {
		t.Errorf("%d injected pods are kept", kept)
	}
}

// TestRecentPodsAreBounded checks that neither many owners nor large pods take more memory, and that one namespace does
// not drive out the pods of all others.
func TestRecentPodsAreBounded(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	e.Log = discard()
	for i := range 40 {
		createPods(t, e, fmt.Sprintf("team-%d", i), 1, fields{"{}", ""})
	}
	few := webhook.RecentPods(e.Handler)
	createPods(t, e, "flood", 500, fields{"{}", ""})
	many := webhook.RecentPods(e.Handler)
	createPods(t, e, "large", 1, fields{"{}", `,"args":["` + strings.Repeat("x", 32<<10) + `"]`})
	if len(many) > 32 || many["flood"] > 4 || len(many) < len(few)-1 || webhook.RecentPods(e.Handler)["large"] > 0 {
		t.Errorf("of 40 namespaces, %d remain beside %d pods of one: %v", len(many), many["flood"], many)
	}
}
