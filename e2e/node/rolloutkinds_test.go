// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"
)

// TestRollouts runs rollouts of all kinds of workloads, and rollouts that cannot end, or are ended.
func TestRollouts(t *testing.T) {
	installed(t)
	for name, run := range map[string]func(*testing.T, string){
		"kinds":           testRolloutKinds,
		"without a probe": func(t *testing.T, ns string) { testRolloutReadiness(t, ns, false) },
		"startupProbe":    func(t *testing.T, ns string) { testRolloutReadiness(t, ns, true) },
		"budget":          testRolloutBudget,
		"pending":         testRolloutPending,
		"killed":          testRolloutKilled,
		"no room":         testRolloutNoRoom,
		"again and again": testRolloutAgain,
		"crash loop":      testRolloutCrash,
		"canary":          testRolloutCanary,
		"beside":          testRolloutBeside,
		"scaled":          testRolloutScaled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := "t-" + rand.String(6)
			if name == "canary" {
				ns = "shares" // the workloads of a share depend on the name
			}
			run(t, namespaceNamed(t, ns, map[string]string{injectLabel: "enabled"}))
		})
	}
}

// testRolloutKinds changes pods of all kinds of workloads in place, and then in a way that needs new pods.
func testRolloutKinds(t *testing.T, ns string) {
	s := sidecar{name: "kinds", image: StandIn, memory: "16Mi"}
	s.use(t, ns, nil)
	template := func(app, fields string) string { return rolledPod(app, "kinds", `"-serve=:8000"`, fields) }
	apply(t, ns, deploymentOf("web", 2, "kinds", "")+`
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec: {replicas: 2, serviceName: db, selector: {matchLabels: {app: db}}, template: `+template("db", "")+`}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec: {selector: {matchLabels: {app: agent}}, template: `+template("agent", "")+`}
---
apiVersion: batch/v1
kind: Job
metadata: {name: batch}
spec: {backoffLimit: 0, template: `+template("batch", "restartPolicy: Never,")+`}`)
	bare(t, ns, "bare", template("bare", ""))
	r := running(t, ns, 7)

	s.image, s.memory = NextStandIn, "24Mi"
	s.use(t, ns, nil)
	out := mustRollout(t, ns)
	for _, workload := range []string{"Deployment/web", "StatefulSet/db", "DaemonSet/agent", "Job/batch", "Pod/bare"} {
		if !strings.Contains(out, "in place "+ns+" "+workload+",") {
			t.Errorf("%s is not updated in place: %s", workload, out)
		}
	}
	r.wantAll(t, s)

	s.args = `, "-linger=1ms"`
	s.use(t, ns, nil)
	wantStop(t, ns, []string{
		"restart " + ns + " Deployment/web,", "restart " + ns + " StatefulSet/db,", "restart " + ns + " DaemonSet/agent,",
		"finish " + ns + " Job/batch,", "cannot " + ns + " Pod/bare,", "Left 1 pod that it cannot update. Left 1 pod of running Jobs unchanged.",
	})
	job := r.wantReplaced(t, s, "batch", "bare")
	endApp(t, job)
	if ended := finishedJob(t, ns, "batch", batchv1.JobComplete); ended.Status.Succeeded != 1 || ended.Status.Failed != 0 {
		t.Errorf("of the Job's pods, %d have succeeded and %d failed, want 1 and 0", ended.Status.Succeeded, ended.Status.Failed)
	}
	ended := endedPod(t, ns, job.Name)
	if c := statusIn(ended, "kinds"); c.State.Terminated == nil || c.State.Terminated.ExitCode != 0 || c.RestartCount != 1 {
		t.Errorf("the Job's sidecar should have restarted once and have ended well: %s", stateOf(ended))
	}
}

// endApp lets the app of a pod end well.
func endApp(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	request, err := http.NewRequestWithContext(testContext(t), http.MethodGet, "http://"+net.JoinHostPort(pod.Status.PodIP, "8000")+"/end", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
}

// wantReplaced checks that all pods are new ones with the sidecar, except for those of these apps. It returns one of the
// first of those.
func (r *rolled) wantReplaced(t *testing.T, s sidecar, except ...string) (kept *corev1.Pod) {
	t.Helper()
	for _, pod := range readyPods(t, r.ns, "", len(r.before)) {
		was, stays := r.before[pod.Name], false
		for _, app := range except {
			stays = stays || pod.Labels["app"] == app
		}
		switch {
		case stays:
			if err := untouched(&was, &pod); err != nil {
				t.Error(err)
			}
			if pod.Labels["app"] == except[0] {
				kept = &pod
			}
		case was.UID == pod.UID:
			t.Errorf("pod %s is still the same", pod.Name)
		default:
			if err := runs(s, &pod); err != nil {
				t.Error(err)
			}
		}
	}
	return kept
}

// testRolloutReadiness changes the pods of a Deployment one after another. A sidecar that starts again makes its pod
// unready until it is ready itself: with a startupProbe, until that has succeeded.
func testRolloutReadiness(t *testing.T, ns string, probe bool) {
	s := sidecar{name: fmt.Sprintf("ready-%t", probe), image: StandIn, memory: "16Mi", probe: probe}
	s.use(t, ns, nil)
	apply(t, ns, deploymentOf("web", 3, s.name, ""))
	r := running(t, ns, 3)
	s.image, s.memory = NextStandIn, "24Mi"
	s.use(t, ns, nil)
	watched := watchReadiness(t, ns)
	mustRollout(t, ns, "--max-unavailable", "1")
	if most := watched.end(t, ns); most > 1 || probe && watched.times < 3 {
		t.Errorf("pods were unready %d times, and %d at the same time", watched.times, most)
	}
	figure(t, "pods unready: how many of 3, at a time, longest", fmt.Sprintf("%d, %d, %s", watched.times, watched.most, seconds(watched.longest)))
	r.wantAll(t, s)
}

// testRolloutBudget changes as many pods at a time as the rollout would like to. The budget allows one.
func testRolloutBudget(t *testing.T, ns string) {
	const pods = 4
	s := sidecar{name: "budget", image: StandIn, memory: "16Mi", probe: true, args: `, "-ready=1s"`}
	s.use(t, ns, nil)
	apply(t, ns, deploymentOf("web", pods, s.name, ""))
	r := running(t, ns, pods)
	one := intstr.FromInt32(1)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	if _, err := env.Client.PolicyV1().PodDisruptionBudgets(ns).Create(testContext(t), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the budget allows a disruption", func(ctx context.Context) error {
		b, err := env.Client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "web", metav1.GetOptions{})
		if err == nil && b.Status.DisruptionsAllowed != 1 {
			err = fmt.Errorf("it allows %d", b.Status.DisruptionsAllowed)
		}
		return err
	})
	s.image, s.memory = NextStandIn, "24Mi"
	s.use(t, ns, nil)
	watched := watchReadiness(t, ns)
	mustRollout(t, ns, "--max-unavailable", "100%")
	if most := watched.end(t, ns); most != 1 || watched.times < pods {
		t.Errorf("pods were unready %d times, and %d at the same time, want %d and 1", watched.times, most, pods)
	}
	figure(t, "pods unready: how many of 4, at a time, longest", fmt.Sprintf("%d, %d, %s", watched.times, watched.most, seconds(watched.longest)))
	r.wantAll(t, s)
}

// testRolloutPending restarts a Deployment whose new pod gets no node. The rollout stops, and the old pod stays.
func testRolloutPending(t *testing.T, ns string) {
	s := sidecar{name: "pending", image: StandIn, memory: "16Mi"}
	s.use(t, ns, nil)
	apart := `affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}},`
	apply(t, ns, deploymentOf("web", 1, s.name, apart))
	r := running(t, ns, 1)
	s.args = `, "-linger=1ms"`
	s.use(t, ns, nil)
	wantStop(t, ns, []string{
		"Deployment/web in the namespace " + ns + " has not progressed for 15s: it waits for a node for its new pod web-",
		"didn't match pod anti-affinity rules", "half done: Deployment/web in the namespace " + ns + " (restarted, not complete)",
	}, "--timeout", "15s")
	eventually(t, "the old pod runs beside a new one without a node", func(ctx context.Context) error {
		found, err := pods(ctx, ns, "")
		if err != nil || len(found) != 2 {
			return errors.Join(err, fmt.Errorf("there are %d pods", len(found)))
		}
		for i := range found {
			if was, old := r.before[found[i].Name]; old {
				err = errors.Join(err, untouched(&was, &found[i]))
			} else if found[i].Spec.NodeName != "" {
				err = errors.Join(err, errors.New(stateOf(&found[i])))
			}
		}
		return err
	})
}
