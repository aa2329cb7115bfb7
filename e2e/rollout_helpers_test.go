// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
  rollout: {%s}
  pod:
    spec:
      initContainers:
      - name: agent
        image: %s
        args: ["--level=%s"]
        restartPolicy: Always
        resources: {requests: {cpu: 10m, memory: %s}, limits: {memory: %[5]s}}
`, ns, atOnce(r.settings), image, level, memory)
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
			i := slices.IndexFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "agent" })
			if i < 0 {
				return errors.New("a pod does not get it")
			}
			c := pod.Spec.InitContainers[i]
			if c.Image != image || c.Resources.Limits.Memory().String() != memory || c.Args[0] != "--level="+level {
				return fmt.Errorf("a pod gets %s %s", c.Name, c.Image)
			}
		}
		return nil
	})
}

// atOnce adds to the settings of a rollout that a pod is proved once it is ready. The kubelet of these tests
// reports nothing later.
func atOnce(settings string) string {
	if settings == "" || strings.Contains(settings, "bake") {
		return settings
	}
	return settings + ", bake: 0s"
}

// rolloutEvent is a line of pillion rollout -o json.
type rolloutEvent struct {
	Type, Namespace, Workload, Pod, Way, Message string
	Pods, Done, Total                            int
}

func (r *rolling) command(ctx context.Context, ns string, args ...string) *exec.Cmd {
	args = append([]string{"rollout", ns, "--kubeconfig", r.Kubeconfig, "--yes", "--min-ready", "0s", "--bake", "0s", "-o", "json"}, args...)
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
	stderr = strings.Join(strings.Fields(errs.String()), " ") // it is wrapped
	if code < 2 && !slices.Contains(args, "--dry-run") {
		want := "done"
		if strings.Contains(stderr, "stopped after") {
			want = "stopped"
		}
		if last := events[len(events)-1]; last.Type != want {
			t.Errorf("the last event is %+v, want %s", last, want)
		}
	}
	return events, stderr
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
