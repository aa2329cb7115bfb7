// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
)

// ofResource is the resource of an API path, as a message about rights has it.
func ofResource(path string) string {
	path, _, _ = strings.Cut(path, "?")
	names := strings.Split(strings.TrimPrefix(path, "/"), "/")
	names = names[2:] // api/v1, or apis/GROUP
	if strings.HasPrefix(path, "/apis/") {
		names = names[1:]
	}
	if len(names) > 2 && names[0] == "namespaces" {
		names = names[2:]
	}
	return names[0]
}

// TestRights checks that status, explain and diff report what a user may not read, name the resource, and go on with the rest. Only
// what the user asked for is an error, which also names the missing right.
func TestRights(t *testing.T) {
	t.Parallel()
	for command, itself := range map[string][]string{
		"status -A":                          {"/api/v1/namespaces"},
		"status shop":                        nil,
		"status shop trial":                  nil,
		"explain deploy/web -n shop":         {shopDeployments + "/web"},
		"explain -n shop":                    {shopDeployments}, // there is nothing else
		"diff -f testdata/templates -A":      {"/api/v1/namespaces"},
		"diff -f testdata/templates -n shop": nil,
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			ask := func(a *pagedAPI) (stdout, stderr string) {
				var out, errs bytes.Buffer
				run(append(strings.Fields(command), "--kubeconfig", a.kubeconfig(t)), nil, &out, &errs)
				return out.String(), errs.String()
			}
			whole := runningAPI(t)
			ask(whole)
			paths := slices.Sorted(maps.Keys(whole.asked))
			if len(paths) < 10 {
				t.Fatalf("it reads only %q", paths)
			}
			for _, path := range paths {
				if path == "/api/v1" {
					continue // every user may read which resources there are
				}
				a := runningAPI(t)
				a.forbids[path] = 1 << 30
				stdout, stderr := ask(a)
				if (stdout == "") != slices.Contains(itself, path) {
					t.Errorf("without %s: %q %q", path, stdout, stderr)
				}
				all := strings.Join(strings.Fields(stdout+stderr), " ")
				if resource := ofResource(path); !slices.Contains(unread, resource) && path != "/api/v1/namespaces/pillion-system" && (!strings.Contains(all, "ou are not allowed to") || !strings.Contains(strings.ToLower(all), strings.TrimSuffix(resource, "s"))) {
					t.Errorf("without %s it does not name the right:\n%s%s", path, stdout, stderr)
				}
			}
			a := runningAPI(t) // a developer with rights in his own namespace
			a.forbidOutside(paths)
			a.objects["/apis/authentication.k8s.io/v1/selfsubjectreviews"] = map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "status": map[string]any{"userInfo": map[string]any{"username": "dev@example.com"}}}
			stdout, stderr := ask(a)
			if all := strings.Join(strings.Fields(stdout), " "); !slices.Contains(itself, "/api/v1/namespaces") && (stderr != "" || !strings.Contains(all, "`kubectl create clusterrolebinding pillion-viewer-dev-example-com --clusterrole=pillion-viewer --user=dev@example.com`. Or let an administrator run the same command, or use --templates PATH") || strings.Contains(all, "gets nothing")) {
				t.Errorf("with the rights of a namespace only: %s%s", stdout, stderr)
			}
		})
	}
}

// TestNoEvents checks what explain says without rights about pods without a record, if the controller has reported nothing, has
// reported a mistake, or its Events cannot be read.
func TestNoEvents(t *testing.T) {
	t.Parallel()
	const eventsPath, none = "/api/v1/namespaces/shop/events", "there is no Event of Pillion's controller about it: the controller creates one only for a mistake in a new pod"
	whole := runningAPI(t)
	whole.runExplain(t, "deploy/web", "-n", "shop")
	for name, test := range map[string]struct {
		events    func(*pagedAPI)
		want, not string
	}{
		"none":      {func(a *pagedAPI) { a.list(eventsPath) }, none, "controller reported"},
		"forbidden": {func(a *pagedAPI) { a.forbids[eventsPath] = 9 }, "no injection is recorded in its 2 pods", none},
		"a mistake": {func(a *pagedAPI) {
			uid := a.objects[webPath].(map[string]any)["metadata"].(map[string]any)["uid"]
			event := yamlObject(t, `{apiVersion: v1, kind: Event, metadata: {name: e}, reason: Conflict, message: "The pods do not get it. Details: pillion explain x", involvedObject: {kind: Deployment}}`)
			event["involvedObject"].(map[string]any)["uid"] = uid
			a.list(eventsPath, event)
		}, "Pillion's controller reported Conflict: The pods do not get it.", none},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := runningAPI(t)
			a.forbidOutside(slices.Sorted(maps.Keys(whole.asked)))
			test.events(a)
			if text := a.explainText(t, exitProblem, "deploy/web", "-n", "shop"); !strings.Contains(text, test.want) || strings.Contains(text, test.not) {
				t.Errorf("want %q, and not %q: %s", test.want, test.not, text)
			}
		})
	}
}

// forbidOutside lets the user read no path outside of the namespace shop.
func (a *pagedAPI) forbidOutside(paths []string) {
	for _, path := range paths {
		if !strings.Contains(path, "/namespaces/shop") {
			a.forbids[path] = 1 << 30
		}
	}
}

// TestEventsOfPods checks that explain says without rights about a pod what the controller has reported about the workload that the pod
// belongs to.
func TestEventsOfPods(t *testing.T) {
	t.Parallel()
	whole := runningAPI(t)
	whole.runExplain(t, "deploy/web", "-n", "shop")
	a := runningAPI(t)
	a.forbidOutside(slices.Sorted(maps.Keys(whole.asked)))
	a.list("/api/v1/namespaces/shop/events", yamlObject(t, `{apiVersion: v1, kind: Event, metadata: {name: e}, reason: Conflict, message: "The pods do not get it. Details: pillion explain x", involvedObject: {kind: ReplicaSet, uid: u}}`))
	var out, errs bytes.Buffer
	run([]string{"explain", "pods", "-n", "shop", "--kubeconfig", a.kubeconfig(t)}, nil, &out, &errs)
	if !strings.Contains(out.String(), "Pillion's controller reported Conflict: The pods do not get it.") {
		t.Errorf("%s%s", out.String(), errs.String())
	}
}

// TestMisspelledWithoutRights checks that a user who can read no template learns about misspelled labels and annotations of Pillion's own, also
// if nothing has opted in, and nothing about keys that a template may have.
func TestMisspelledWithoutRights(t *testing.T) {
	t.Parallel()
	whole := runningAPI(t)
	whole.runExplain(t, "deploy/web", "-n", "shop")
	for name, optedIn := range map[string]bool{"opted in": true, "not opted in": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := runningAPI(t)
			a.forbidOutside(slices.Sorted(maps.Keys(whole.asked)))
			if !optedIn {
				delete(a.objects["/api/v1/namespaces/shop"].(map[string]any)["metadata"].(map[string]any)["labels"].(map[string]any), "pillion.dev/inject")
			}
			metadata := a.objects[webPath].(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["metadata"].(map[string]any)
			metadata["labels"].(map[string]any)["pillion.dev/injct"] = "enabled"
			metadata["annotations"] = map[string]any{"pilion.dev/templates": "agent", "agent.pillion.dev/unread": "x"}
			text := a.explainText(t, exitProblem, "deploy/web", "-n", "shop")
			for want, there := range map[string]bool{
				"the label pillion.dev/injct means nothing; did you mean pillion.dev/inject?":                       true,
				"the annotation pilion.dev/templates means nothing to Pillion; did you mean pillion.dev/templates?": true,
				"sets no parameter": false, "unknown template": false,
			} {
				if strings.Contains(text, want) != there {
					t.Errorf("%q is there: %t, want %t: %s", want, !there, there, text)
				}
			}
		})
	}
}

// unread are resources without which the report is the same. So is the namespace of Pillion.
var unread = []string{"mutatingadmissionpolicybindings", "mutatingadmissionpolicies", "validatingadmissionpolicies", "validatingadmissionpolicybindings", "events"}

// TestInvalidTemplate checks that an invalid template is reported, and that the report goes on with
// the others.
func TestInvalidTemplate(t *testing.T) {
	t.Parallel()
	a := runningAPI(t)
	a.objects["/api/v1/namespaces/pillion-system/configmaps/pillion-templates"].(map[string]any)["data"].(map[string]any)["broken.yaml"] = "{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: broken}, spec: {params: [{name: a, max: 3}], pod: {spec: {containers: [{name: b, image: b}]}}}}"
	const problem = "A template is invalid, so this report ignores it. Pillion keeps using its last valid templates, which may differ from all of these: configmap/pillion-templates/broken.yaml"
	a.wantText(t, exitProblem, []string{"shop"}, "Problem: "+problem, "agent: missing in")
	for _, args := range [][]string{{"deploy/web", "-n", "shop"}, {"-n", "shop"}} {
		if text := a.explainText(t, exitProblem, args...); !strings.Contains(text, problem) || !strings.Contains(text, "agent: injected") {
			t.Errorf("%q: %s", args, text)
		}
	}
}
