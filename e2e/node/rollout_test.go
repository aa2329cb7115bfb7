// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Pods of the rollout: so many Deployments with so many pods each.
const (
	rolledOwners = 5
	rolledEach   = 10
	// requestEvery is for each pod, and for each Service.
	requestEvery = 500 * time.Millisecond
)

// rolledDeployments creates Deployments with a Service each, whose pods get the sidecar of a template.
func rolledDeployments(t *testing.T, ns, template string) *rolled {
	t.Helper()
	for i := range rolledOwners {
		apply(t, ns, fmt.Sprintf(`%s
---
apiVersion: v1
kind: Service
metadata: {name: web-%d}
spec: {selector: {app: web-%[2]d}, ports: [{port: 80, targetPort: 8000}]}
`, deploymentOf(fmt.Sprintf("web-%d", i), rolledEach, template, ""), i))
	}
	return running(t, ns, rolledOwners*rolledEach)
}

// addresses returns where the apps answer: each pod, and each Service.
func addresses(t *testing.T, r *rolled) (all []string) {
	t.Helper()
	for _, pod := range r.before {
		all = append(all, net.JoinHostPort(pod.Status.PodIP, "8000"))
	}
	services, err := env.Client.CoreV1().Services(r.ns).List(testContext(t), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range services.Items {
		all = append(all, net.JoinHostPort(services.Items[i].Spec.ClusterIP, "80"))
	}
	return all
}

// statusIn returns the status of a container.
func statusIn(pod *corev1.Pod, container string) corev1.ContainerStatus {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == container {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// TestRollout changes image and memory of a sidecar in running pods. The apps keep running, and answer all requests.
func TestRollout(t *testing.T) {
	installed(t)
	ns := optedInNamespace(t)
	old := sidecar{name: "rolled", image: StandIn, memory: "16Mi", probe: true}
	old.use(t, ns, nil)
	r := rolledDeployments(t, ns, old.name)

	now := old
	now.image, now.memory = NextStandIn, "24Mi"
	now.use(t, ns, nil)
	load := startTraffic(t, requestEvery, addresses(t, r)...)
	started := time.Now()
	if out, err := rollout(t, ns, "--bake", "0s", "--first", "0", "--waves", "100%", "--parallel", fmt.Sprint(rolledOwners)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	inPlace := time.Since(started)
	requests := load.wantNoFailures(t)
	figure(t, fmt.Sprintf("new image and memory in %d pods, in place", rolledOwners*rolledEach), inPlace)
	figure(t, "requests to the apps meanwhile, those that failed", fmt.Sprintf("%d, %d", requests, len(load.failures)))
	r.wantAll(t, now)

	t.Run("bad image", func(t *testing.T) { testBadImage(t, r, now) })
	t.Run("infeasible", func(t *testing.T) {
		huge := now
		huge.memory = "1Ti"
		huge.use(t, ns, nil)
		wantStop(t, ns, []string{"the API server denied the resize", "enough allocatable resources: memory"}, "--first", "1", "--max-unavailable", "1", "--timeout", "60s")
		now.use(t, ns, nil)
		mustRollout(t, ns)
		r.wantAll(t, now)
	})
}

// TestRolloutSpeed compares a rollout in place with a restart of the same pods. A restart does not watch a pod after it is ready, so
// neither does this rollout. By default, a restart creates a quarter of the pods in addition; a change in place adds none.
func TestRolloutSpeed(t *testing.T) {
	installed(t)
	for _, probe := range []bool{false, true} {
		name := "without a probe"
		if probe {
			name = "startupProbe every second"
		}
		t.Run(name, func(t *testing.T) { testRolloutSpeed(t, probe) })
	}
}

func testRolloutSpeed(t *testing.T, probe bool) {
	ns := optedInNamespace(t)
	s := sidecar{name: fmt.Sprintf("speed-%t", probe), image: StandIn, memory: "16Mi", probe: probe}
	s.use(t, ns, nil)
	rolledDeployments(t, ns, s.name)
	const pods = rolledOwners * rolledEach
	restart := restartAll(t, ns)
	figure(t, fmt.Sprintf("kubectl rollout restart of %d pods", pods), restart)
	for i := range rolledOwners {
		kubectl(t, "-n", ns, "patch", fmt.Sprintf("deployment/web-%d", i), "-p", `{"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0}}}}`)
	}
	alike := restartAll(t, ns)
	figure(t, "the same without further pods (maxSurge: 0)", alike)

	r := running(t, ns, pods)
	s.image, s.memory = NextStandIn, "24Mi"
	s.use(t, ns, nil)
	started := time.Now()
	mustRollout(t, ns, "--first", "0", "--waves", "100%", "--parallel", fmt.Sprint(rolledOwners))
	inPlace := time.Since(started)
	figure(t, "new image and memory in these pods, in place, with --min-ready 0s", inPlace)
	figure(t, "ratio to the restart, and to that without further pods", fmt.Sprintf("%.1f, %.1f", restart.Seconds()/inPlace.Seconds(), alike.Seconds()/inPlace.Seconds()))
	r.wantAll(t, s)
}

// restartAll restarts the Deployments of a rollout at the same time, and returns how long it took until all were restarted.
func restartAll(t *testing.T, ns string) time.Duration {
	t.Helper()
	started := time.Now()
	for i := range rolledOwners {
		kubectl(t, "-n", ns, "rollout", "restart", fmt.Sprintf("deployment/web-%d", i))
	}
	for i := range rolledOwners {
		kubectl(t, "-n", ns, "rollout", "status", fmt.Sprintf("deployment/web-%d", i), "--timeout=170s")
	}
	return time.Since(started)
}

// testBadImage checks that a rollout stops after one pod if its image cannot be had, and that the old template repairs
// that pod.
func testBadImage(t *testing.T, r *rolled, good sidecar) {
	bad := good
	bad.image = "registry.example/standin:none"
	bad.use(t, r.ns, nil)
	wantStop(t, r.ns, []string{"ErrImageNeverPull", "half done"}, "--first", "1", "--max-unavailable", "1", "--timeout", "60s")
	var changed []string
	for _, pod := range podsIn(t, r.ns) {
		if pod.Spec.InitContainers[0].Image == bad.image {
			changed = append(changed, fmt.Sprintf("%s: %+v", pod.Name, statusIn(&pod, "rolled").State))
		}
	}
	if len(changed) != 1 {
		t.Errorf("%d pods have the bad image, want 1: %s", len(changed), strings.Join(changed, "; "))
	}
	good.use(t, r.ns, nil)
	started := time.Now()
	mustRollout(t, r.ns)
	figure(t, "until a pod with a bad image was repaired in place", time.Since(started))
	r.wantAll(t, good)
}
