// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// usualCauses are why a pod lacks a sidecar, or does not even exist. Each has a Deployment of that name.
var usualCauses = []struct {
	name, namespace                string
	labels, annotations, container string // of the pod
	// What pillion explain prints for an administrator, and for a developer who has only the role edit in the namespace.
	administrator, developer string
	// A command of kubectl, and what it prints.
	kubectl, prints string
}{
	{
		name: "not-opted-in", namespace: "plain",
		administrator: `With the label pillion.dev/inject: enabled on the namespace, the pod gets 1 of .*the label pillion.dev/injct of the namespace means nothing; did you mean pillion.dev/inject`,
		developer:     `neither the pod nor its namespace has the label pillion.dev/inject, .*the label pillion.dev/injct of the namespace means nothing; did you mean pillion.dev/inject`,
		kubectl:       "get namespace plain --show-labels", prints: "pillion.dev/injct=enabled",
	},
	{
		name: "opted-out", namespace: causesNamespace, labels: ", pillion.dev/inject: disabled",
		administrator: `the pod has the label pillion.dev/inject: disabled`,
		developer:     `the pod has the label pillion.dev/inject: disabled`,
		kubectl:       "describe deployment opted-out -n caused", prints: "pillion.dev/inject=disabled",
	},
	{
		name: "unknown-template", namespace: causesNamespace, annotations: "pillion.dev/templates: shiper",
		administrator: `unknown template "shiper"; did you mean "shipper"`,
		developer:     `Pillion's controller reported UnknownTemplate: .* unknown template "shiper"; did you mean "shipper"`,
		kubectl:       "describe deployment unknown-template -n caused", prints: `unknown template "shiper"; did you mean "shipper"`,
	},
	{
		name: "invalid-parameter", namespace: causesNamespace, annotations: "shipper.pillion.dev/level: loud",
		administrator: `the pod's annotation shipper.pillion.dev/level is "loud"; it must be one of info, debug`,
		developer:     `Pillion's controller reported InvalidParameter: .* annotation shipper.pillion.dev/level is "loud"; it must be one of info, debug`,
		kubectl:       "describe deployment invalid-parameter -n caused", prints: `annotation shipper.pillion.dev/level is "loud"; it must be one of info, debug`,
	},
	{
		name: "conflict", namespace: causesNamespace, container: "{name: shipper, image: 'mine:1'}",
		administrator: `the pod has its own container named shipper, .* set the annotation shipper.pillion.dev/customize: "true"`,
		developer:     `Pillion's controller reported Conflict: .* the pod has its own container named shipper, .* set the annotation shipper.pillion.dev/customize: "true"`,
		kubectl:       "describe deployment conflict -n caused", prints: `the pod has its own container named shipper, .*shipper.pillion.dev/customize: "true"`,
	},
	{
		name: "too-old", namespace: "late",
		administrator: `1 of 1 pod does not have it, .* rollout restart deployment/too-old -n late`,
		developer:     `no injection is recorded in its 1 pod, of which 1 existed before the namespace opted in; Pillion sees a pod when it is created`,
		kubectl:       "describe pods -n late -l app=too-old", prints: "Annotations: <none>", // no record
	},
	{
		name: "down", namespace: causesNamespace,
		administrator: `failed calling webhook .* See whether its pods run\..* -n pillion-system get deployment,pods`,
		developer:     `failed calling webhook .* See whether its pods run\..* -n pillion-system get deployment,pods`,
		kubectl:       "describe replicaset -n caused -l app=down", prints: "failed calling webhook",
	},
}

const causesNamespace = "caused"

// TestCauses checks for each usual cause that one command prints the cause and what to do, for an administrator and for a developer
// who has no rights but those of a namespace.
func TestCauses(t *testing.T) {
	t.Parallel()
	i := install(t, newCluster(t), "self-signed")
	i.waitForInjection(t)
	c := &controlled{i.Cluster}
	c.start(t)
	c.kubectl(t, `apiVersion: v1
kind: Namespace
metadata: {name: caused, labels: {pillion.dev/inject: enabled}}
---
apiVersion: v1
kind: Namespace
metadata: {name: plain, labels: {pillion.dev/injct: enabled}}
---
apiVersion: v1
kind: Namespace
metadata: {name: late}
---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: shipper}
spec:
  default: true
  params: [{name: level, type: string, default: info, enum: [info, debug]}]
  pod:
    spec:
      containers: [{name: shipper, image: "shipper:1", env: [{name: LEVEL, value: "${params.level}"}]}]
`, "apply", "-f", "-")
	c.wantReady(t, "clustersidecartemplate/shipper", "True Valid")
	deploy := func(name, namespace, labels, annotations, container string) {
		if container == "" {
			container = "{name: app, image: 'app:1'}"
		}
		c.kubectl(t, fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s}\nspec: {selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s%s}, annotations: {%s}}, spec: {containers: [%s]}}}\n", name, labels, annotations, container), "apply", "-n", namespace, "-f", "-")
	}
	kubeconfigs := map[string]string{"administrator": c.Kubeconfig}
	for _, user := range []string{"developer", "nobody"} {
		c.kubectl(t, "", "create", "serviceaccount", user, "-n", "default")
		kubeconfig, err := i.WriteKubeconfig(user, strings.TrimSpace(c.kubectl(t, "", "create", "token", user, "-n", "default")))
		if err != nil {
			t.Fatal(err)
		}
		kubeconfigs[user] = kubeconfig
	}
	for _, namespace := range []string{causesNamespace, "plain", "late"} {
		if err := i.WaitForPods(testContext(t), namespace); err != nil {
			t.Fatal(err)
		}
		c.kubectl(t, "", "create", "rolebinding", "developers", "-n", namespace, "--clusterrole=edit", "--serviceaccount=default:developer")
	}
	for _, of := range usualCauses {
		if of.name == "down" {
			for _, r := range i.replicas {
				if err := r.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			i.replicas = nil
		}
		deploy(of.name, of.namespace, of.labels, of.annotations, of.container)
		if of.name == "too-old" {
			eventually(t, "the pod is older than the label, which has a time in seconds", func(ctx context.Context) error {
				pods, err := i.Client.CoreV1().Pods(of.namespace).List(ctx, metav1.ListOptions{})
				if err == nil && (len(pods.Items) == 0 || time.Since(pods.Items[0].CreationTimestamp.Time) < time.Second) {
					err = errors.New("not yet")
				}
				return err
			})
			c.kubectl(t, "", "label", "namespace", of.namespace, "pillion.dev/inject=enabled")
		}
		for user, want := range map[string]string{
			"administrator": of.administrator, "developer": of.developer,
			"nobody": "you are not allowed to get deployments in the namespace " + of.namespace + ": ask for the verb get on the resource deployments",
		} {
			t.Run(of.name+"/"+user, func(t *testing.T) {
				c.wantOutput(t, want, func(ctx context.Context) ([]byte, error) {
					return exec.CommandContext(ctx, env.binary, "explain", "deploy/"+of.name, "-n", of.namespace, "--kubeconfig", kubeconfigs[user]).CombinedOutput()
				})
			})
		}
		t.Run(of.name+"/kubectl", func(t *testing.T) {
			c.wantOutput(t, of.prints, func(ctx context.Context) ([]byte, error) {
				return c.RunKubectl(ctx, nil, strings.Fields(of.kubectl)...)
			})
		})
	}
}

// wantOutput waits until a command prints what a pattern matches, wherever its lines are wrapped.
func (c *controlled) wantOutput(t *testing.T, pattern string, run func(context.Context) ([]byte, error)) {
	t.Helper()
	eventually(t, "a command prints the cause and what to do", func(ctx context.Context) error {
		out, _ := run(ctx) // the exit code may be 1, because something is wrong
		if !regexp.MustCompile(pattern).MatchString(strings.Join(strings.Fields(string(out)), " ")) {
			return fmt.Errorf("it prints\n%s", out)
		}
		return nil
	})
}
