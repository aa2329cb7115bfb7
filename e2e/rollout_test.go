// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// rolling is a cluster with a template, workloads and a kubelet that only writes the status of pods.
type rolling struct {
	*installed
	*kubelet
	settings string // of spec.rollout
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
		{"template", r.oneTemplate},
		{"bad image", r.badImage},
		{"budget", r.budget},
		{"infeasible", r.infeasible},
		{"interrupt", r.interrupt},
		{"rights", r.limitedRights},
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

// userChange checks that two changes of a user stay: the image of one pod, and a limit that was added to another one.
func (r *rolling) userChange(t *testing.T, ns string) {
	r.deployment(t, ns, 2)
	pods := r.ready(t, ns, 2)
	if _, err := r.RunKubectl(t.Context(), nil, "-n", ns, "set", "image", "pod/"+pods[0].Name, "agent=agent:mine"); err != nil {
		t.Fatal(err)
	}
	limit := `{"spec": {"initContainers": [{"name": "agent", "resources": {"limits": {"cpu": "1"}}}]}}`
	if out, err := r.RunKubectl(t.Context(), nil, "-n", ns, "patch", "pod/"+pods[1].Name, "--subresource", "resize", "-p", limit); err != nil {
		t.Fatalf("%v: %s", err, out)
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
		if limit := p.Spec.InitContainers[0].Resources.Limits.Cpu().String(); (limit == "1") != (p.Name == pods[1].Name) {
			t.Errorf("pod %s has the CPU limit %s", p.Name, limit)
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

// oneTemplate updates what differs because of one of two templates. One of them is of the namespace.
func (r *rolling) oneTemplate(t *testing.T, ns string) {
	use := func(image string) {
		t.Helper()
		text := "apiVersion: pillion.dev/v1alpha1\nkind: SidecarTemplate\nmetadata: {name: other, namespace: " + ns + "}\nspec:\n  default: true\n" +
			"  pod: {spec: {initContainers: [{name: other, image: \"" + image + "\", restartPolicy: Always}]}}\n"
		if out, err := r.RunKubectl(t.Context(), []byte(text), "apply", "-f", "-"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		eventually(t, "Pillion knows the template of the namespace", func(ctx context.Context) error {
			for range 4 * len(r.replicas) {
				pod, err := r.Client.CoreV1().Pods(ns).Create(ctx, newPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
				if err != nil {
					return err
				}
				if images := sidecarImages(pod); !slices.Contains(images, image) {
					return fmt.Errorf("a pod gets %q", images)
				}
			}
			return nil
		})
	}
	use("other:1")
	r.deployment(t, ns, 2)
	before := uids(r.ready(t, ns, 2))
	use("other:2")
	r.template(t, ns, "agent:2", "32Mi", "info")
	want := func(want ...string) {
		t.Helper()
		pods := r.ready(t, ns, 2)
		for i := range pods {
			if p := &pods[i]; !slices.Equal(sidecarImages(p), want) || before[p.Name] != p.UID {
				t.Errorf("pod %s has %q, want %q", p.Name, sidecarImages(p), want)
			}
		}
	}
	if _, stderr := r.rollout(t, 2, ns, "--template", "othr"); !strings.Contains(stderr, `there is no template "othr"; did you mean "other"?`) {
		t.Errorf("it reports %s", stderr)
	}
	r.rollout(t, 2, ns, "--template", "default/other")
	r.rollout(t, 0, ns, "--template", "agent")
	want("agent:2", "other:1")
	r.rollout(t, 0, ns, "--template", ns+"/other", "--dry-run")
	want("agent:2", "other:1")
	r.rollout(t, 0, ns, "--template", ns+"/other")
	want("agent:2", "other:2")
	if events, _ := r.rollout(t, 0, ns); len(ways(events)) > 0 {
		t.Errorf("a run for all templates finds %+v", events)
	}
}

// sidecarImages returns the images of the init containers of a pod, in the order of the alphabet.
func sidecarImages(pod *corev1.Pod) (images []string) {
	for _, c := range pod.Spec.InitContainers {
		images = append(images, c.Image)
	}
	slices.Sort(images)
	return images
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

// infeasible checks a change to more memory than any node has.
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
	r.takeTime(math.MaxInt) // so that the rollout is not complete before the signal
	defer r.takeTime(0)
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
	r.takeTime(0)
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

// limitedRights checks that the rights that the page documents are enough for a change in place.
func (r *rolling) limitedRights(t *testing.T, ns string) {
	r.deployment(t, ns, 2)
	r.ready(t, ns, 2)
	r.template(t, ns, "agent:2", "64Mi", "info")
	role := `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: rollout}
rules:
- {apiGroups: [""], resources: [namespaces, pods, configmaps, limitranges, resourcequotas, events, serviceaccounts, replicationcontrollers], verbs: [get, list]}
- {apiGroups: [apps], resources: [deployments, replicasets, statefulsets, daemonsets], verbs: [get, list]}
- {apiGroups: [batch], resources: [jobs, cronjobs], verbs: [list]}
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [list]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list]}
- {apiGroups: [pillion.dev], resources: [clustersidecartemplates, sidecartemplates], verbs: [list]}
- {apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: [list]}
`
	patch := "- {apiGroups: [\"\"], resources: [pods, pods/resize], verbs: [patch]}\n"
	for _, args := range [][]string{{"create", "serviceaccount", "operator", "-n", ns}, {"create", "clusterrolebinding", "rollout", "--clusterrole=rollout", "--serviceaccount=" + ns + ":operator"}} {
		if _, err := r.RunKubectl(t.Context(), nil, args...); err != nil {
			t.Fatal(err)
		}
	}
	token, err := r.RunKubectl(t.Context(), nil, "create", "token", "operator", "-n", ns)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := r.WriteKubeconfig("operator", strings.TrimSpace(string(token)))
	if err != nil {
		t.Fatal(err)
	}
	apply := func(role string) {
		if out, err := r.RunKubectl(t.Context(), []byte(role), "apply", "-f", "-"); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	apply(role)
	eventually(t, "the user has the rights", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, env.binary, "rollout", ns, "--kubeconfig", kubeconfig, "--dry-run").CombinedOutput()
		out = bytes.Join(bytes.Fields(out), []byte(" ")) // it is wrapped
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if !bytes.Contains(out, []byte("in place")) || !bytes.Contains(out, []byte("you are not allowed to patch pods/resize")) {
			return fmt.Errorf("the plan is %s", out)
		}
		return nil
	})
	apply(role + patch)
	eventually(t, "the user may patch pods", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, env.binary, "rollout", ns, "--kubeconfig", kubeconfig, "--yes", "--min-ready", "0s", "--bake", "0s").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	r.wantCurrent(t, ns, r.ready(t, ns, 2))
}
