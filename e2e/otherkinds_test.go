// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// otherKinds are kinds that Pillion does not know: one with a pod template, and one whose controller makes pods in its own way.
const otherKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: rollouts.argoproj.io}
spec:
  group: argoproj.io
  scope: Namespaced
  names: {kind: Rollout, plural: rollouts, singular: rollout, shortNames: [ro]}
  versions: [{name: v1alpha1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: taskruns.tekton.dev}
spec:
  group: tekton.dev
  scope: Namespaced
  names: {kind: TaskRun, plural: taskruns, singular: taskrun}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

const otherObjects = `
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web}
spec: {template: {metadata: {annotations: {pillion.dev/templates: nonsense}}, spec: {containers: [{name: web, image: web}]}}}
---
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: build}
spec: {taskSpec: {steps: [{name: s, image: golang}]}}
---
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: idle}
spec: {}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1}
spec: {replicas: 0, selector: {matchLabels: {app: rollout}}, template: {metadata: {labels: {app: rollout}}, spec: {containers: [{name: web, image: web}]}}}
`

// explainOtherKinds checks that explain finds the pods of objects of any kind: by their pod templates, and by owner references, also
// across other owners.
func (i *installed) explainOtherKinds(t *testing.T) {
	t.Helper()
	kubectl := func(stdin string, args ...string) string {
		t.Helper()
		out, err := i.RunKubectl(testContext(t), []byte(stdin), append(args, "-n", i.namespace)...)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	kubectl(otherKinds, "apply", "-f", "-")
	eventually(t, "the API server has the kinds", func(ctx context.Context) error {
		_, err := i.RunKubectl(ctx, []byte(otherObjects), "apply", "-n", i.namespace, "-f", "-")
		return err
	})
	uid := func(object string) string { return kubectl("", "get", object, "-o", "jsonpath={.metadata.uid}") }
	owned := func(object string, by ...string) {
		var owners []string
		for _, of := range by {
			apiVersion := map[string]string{"rollout": "argoproj.io/v1alpha1", "taskrun": "tekton.dev/v1", "replicaset": "apps/v1"}[strings.Split(of, "/")[0]]
			kind := map[string]string{"rollout": "Rollout", "taskrun": "TaskRun", "replicaset": "ReplicaSet"}[strings.Split(of, "/")[0]]
			owners = append(owners, fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}`, apiVersion, kind, strings.Split(of, "/")[1], uid(of)))
		}
		kubectl("", "patch", object, "--type=merge", "-p", `{"metadata":{"ownerReferences":[`+strings.Join(owners, ",")+`]}}`)
	}
	for _, name := range []string{"of-rollout", "of-task", "of-nobody"} {
		pod := newPod(name, restricted, requests("fluent-bit"))
		if _, err := i.Client.CoreV1().Pods(i.namespace).Create(testContext(t), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	owned("replicaset/web-1", "rollout/web")
	owned("pod/of-rollout", "replicaset/web-1")
	owned("taskrun/idle", "taskrun/idle") // a circle
	owned("pod/of-task", "taskrun/idle", "taskrun/build")

	for arguments, want := range map[string]string{
		"rollout/web":              `(?s)^Rollout/web .*nonsense.*Note: Pillion does not know this kind. This is about pods with the template at spec.template.*\nPod/of-rollout `,
		"ro/web":                   `(?s)^Rollout/web .*\nPod/of-rollout `,
		"rollouts.argoproj.io web": `(?s)^Rollout/web .*\nPod/of-rollout `,
		"taskrun/build":            `^Pod/of-task `,
		"taskruns.v1.tekton.dev/build deploy/web": `(?s)^Pod/of-task .*\nDeployment/web `,
		"configmap/kube-root-ca.crt":              `configmap/kube-root-ca.crt: it has no pod template, and no pod in the namespace \S+ belongs to it`,
		"gadget/x":                                `gadget/x: "gadget" has no pods; use one of .*the cluster has none of this name`,
		"node/x":                                  `node/x: Node is in no namespace, so it has no pods`,
	} {
		args := append([]string{"explain", "--kubeconfig", i.Kubeconfig, "-n", i.namespace}, strings.Fields(arguments)...)
		cmd := exec.CommandContext(testContext(t), env.binary, args...)
		cmd.Env = append(os.Environ(), "COLUMNS=") // one sentence in one line
		out, _ := cmd.CombinedOutput()             // exits with 1 for what cannot be found
		text := strings.TrimPrefix(string(out), "pillion: ")
		if !regexp.MustCompile(want).MatchString(text) || strings.Contains(text, "of-nobody") {
			t.Errorf("explain %s prints\n%s\nwant %s", arguments, text, want)
		}
	}
}
