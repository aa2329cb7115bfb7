// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rolling is a cluster with a template, workloads and a kubelet that only writes the status of pods.
type rolling struct {
	*installed
	*kubelet
}

// TestRollout updates running pods on a real API server.
func TestRollout(t *testing.T) {
	t.Parallel()
	r := &rolling{installed: install(t, newCluster(t), "self-signed")}
	r.kubelet = startKubelet(t, r.Client)
	r.waitForInjection(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, string)
	}{
		{"in place", r.inPlace},
		{"restart", r.restart},
		{"user", r.userChange},
		{"bad image", r.badImage},
		{"budget", r.budget},
		{"infeasible", r.infeasible},
		{"interrupt", r.interrupt},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := strings.ReplaceAll(test.name, " ", "-") + "-ns"
			r.template(t, name, "agent:1", "32Mi", "info")
			test.run(t, name)
			if _, err := r.RunKubectl(t.Context(), nil, "delete", "clustersidecartemplate", "agent"); err != nil {
				t.Error(err)
			}
		})
	}
}

// template applies the template agent for one namespace, and returns when a pod there would get it.
func (r *rolling) template(t *testing.T, ns, image, memory, level string) {
	t.Helper()
	text := fmt.Sprintf(`
apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}}
  validate: {mode: Deny}
  pod:
    spec:
      initContainers:
      - name: agent
        image: %s
        args: ["--level=%s"]
        restartPolicy: Always
        resources: {requests: {cpu: 10m, memory: %s}, limits: {memory: %[4]s}}
`, ns, image, level, memory)
	out, err := r.RunKubectl(t.Context(), []byte(text), "apply", "-f", "-")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{injectLabel: "enabled"}}}
	if _, err := r.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err == nil {
		if err := r.WaitForPods(testContext(t), ns); err != nil {
			t.Fatal(err)
		}
	}
	// Each replica may answer, and the API server keeps a connection to one of them.
	eventually(t, "Pillion knows the template", func(ctx context.Context) error {
		for range 4 * len(r.replicas) {
			pod, err := r.Client.CoreV1().Pods(ns).Create(ctx, newPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			c := pod.Spec.InitContainers[0]
			if c.Name != "agent" || c.Image != image || c.Resources.Limits.Memory().String() != memory || c.Args[0] != "--level="+level {
				return fmt.Errorf("a pod gets %s %s", c.Name, c.Image)
			}
		}
		return nil
	})
}

// rolloutEvent is a line of pillion rollout -o json.
type rolloutEvent struct {
	Type, Namespace, Workload, Pod, Way, Message string
	Pods, Done, Total                            int
}

func (r *rolling) command(ctx context.Context, ns string, args ...string) *exec.Cmd {
	args = append([]string{"rollout", ns, "--kubeconfig", r.Kubeconfig, "--min-ready", "0s", "-o", "json"}, args...)
	return exec.CommandContext(ctx, env.binary, args...)
}

// rollout runs the command.
func (r *rolling) rollout(t *testing.T, wantCode int, ns string, args ...string) (events []rolloutEvent, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := r.command(t.Context(), ns, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	code := 0
	if err := cmd.Run(); err != nil {
		exit := (*exec.ExitError)(nil)
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		code = exit.ExitCode()
	}
	for line := range strings.Lines(out.String()) {
		var e rolloutEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		events = append(events, e)
	}
	if code != wantCode {
		t.Fatalf("exit code %d, want %d: %s%s", code, wantCode, out.String(), errs.String())
	}
	return events, strings.Join(strings.Fields(errs.String()), " ") // it is wrapped
}

// ways returns the plan by workload.
func ways(events []rolloutEvent) map[string]string {
	all := map[string]string{}
	for _, e := range events {
		if e.Type == "plan" {
			all[e.Workload] = e.Way
		}
	}
	return all
}

func (r *rolling) pods(t *testing.T, ns string) []corev1.Pod {
	t.Helper()
	list, err := r.Client.CoreV1().Pods(ns).List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// ready waits for so many ready pods.
func (r *rolling) ready(t *testing.T, ns string, n int) []corev1.Pod {
	t.Helper()
	eventually(t, fmt.Sprintf("%d pods are ready", n), func(ctx context.Context) error {
		list, err := r.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			if p := &list.Items[i]; p.DeletionTimestamp == nil && len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Status == corev1.ConditionTrue {
				ready++
			}
		}
		if ready != n || len(list.Items) != n {
			return fmt.Errorf("%d of %d", ready, len(list.Items))
		}
		return nil
	})
	return r.pods(t, ns)
}

func simpleTemplate(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
}

func appSelector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func (r *rolling) deployment(t *testing.T, ns string, replicas int32) {
	t.Helper()
	_, err := r.Client.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: appSelector("web"), Template: simpleTemplate("web")},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// everyKind creates one of each kind of workload: 3 pods of a Deployment, 2 of a StatefulSet, and one each
// of a DaemonSet, a Job, a ReplicaSet and nothing.
func (r *rolling) everyKind(t *testing.T, ns string) (pods int) {
	t.Helper()
	r.deployment(t, ns, 3)
	ctx := t.Context()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + ns, Labels: map[string]string{"for": ns}}}
	_, err := r.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	daemon := simpleTemplate("daemon")
	daemon.Spec.NodeSelector = node.Labels
	daemon.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	_, err1 := r.Client.AppsV1().DaemonSets(ns).Create(ctx, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "daemon"}, Spec: appsv1.DaemonSetSpec{Selector: appSelector("daemon"), Template: daemon}}, metav1.CreateOptions{})
	_, err2 := r.Client.AppsV1().StatefulSets(ns).Create(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2)), Selector: appSelector("db"), Template: simpleTemplate("db")}}, metav1.CreateOptions{})
	_, err3 := r.Client.AppsV1().ReplicaSets(ns).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "set"}, Spec: appsv1.ReplicaSetSpec{Selector: appSelector("set"), Template: simpleTemplate("set")}}, metav1.CreateOptions{})
	job := simpleTemplate("job")
	job.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err4 := r.Client.BatchV1().Jobs(ns).Create(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{Template: job}}, metav1.CreateOptions{})
	bare := simpleTemplate("bare")
	_, err5 := r.Client.CoreV1().Pods(ns).Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bare", Labels: bare.Labels}, Spec: bare.Spec}, metav1.CreateOptions{})
	if err := errors.Join(err, err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
	return 3 + 2 + 1 + 1 + 1 + 1
}

// wantCurrent checks that status and explain agree that all pods are current, and that another admission
// of each pod adds nothing.
func (r *rolling) wantCurrent(t *testing.T, ns string, pods []corev1.Pod) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), env.binary, "status", ns, "--kubeconfig", r.Kubeconfig, "-o", "json").CombinedOutput()
	var report statusReport
	if jsonErr := json.Unmarshal(out, &report); err != nil || jsonErr != nil || report.Namespaces[0].Current != len(pods) {
		t.Errorf("status: %v, %v: %s", err, jsonErr, out)
	}
	for i := range pods {
		pod := &pods[i]
		again := pod.DeepCopy()
		again.Name, again.GenerateName, again.ResourceVersion, again.UID, again.Status = "", "again-", "", "", corev1.PodStatus{}
		again.OwnerReferences = nil
		created, err := r.Client.CoreV1().Pods(ns).Create(testContext(t), again, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Errorf("another admission of pod %s: %v", pod.Name, err)
			continue
		}
		was, _ := json.Marshal(pod.Spec)
		is, _ := json.Marshal(created.Spec)
		if !bytes.Equal(was, is) {
			t.Errorf("another admission of pod %s changes it:\n%s\n%s", pod.Name, was, is)
		}
		out, err := exec.CommandContext(t.Context(), env.binary, "explain", "pod/"+pod.Name, "-n", ns, "--kubeconfig", r.Kubeconfig, "-o", "json").CombinedOutput()
		if err != nil || bytes.Count(out, []byte(`"state": "current"`)) != 1 || !bytes.Contains(out, []byte(`"verdict": "allowed"`)) {
			t.Errorf("explain pod/%s: %v: %s", pod.Name, err, out[:min(len(out), 300)])
		}
	}
}

func uids(pods []corev1.Pod) map[string]types.UID {
	all := map[string]types.UID{}
	for i := range pods {
		all[pods[i].Name] = pods[i].UID
	}
	return all
}

// inPlace changes image and memory in pods of all kinds of workloads.
func (r *rolling) inPlace(t *testing.T, ns string) {
	n := r.everyKind(t, ns)
	before := uids(r.ready(t, ns, n))
	r.template(t, ns, "agent:2", "64Mi", "info")
	plan, _ := r.rollout(t, 0, ns, "--dry-run")
	for workload, way := range ways(plan) {
		if way != "in place" {
			t.Errorf("%s is updated by %s: %+v", workload, way, plan)
		}
	}
	events, _ := r.rollout(t, 0, ns)
	if last := events[len(events)-1]; last.Type != "done" || last.Done != n || last.Total != n {
		t.Errorf("the last event is %+v", last)
	}
	after := r.ready(t, ns, n)
	for i := range after {
		p := &after[i]
		if agent := p.Spec.InitContainers[0]; before[p.Name] != p.UID || agent.Image != "agent:2" || agent.Resources.Limits.Memory().String() != "64Mi" {
			t.Errorf("pod %s was not changed in place: %s, %s", p.Name, agent.Image, agent.Resources.Limits.Memory())
		}
	}
	if app, agent := restarted(after, "app"), restarted(after, "agent"); app != 0 || agent != n {
		t.Errorf("the apps have %d restarts, and the sidecars %d", app, agent)
	}
	r.wantCurrent(t, ns, after)
	if events, _ := r.rollout(t, 0, ns); len(ways(events)) > 0 {
		t.Errorf("a second run finds %+v", events)
	}
}

// restart changes an argument, which needs new pods.
func (r *rolling) restart(t *testing.T, ns string) {
	n := r.everyKind(t, ns)
	before := uids(r.ready(t, ns, n))
	r.template(t, ns, "agent:1", "32Mi", "debug")
	events, _ := r.rollout(t, 1, ns)
	got := ways(events)
	want := map[string]string{"Deployment/web": "restart", "StatefulSet/db": "restart", "DaemonSet/daemon": "restart", "ReplicaSet/set": "evict", "Job/job": "finish", "Pod/bare": "cannot"}
	for workload, way := range want {
		if got[workload] != way {
			t.Errorf("%s is updated by %q, want %q: %+v", workload, got[workload], way, events)
		}
	}
	for _, p := range r.ready(t, ns, n) {
		stays := p.Labels["app"] == "job" || p.Name == "bare"
		if level := p.Spec.InitContainers[0].Args[0]; stays == (level == "--level=debug") || stays != (before[p.Name] == p.UID) {
			t.Errorf("pod %s has %s", p.Name, level)
		}
	}
}

// userChange: a user has changed the image of one pod, which stays.
func (r *rolling) userChange(t *testing.T, ns string) {
	r.deployment(t, ns, 2)
	pods := r.ready(t, ns, 2)
	if _, err := r.RunKubectl(t.Context(), nil, "-n", ns, "set", "image", "pod/"+pods[0].Name, "agent=agent:mine"); err != nil {
		t.Fatal(err)
	}
	r.template(t, ns, "agent:2", "32Mi", "info")
	events, _ := r.rollout(t, 1, ns)
	if !slices.ContainsFunc(events, func(e rolloutEvent) bool {
		return e.Type == "plan" && strings.Contains(e.Message, `"kubectl-set" has changed the image of agent, which stays`)
	}) {
		t.Errorf("the change is not reported: %+v", events)
	}
	for _, p := range r.pods(t, ns) {
		want := "agent:2"
		if p.Name == pods[0].Name {
			want = "agent:mine"
		}
		if image := p.Spec.InitContainers[0].Image; image != want {
			t.Errorf("pod %s has the image %s, want %s", p.Name, image, want)
		}
	}
}

// badImage stops after one pod, and the old template repairs it.
func (r *rolling) badImage(t *testing.T, ns string) {
	r.deployment(t, ns, 3)
	before := uids(r.ready(t, ns, 3))
	r.template(t, ns, "agent:bad", "32Mi", "info")
	_, stderr := r.rollout(t, 1, ns, "--first", "1", "--max-unavailable", "1")
	if !strings.Contains(stderr, "ImagePullBackOff") || !strings.Contains(stderr, "half done") {
		t.Errorf("it reports %s", stderr)
	}
	bad := 0
	for _, p := range r.pods(t, ns) {
		if p.Spec.InitContainers[0].Image == "agent:bad" {
			bad++
		}
	}
	if bad != 1 {
		t.Errorf("%d pods have the bad image, want 1", bad)
	}
	r.template(t, ns, "agent:1", "32Mi", "info")
	r.rollout(t, 0, ns)
	for _, p := range r.ready(t, ns, 3) {
		if p.Spec.InitContainers[0].Image != "agent:1" || before[p.Name] != p.UID {
			t.Errorf("pod %s was not repaired in place", p.Name)
		}
	}
}

// budget allows one disruption at a time.
func (r *rolling) budget(t *testing.T, ns string) {
	needsControllerManager(t, "updates PodDisruptionBudgets")
	r.deployment(t, ns, 4)
	r.ready(t, ns, 4)
	one := intstr.FromInt32(1)
	_, err := r.Client.PolicyV1().PodDisruptionBudgets(ns).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: appSelector("web")},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget allows a disruption", func(ctx context.Context) error {
		b, err := r.Client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && b.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("it allows %d", b.Status.DisruptionsAllowed)
		}
		return err
	})
	r.mu.Lock()
	r.most, r.delay = 0, 3
	r.mu.Unlock()
	r.template(t, ns, "agent:2", "32Mi", "info")
	r.rollout(t, 0, ns, "--max-unavailable", "100%")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.delay = 0; r.most != 1 {
		t.Errorf("%d pods were not ready at the same time, want 1", r.most)
	}
}

// infeasible: no node has that much memory.
func (r *rolling) infeasible(t *testing.T, ns string) {
	r.deployment(t, ns, 2)
	r.ready(t, ns, 2)
	r.template(t, ns, "agent:1", "1Ti", "info")
	_, stderr := r.rollout(t, 1, ns, "--max-unavailable", "1")
	if !strings.Contains(stderr, "the node cannot resize it: the node has 8Gi") {
		t.Errorf("it reports %s", stderr)
	}
}

// interrupt sends Ctrl-C while a pod changes. A second run continues.
func (r *rolling) interrupt(t *testing.T, ns string) {
	r.deployment(t, ns, 6)
	r.ready(t, ns, 6)
	r.template(t, ns, "agent:2", "32Mi", "info")
	var out, errs bytes.Buffer
	cmd := r.command(t.Context(), ns, "--max-unavailable", "1")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pod has changed", func(ctx context.Context) error {
		list, err := r.Client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(list.Items, func(p corev1.Pod) bool { return p.Spec.InitContainers[0].Image == "agent:2" }) {
			err = errors.New("none")
		}
		return err
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	exit := (*exec.ExitError)(nil)
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(errs.String(), "run the same command again") {
		t.Errorf("after Ctrl-C: %v: %s", err, errs.String())
	}
	changed := 0
	for _, p := range r.pods(t, ns) {
		if p.Spec.InitContainers[0].Image == "agent:2" {
			changed++
		}
	}
	if changed == 0 || changed == 6 {
		t.Errorf("%d of 6 pods have changed after Ctrl-C", changed)
	}
	events, _ := r.rollout(t, 0, ns)
	if last := events[len(events)-1]; last.Done != 6-changed {
		t.Errorf("the second run has changed %d pods, want %d", last.Done, 6-changed)
	}
	r.wantCurrent(t, ns, r.ready(t, ns, 6))
}
