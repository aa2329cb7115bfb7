// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	templatesAnnotation = "pillion.dev/templates"
	recordSuffix        = ".pillion.dev/injected"
)

// sidecar is a template with one native sidecar.
type sidecar struct {
	name      string
	container string // "" if it has the name of the template
	image     string
	memory    string // request and limit
	args      string // further ones
	probe     bool   // whether it has a startupProbe
	readiness bool   // whether it has a readinessProbe
	spec      string // further fields of the template
}

func (s sidecar) containerName() string {
	if s.container != "" {
		return s.container
	}
	return s.name
}

func (s sidecar) manifest() string {
	probe := ""
	if s.probe {
		probe = "startupProbe: {httpGet: {path: /, port: 9900}, periodSeconds: 1, failureThreshold: 120}, "
	}
	if s.readiness {
		probe += "readinessProbe: {httpGet: {path: /, port: 9900}, periodSeconds: 1, failureThreshold: 1}, "
	}
	return fmt.Sprintf(`
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: %s}
spec: {%s pod: {spec: {initContainers: [{name: %s, restartPolicy: Always, image: %q, imagePullPolicy: Never, args: ["-serve=:9900"%s],
  %s resources: {requests: {cpu: 1m, memory: %s}, limits: {memory: %[7]s}}}]}}}
`, s.name, s.spec, s.containerName(), s.image, s.args, probe, s.memory)
}

// use applies the template, and waits until all replicas inject it into pods like this one. If there is none, it is
// a pod that names the template.
func (s sidecar) use(t *testing.T, ns string, like *corev1.Pod) {
	t.Helper()
	apply(t, ns, s.manifest())
	if like == nil {
		like = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{templatesAnnotation: s.name}}}
	}
	eventually(t, "the template "+s.name+" is in use", func(ctx context.Context) error {
		for range 8 {
			made, err := createdNow(ctx, ns, like)
			if err != nil {
				return err
			}
			if err := s.in(made); err != nil {
				return err
			}
		}
		return agree(ctx)
	})
}

// in returns an error unless a pod's spec has the sidecar.
func (s sidecar) in(pod *corev1.Pod) error {
	for _, c := range pod.Spec.InitContainers {
		if c.Name == s.containerName() {
			if c.Image != s.image || !same(c.Resources.Limits, s.memory) || strings.Join(c.Args, " ") != strings.Join(s.arguments(), " ") {
				return fmt.Errorf("pod %s has the sidecar %s %v with %s", pod.Name, c.Image, c.Args, c.Resources.Limits.Memory())
			}
			return nil
		}
	}
	return fmt.Errorf("pod %s has no sidecar %s", pod.Name, s.containerName())
}

func (s sidecar) arguments() []string {
	var args []string
	_ = json.Unmarshal([]byte(`["-serve=:9900"`+s.args+`]`), &args)
	return args
}

func same(list corev1.ResourceList, memory string) bool { return list.Memory().String() == memory }

// createdNow returns what the API server would store if a pod like this one were created now, with its workload.
func createdNow(ctx context.Context, ns string, like *corev1.Pod) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Labels: like.Labels, OwnerReferences: like.OwnerReferences, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: StandIn}}},
	}
	if value, ok := like.Annotations[templatesAnnotation]; ok {
		pod.Annotations[templatesAnnotation] = value
	}
	return env.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// records returns what a pod records about its injection.
func records(pod *corev1.Pod) map[string]string {
	all := maps.Clone(pod.Annotations)
	maps.DeleteFunc(all, func(key, _ string) bool { return !strings.HasSuffix(key, recordSuffix) })
	return all
}

// pillion runs a command, and returns its output.
func pillion(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	return pillionCommand(testContext(t), args...).CombinedOutput()
}

func pillionCommand(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, filepath.Join(env.dir, programName), append(args, "--kubeconfig", env.Kubeconfig)...)
}

// rollout runs the command, and returns what it prints, in one line.
func rollout(t *testing.T, ns string, args ...string) (string, error) {
	t.Helper()
	out, err := pillion(t, append([]string{"rollout", ns, "--yes"}, args...)...)
	return strings.Join(strings.Fields(string(out)), " "), err
}

// runningCommand is a command that has not ended yet.
type runningCommand struct {
	*exec.Cmd
	output *safeBuffer
}

// startRollout starts the command, and does not wait for its end.
func startRollout(t *testing.T, ns string, args ...string) runningCommand {
	t.Helper()
	c := runningCommand{pillionCommand(testContext(t), append([]string{"rollout", ns, "--yes"}, args...)...), &safeBuffer{}}
	c.Stdout, c.Stderr = c.output, c.output
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// mustRollout runs a rollout that updates all pods. It does not watch a pod after it is ready.
func mustRollout(t *testing.T, ns string, args ...string) string {
	t.Helper()
	out, err := rollout(t, ns, append([]string{"--min-ready", "0s", "--bake", "0s"}, args...)...)
	if err != nil {
		t.Fatalf("rollout: %v: %s", err, out)
	}
	return out
}

// wantStop runs a rollout that stops, and prints these.
func wantStop(t *testing.T, ns string, prints []string, args ...string) {
	t.Helper()
	out, err := rollout(t, ns, append([]string{"--min-ready", "0s", "--bake", "0s"}, args...)...)
	for _, want := range prints {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("rollout does not stop with %q: %v: %s", want, err, out)
		}
	}
}

// rolled are pods of a namespace before a rollout.
type rolled struct {
	ns       string
	before   map[string]corev1.Pod
	leftover string // a template that was promoted: some pods keep its record
}

// running waits until a namespace has n ready pods and no others.
func running(t *testing.T, ns string, n int) *rolled {
	t.Helper()
	r := &rolled{ns: ns, before: map[string]corev1.Pod{}}
	for _, pod := range readyPods(t, ns, "", n) {
		r.before[pod.Name] = pod
	}
	return r
}

// one returns one of the pods.
func (r *rolled) one() *corev1.Pod {
	for _, pod := range r.before {
		return &pod
	}
	return nil
}

// want checks that the same pods run with their sidecars now, that their apps never noticed, and that Pillion finds
// nothing to do.
func (r *rolled) want(t *testing.T, of func(*corev1.Pod) sidecar) {
	t.Helper()
	const explained = 3
	pods := readyPods(t, r.ns, "", len(r.before))
	for i := range pods {
		pod := &pods[i]
		was := r.before[pod.Name]
		if err := errors.Join(untouched(&was, pod), runs(of(pod), pod), r.settled(t, pod)); err != nil {
			t.Error(err)
		}
		if i < explained {
			wantInjected(t, pod)
		}
	}
	if out, err := rollout(t, r.ns, "--dry-run"); err != nil || !strings.Contains(out, "All pods are current") {
		t.Errorf("the next rollout: %v: %s", err, out)
	}
	r.wantCurrent(t)
}

// wantAll is want for pods with the same sidecar.
func (r *rolled) wantAll(t *testing.T, s sidecar) {
	t.Helper()
	r.want(t, func(*corev1.Pod) sidecar { return s })
}

// untouched returns an error unless the app of a pod still runs.
func untouched(was, is *corev1.Pod) error {
	old, now := statusIn(was, "app"), statusIn(is, "app")
	if was.UID != is.UID || old.ContainerID != now.ContainerID || now.RestartCount != 0 {
		return fmt.Errorf("pod %s: the app has %d restarts and the ID %s, was %s", is.Name, now.RestartCount, now.ContainerID, old.ContainerID)
	}
	return nil
}

// runs returns an error unless the kubelet runs the sidecar.
func runs(s sidecar, pod *corev1.Pod) error {
	if is := statusIn(pod, s.containerName()); is.Image != s.image || is.Resources == nil || !same(is.Resources.Limits, s.memory) {
		return fmt.Errorf("pod %s: the sidecar runs %s with %+v", pod.Name, is.Image, is.Resources)
	}
	return s.in(pod)
}

// settled returns an error unless another admission of a pod adds nothing, and a new pod would have the same records.
func (r *rolled) settled(t *testing.T, pod *corev1.Pod) error {
	t.Helper()
	ctx := testContext(t)
	again := pod.DeepCopy()
	again.Name, again.GenerateName, again.ResourceVersion, again.UID, again.Status = "", "again-", "", "", corev1.PodStatus{}
	created, err := env.Client.CoreV1().Pods(r.ns).Create(ctx, again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return fmt.Errorf("another admission of pod %s: %w", pod.Name, err)
	}
	if !equality.Semantic.DeepEqual(created.Spec, pod.Spec) || !maps.Equal(created.Annotations, pod.Annotations) || !maps.Equal(created.Labels, pod.Labels) {
		return fmt.Errorf("another admission of pod %s changes it:\n%+v\n%+v", pod.Name, pod, created)
	}
	fresh, err := createdNow(ctx, r.ns, pod)
	if err != nil {
		return err
	}
	has := records(pod)
	if delete(has, r.leftover+recordSuffix); !maps.Equal(records(fresh), has) {
		return fmt.Errorf("pod %s has the records %v, and a new pod has %v", pod.Name, has, records(fresh))
	}
	return nil
}

// wantInjected checks that pillion explain finds the pod injected and current.
func wantInjected(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	out, err := pillion(t, "explain", "pod/"+pod.Name, "-n", pod.Namespace, "-o", "json")
	if err != nil || strings.Count(string(out), `"state": "current"`) != 1 || !strings.Contains(string(out), `"verdict": "allowed"`) {
		t.Errorf("explain pod/%s: %v: %s", pod.Name, err, out)
	}
}

// wantCurrent checks that pillion status counts all pods as current.
func (r *rolled) wantCurrent(t *testing.T) {
	t.Helper()
	out, err := pillionCommand(testContext(t), "status", r.ns, "-o", "json").Output()
	var report struct {
		Namespaces []struct{ Pods, Current int }
	}
	if err := errors.Join(err, json.Unmarshal(out, &report)); err != nil || len(report.Namespaces) != 1 || report.Namespaces[0].Current != len(r.before) {
		t.Errorf("status: %v: %s", err, out)
	}
}

// rolledPod returns the template of a pod that gets the sidecar of a template.
func rolledPod(app, template, args, fields string) string {
	text := strings.Replace(podOf(args, fields), "labels: {app: web}", "labels: {app: "+app+"}, annotations: {"+templatesAnnotation+": "+template+"}", 1)
	return strings.Replace(text, "terminationGracePeriodSeconds: 5", "terminationGracePeriodSeconds: 1", 1)
}

// deploymentOf returns a Deployment whose pods get the sidecar of a template. Fields are further ones of the
// pods' spec.
func deploymentOf(name string, replicas int, template, fields string) string {
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s}
spec: {replicas: %d, selector: {matchLabels: {app: %[1]s}}, template: %[3]s}
`, name, replicas, rolledPod(name, template, `"-serve=:8000"`, fields))
}
