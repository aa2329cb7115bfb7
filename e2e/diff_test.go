// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// counted is a number of pods and of workloads.
type counted struct{ Pods, Owners int }

// diffed is what pillion diff -o json says of one template.
type diffed struct {
	Template                                                         string
	Gets, Loses, Changes, InPlace, NewPod, Rejected, Accepted, Fails counted
	Causes                                                           []struct {
		Effect, How, By, Why string
		Fields               []string
	}
}

// differ is a cluster whose templates change.
type differ struct {
	*user
}

// agentSpec is the template of the tests. Its edits are pairs of strings to replace.
func agentSpec(edits ...string) string {
	return strings.NewReplacer(edits...).Replace(`---
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  match: {podSelector: {matchExpressions: [{key: app, operator: In, values: [web, api, task]}]}}
  pod:
    spec:
      initContainers:
      - {name: agent, image: "registry.example/agent:1", restartPolicy: Always, args: [run]}
`)
}

// appDeployment is a Deployment whose pods have one container, web, that requests 100Mi.
func appDeployment(name string, replicas int) string {
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: web, image: "registry.example/web:1", resources: {requests: {memory: 100Mi}}}]}
`, name, replicas)
}

// TestDiff checks that what pillion diff foretells about a change of templates happens after it is applied.
func TestDiff(t *testing.T) {
	t.Parallel()
	i := install(t, newCluster(t), "self-signed")
	i.waitForInjection(t)
	d := &differ{i.newUser(t)}
	d.namespace(t, "changes", nil)
	d.apply(t, "changes", appDeployment("web", 2)+appDeployment("api", 1))
	d.task(t)
	d.waitFor(t, "changes", 4, "")

	t.Run("gets", d.gets)
	t.Run("in place", d.inPlace)
	t.Run("new pods", d.newPods)
	t.Run("loses", d.loses)
	t.Run("denied by Pillion", d.denied)
	t.Run("Pod Security", d.podSecurity)
	t.Run("quota", d.quota)
}

func (d *differ) namespace(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{injectLabel: "enabled"}}}
	maps.Copy(ns.Labels, labels)
	if _, err := d.Client.CoreV1().Namespaces().Create(testContext(t), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := d.WaitForPods(testContext(t), name); err != nil {
		t.Fatal(err)
	}
}

// write writes a file for the user.
func (d *differ) write(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, "new.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (d *differ) apply(t *testing.T, namespace, text string) {
	t.Helper()
	d.write(t, text)
	if out, code, err := d.run(testContext(t), "kubectl apply -n "+namespace+" -f new.yaml"); err != nil || code != 0 {
		t.Fatalf("%v: %s", err, out)
	}
}

// task makes a pod without a workload.
func (d *differ) task(t *testing.T) {
	t.Helper()
	if _, err := d.Client.CoreV1().Pods("changes").Create(testContext(t), d.like("task"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// like is a pod as a workload makes it.
func (d *differ) like(app string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: app, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("100Mi")},
		}}}},
	}
}

// waitFor waits for a number of pods whose sidecar has this image, or which have none.
func (d *differ) waitFor(t *testing.T, namespace string, n int, image string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods with %q", n, image), func(ctx context.Context) error {
		all, err := d.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := 0
		for i := range all.Items {
			if imageOf(&all.Items[i]) == image && all.Items[i].DeletionTimestamp == nil {
				found++
			}
		}
		if found != n {
			return fmt.Errorf("there are %d", found)
		}
		return nil
	})
}

// imageOf is that of the first init container, or "".
func imageOf(p *corev1.Pod) string {
	if len(p.Spec.InitContainers) == 0 {
		return ""
	}
	return p.Spec.InitContainers[0].Image
}

// created waits until a new pod is as wanted.
func (d *differ) created(t *testing.T, namespace, app string, want func(*corev1.Pod, error) error) {
	t.Helper()
	eventually(t, "a new pod is as foretold", func(ctx context.Context) error {
		pod := d.like(app)
		pod.Name = "new"
		made, err := d.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return want(made, err)
	})
}

func withImage(image string) func(*corev1.Pod, error) error {
	return func(p *corev1.Pod, err error) error {
		if err == nil && imageOf(p) != image {
			err = fmt.Errorf("its sidecar has the image %q", imageOf(p))
		}
		return err
	}
}

func deniedBy(text string) func(*corev1.Pod, error) error {
	return func(_ *corev1.Pod, err error) error {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), text) {
			return fmt.Errorf("it is not denied by %s: %w", text, err)
		}
		return nil
	}
}

// diff is what pillion diff says of one template.
func (d *differ) diff(t *testing.T, namespace, arguments string, wantCode int, template string) (of diffed) {
	t.Helper()
	out, code, err := d.run(testContext(t), "pillion diff -o json --namespace "+namespace+" "+arguments)
	var r struct{ Templates []diffed }
	if err = errors.Join(err, json.Unmarshal([]byte(out), &r)); err != nil || code != wantCode {
		t.Fatalf("pillion diff %s: exit code %d, want %d, %v\n%s", arguments, code, wantCode, err, out)
	}
	for _, of := range r.Templates {
		if of.Template == template {
			return of
		}
	}
	return of
}

// wantDiff compares counts and the cause of the first effect.
func wantDiff(t *testing.T, got, want diffed) {
	t.Helper()
	causes := got.Causes
	got.Causes = want.Causes
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pillion diff (-want +got):\n%s", diff)
	}
	if len(causes) == 0 && len(want.Causes) == 0 {
		return
	}
	if len(causes) == 0 || !strings.Contains(causes[0].Why, want.Causes[0].Why) {
		t.Fatalf("the causes are %+v, want %+v", causes, want.Causes)
	}
	causes[0].Why = want.Causes[0].Why
	if diff := cmp.Diff(want.Causes[0], causes[0]); diff != "" {
		t.Errorf("the first cause (-want +got):\n%s", diff)
	}
}

// causes is the cause of an effect.
func causes(effect, how, by, why string, fields ...string) []struct {
	Effect, How, By, Why string
	Fields               []string
} {
	return []struct {
		Effect, How, By, Why string
		Fields               []string
	}{{effect, how, by, why, fields}}
}

func (d *differ) gets(t *testing.T) {
	d.write(t, agentSpec())
	got := d.diff(t, "changes", "-f new.yaml", 1, "agent")
	wantDiff(t, got, diffed{Template: "agent", Gets: counted{4, 3}, Causes: causes("gets", "new pod", "", "")})
	d.apply(t, "changes", agentSpec())
	d.created(t, "changes", "web", withImage("registry.example/agent:1"))
	d.diff(t, "changes", "-f new.yaml", 0, "agent")
	if err := d.Client.CoreV1().Pods("changes").DeleteCollection(testContext(t), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	d.waitFor(t, "changes", 0, "")
	d.task(t)
	d.waitFor(t, "changes", 4, "registry.example/agent:1")
	d.diff(t, "changes", "-f new.yaml", 0, "agent") // the pods themselves do not matter
	got = d.diff(t, "changes", "--without agent", 1, "agent")
	wantDiff(t, got, diffed{Template: "agent", Loses: counted{4, 3}, Causes: causes("loses", "new pod", "", "the template is removed")})
}

// patch changes a field of a running pod's sidecar, in a dry run.
func (d *differ) patch(t *testing.T, field, value string) error {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/initContainers/0/%s","value":%s}]`, field, value)
	_, err := d.Client.CoreV1().Pods("changes").Patch(testContext(t), "task", types.JSONPatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (d *differ) inPlace(t *testing.T) {
	d.write(t, agentSpec("agent:1", "agent:2"))
	got := d.diff(t, "changes", "-f new.yaml", 1, "agent")
	wantDiff(t, got, diffed{Template: "agent", Changes: counted{4, 3}, InPlace: counted{4, 3}, Causes: causes("changes", "in place", "", "", "image of agent")})
	if err := d.patch(t, "image", `"registry.example/agent:2"`); err != nil {
		t.Errorf("the API server does not change the image in place: %v", err)
	}
	d.resizes(t)
}

// resizes checks that memory changes in place, unless that changes the pod's quality of service class.
func (d *differ) resizes(t *testing.T) {
	t.Helper()
	d.namespace(t, "best-effort", nil)
	pod := d.like("task")
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	if _, err := d.Client.CoreV1().Pods("best-effort").Create(testContext(t), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	resize := func(namespace string) error {
		patch := `{"spec":{"initContainers":[{"name":"agent","resources":{"requests":{"memory":"32Mi"}}}]}}`
		_, err := d.Client.CoreV1().Pods(namespace).Patch(testContext(t), "task", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "resize")
		return err
	}
	d.write(t, agentSpec("args: [run]", "args: [run], resources: {requests: {memory: 32Mi}}"))
	const field = "resources.requests.memory of agent"
	got := d.diff(t, "changes", "-f new.yaml", 1, "agent")
	wantDiff(t, got, diffed{Template: "agent", Changes: counted{4, 3}, InPlace: counted{4, 3}, Causes: causes("changes", "resize", "", "", field)})
	if err := resize("changes"); err != nil {
		t.Errorf("the API server does not resize the sidecar: %v", err)
	}
	got = d.diff(t, "best-effort", "-f new.yaml", 1, "agent")
	wantDiff(t, got, diffed{Template: "agent", Changes: counted{1, 1}, NewPod: counted{1, 1}, Causes: causes("changes", "new pod", "", "", field)})
	if err := resize("best-effort"); !apierrors.IsInvalid(err) {
		t.Errorf("the API server changes the class of the pod: %v", err)
	}
}

func (d *differ) newPods(t *testing.T) {
	d.write(t, agentSpec("agent:1", "agent:2", "[run]", "[walk]"))
	got := d.diff(t, "changes", "-f new.yaml", 1, "agent")
	wantDiff(t, got, diffed{Template: "agent", Changes: counted{4, 3}, NewPod: counted{4, 3}, Causes: causes("changes", "new pod", "", "", "args of agent")})
	if err := d.patch(t, "args", `["walk"]`); !apierrors.IsInvalid(err) {
		t.Errorf("the API server changes args in place: %v", err)
	}
}

func (d *differ) loses(t *testing.T) {
	fewer := agentSpec("[web, api, task]", "[web]")
	d.write(t, fewer)
	got := d.diff(t, "changes", "-f new.yaml", 1, "agent")
	wantDiff(t, got, diffed{
		Template: "agent", Loses: counted{2, 2}, Changes: counted{2, 1}, InPlace: counted{2, 1}, // the record of the revision changes
		Causes: causes("loses", "new pod", "", "pod_not_matched: "),
	})
	d.apply(t, "changes", fewer)
	d.created(t, "changes", "api", withImage(""))
	d.created(t, "changes", "web", withImage("registry.example/agent:1"))
	d.apply(t, "changes", agentSpec())
	d.created(t, "changes", "api", withImage("registry.example/agent:1"))
}
