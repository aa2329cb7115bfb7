// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"testing"
)

const levelTemplate = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  params: [{name: level, default: info, enum: [info, debug]}]
  pod: {spec: {initContainers: [{name: agent, image: "agent:1", args: ["${params.level}"], restartPolicy: Always}]}}
`

// TestPodLabelWithoutMeaning checks that explain and status both report a pod whose label has an
// invalid value.
func TestPodLabelWithoutMeaning(t *testing.T) {
	t.Parallel()
	a := newPagedAPI(0)
	pod := barePod("quiet", 0)
	pod["metadata"].(map[string]any)["labels"] = map[string]any{"pillion.dev/inject": "true"}
	a.objects["/api/v1/namespaces/quiet/pods/web"] = pod
	a.list("/api/v1/namespaces/quiet/pods", pod)
	a.list(optedInPods, pod)
	const want = `the pod's label has the invalid value "true"; use enabled`
	text := a.explainText(t, exitOK, "pod/web", "-n", "quiet")
	if !strings.Contains(text, want) || strings.Contains(text, "neither the namespace") || strings.Contains(text, "1 warning") && !strings.Contains(text, "unknown_parameter") {
		t.Errorf("explain: no %q in\n%s", want, text)
	}
	a.wantText(t, exitOK, []string{"quiet"}, want)
	a.wantText(t, exitOK, []string{"-A"}, want)
}

// TestInvalidParameter checks that explain and status do not advise a restart if a new pod would
// lack the same template.
func TestInvalidParameter(t *testing.T) {
	t.Parallel()
	a := explainAPI(t)
	a.objects["/api/v1/namespaces/pillion-system/configmaps/pillion-templates"].(map[string]any)["data"] = map[string]any{"agent.yaml": levelTemplate}
	pod := barePod("shop", 0)
	pod["metadata"].(map[string]any)["annotations"] = map[string]any{"agent.pillion.dev/level": "chatty"}
	a.objects[shopPods+"/web"] = pod
	a.lists[shopDeployments] = func(i int) map[string]any {
		web := thing("apps/v1", "Deployment", "shop", fmt.Sprintf("web-%d", i), nil)
		web["spec"] = map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"agent.pillion.dev/level": "chatty"}}, "spec": pod["spec"]}}
		return web
	}
	a.list(shopPods, pod)
	const want = "1 missing; a new pod would lack 1 template too, so a restart does not help: fix this first."
	if text := a.explainText(t, exitOK, "pod/web", "-n", "shop"); !strings.Contains(text, want) {
		t.Errorf("explain: no %q in\n%s", want, text)
	}
	a.wantText(t, exitProblem, []string{"shop"}, `the pod's annotation agent.pillion.dev/level is "chatty"`, "a restart does not help: fix this first")
}

// TestNamespaceMistake checks that a mistake in a namespace does not change the state of its pods.
// It is printed once, for any number of owners.
func TestNamespaceMistake(t *testing.T) {
	t.Parallel()
	a := newPagedAPI(25) // of three Deployments
	a.objects["/api/v1/namespaces/pillion-system/configmaps/pillion-templates"].(map[string]any)["data"] = map[string]any{"agent.yaml": levelTemplate}
	a.injectedPods()
	_, before, _ := a.status(t, "shop") // says by which revision they would be injected
	pod := a.lists[shopPods](0)
	a.objects[shopPods+"/web"] = pod
	reports, _ := a.explainJSON(t, exitOK, "pod/web", "-n", "shop")
	revision := reports[0].Templates[0].Revision
	older := a.lists[shopPods]
	a.lists[shopPods] = func(i int) map[string]any {
		pod := older(i)
		pod["metadata"].(map[string]any)["annotations"] = map[string]any{"agent.pillion.dev/injected": revision}
		return pod
	}
	a.objects["/api/v1/namespaces/shop"] = thing("v1", "Namespace", "", "shop", map[string]any{"labels": map[string]any{"pillion.dev/inject": "enabled"}})
	a.objects["/api/v1/namespaces/shop"].(map[string]any)["metadata"].(map[string]any)["annotations"] = map[string]any{"agent.pillion.dev/level": "chatty"}
	text := a.wantText(t, exitOK, []string{"shop"}, "of which 25 should be injected: 25 outdated.", "it was injected, but a new pod like it could not get it: the namespace's annotation, as above")
	if n := strings.Count(text, `"chatty"`); n != 1 || strings.Contains(text, "altered:") {
		t.Errorf("the mistake is printed %d times:\n%s\nbefore:\n%s", n, text, before)
	}
}

// TestStatusLeadsOn checks which pod status suggests for explain: one of a workload about which the
// report has nothing else.
func TestStatusLeadsOn(t *testing.T) {
	t.Parallel()
	a := newPagedAPI(0)
	var pods, deployments []map[string]any
	for i, name := range []string{"a", "m", "z"} {
		pod := barePod("shop", i)
		pod["metadata"].(map[string]any)["name"] = name
		pod["metadata"].(map[string]any)["labels"].(map[string]any)["pillion.dev/inject"] = "disabled"
		owner := pod["metadata"].(map[string]any)["ownerReferences"].([]any)[0].(map[string]any)
		owner["kind"], owner["name"] = "StatefulSet", name
		pods = append(pods, pod)
		set := thing("apps/v1", "StatefulSet", "shop", name, nil)
		set["spec"] = map[string]any{"replicas": 0, "template": map[string]any{"spec": pod["spec"]}}
		if name != "m" {
			set["metadata"].(map[string]any)["labels"] = map[string]any{"pillion.dev/inject": "enabled"} // misplaced
		}
		deployments = append(deployments, set)
	}
	a.list(shopPods, pods...)
	a.list("/apis/apps/v1/namespaces/shop/statefulsets", deployments...)
	if text := a.wantText(t, exitOK, []string{"shop"}, "Misplaced in the namespace shop", "3 pods get no sidecar"); !strings.Contains(text, " pod/m -n shop") {
		t.Error(text)
	}
}
