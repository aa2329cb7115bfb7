// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	selfEach           = 6 // pods of each of two Deployments
	controllerSelector = "app.kubernetes.io/name=pillion-controller"
	controllerLease    = "pillion-controller"
)

// selfRolled applies the template self with settings of its rollout. It waits until new pods get it.
func selfRolled(t *testing.T, ns, settings, image string) {
	t.Helper()
	apply(t, ns, sidecar{name: "self", image: image, memory: "16Mi", probe: true, spec: "rollout: {" + settings + "},"}.manifest())
	eventually(t, "the template self is used", func(ctx context.Context) error {
		got, err := selfField(ctx, `{.metadata.generation} {.status.conditions[?(@.type=="Ready")].observedGeneration}`)
		if generation, ready, _ := strings.Cut(got, " "); err == nil && generation != ready {
			err = errors.New(got)
		}
		return err
	})
}

func selfField(ctx context.Context, path string) (string, error) {
	out, err := env.RunKubectl(ctx, nil, "get", "clustersidecartemplate", "self", "-o", "jsonpath="+path)
	return string(out), err
}

// wantSelf waits for a condition of the template.
func wantSelf(t *testing.T, kind, want string) {
	t.Helper()
	eventually(t, kind+" is "+want, func(ctx context.Context) error {
		got, err := selfField(ctx, fmt.Sprintf(`{.metadata.generation} {range .status.conditions[?(@.type=="%s")]}{.observedGeneration} {.status} {.reason}{end}`, kind))
		if generation, condition, _ := strings.Cut(got, " "); err == nil && condition != generation+" "+want {
			status, _ := selfField(ctx, "{.status}")
			err = errors.New(status)
		}
		return err
	})
}

// selfWith counts the pods whose sidecar has an image.
func selfWith(ctx context.Context, ns, image string) (n int, err error) {
	found, err := pods(ctx, ns, "app=self")
	for i := range found {
		if found[i].Spec.InitContainers[0].Image == image {
			n++
		}
	}
	return n, err
}

func someChanged(t *testing.T, ns, image string) {
	t.Helper()
	eventually(t, "a pod has changed", func(ctx context.Context) error {
		n, err := selfWith(ctx, ns, image)
		if err == nil && n == 0 {
			err = errors.New("none")
		}
		return err
	})
}

// leader returns the name of the pod that holds the Lease.
func leader(ctx context.Context) (string, error) {
	lease, err := env.Client.CoordinationV1().Leases(pillionNamespace).Get(ctx, controllerLease, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errors.New("no replica leads")
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	return name, nil
}

// TestRolloutController lets two replicas of the controller update pods: by itself, paused and resumed, and with
// the one that leads killed in the middle.
func TestRolloutController(t *testing.T) {
	installed(t)
	root, err := cluster.Root(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--server-side", "-f", filepath.Join(root, "manifests", "components", "rollout", "rbac.yaml"))
	kubectl(t, "-n", pillionNamespace, "scale", "deployment/pillion-controller", "--replicas=2")
	readyPods(t, pillionNamespace, controllerSelector, 2)
	t.Cleanup(func() { // the test's context has ended
		ctx, cancel := context.WithTimeout(context.Background(), waitWithin)
		defer cancel()
		for _, args := range [][]string{{"-n", pillionNamespace, "scale", "deployment/pillion-controller", "--replicas=1"}, {"delete", "clustersidecartemplate", "self"}} {
			if out, err := env.RunKubectl(ctx, nil, args...); err != nil {
				t.Errorf("kubectl %s: %v: %s", strings.Join(args, " "), err, out)
			}
		}
	})
	ns := namespace(t, map[string]string{injectLabel: "enabled", "pillion.dev/rollout": "enabled"})
	const slow = "strategy: InPlace, maxUnavailable: 1, bake: 0s"
	selfRolled(t, ns, slow, StandIn)
	for i := range 2 {
		apply(t, ns, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: self-%d}
spec:
  replicas: %d
  selector: {matchLabels: {app: self, n: "%[1]d"}}
  template:
    metadata: {labels: {app: self, n: "%[1]d"}, annotations: {pillion.dev/templates: self}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: app, image: %[3]s, args: ["-serve=:8000"], resources: {requests: {cpu: 1m, memory: 16Mi}, limits: {memory: 16Mi}}}
`, i, selfEach, StandIn))
	}
	const all = 2 * selfEach
	apps := map[string]string{}
	for _, pod := range readyPods(t, ns, "app=self", all) {
		apps[pod.Name] = statusIn(&pod, "app").ContainerID
	}
	wantAll := func(image string, restarts int32) {
		t.Helper()
		wantSelf(t, "Progressing", "False Complete")
		for _, pod := range readyPods(t, ns, "app=self", all) {
			app, sidecar := statusIn(&pod, "app"), statusIn(&pod, "self")
			if apps[pod.Name] != app.ContainerID || app.RestartCount != 0 || sidecar.Image != image || sidecar.RestartCount != restarts {
				t.Errorf("pod %s: the app has %d restarts and the ID %s, was %s; the sidecar runs %s after %d restarts", pod.Name, app.RestartCount, app.ContainerID, apps[pod.Name], sidecar.Image, sidecar.RestartCount)
			}
		}
		if out, err := rollout(t, ns, "--dry-run"); err != nil || !strings.Contains(out, "All pods are current") {
			t.Errorf("afterwards: %v: %s", err, out)
		}
	}

	t.Run("by itself, paused, resumed", func(t *testing.T) {
		selfRolled(t, ns, slow, NextStandIn)
		someChanged(t, ns, NextStandIn)
		selfRolled(t, ns, slow+", paused: true", NextStandIn)
		wantSelf(t, "Progressing", "False Paused")
		if n, err := selfWith(testContext(t), ns, NextStandIn); err != nil || n == all {
			t.Errorf("%d of %d pods have changed although the rollout was paused, %v", n, all, err)
		}
		selfRolled(t, ns, "strategy: InPlace, maxUnavailable: 50%, bake: 0s", NextStandIn)
		wantAll(NextStandIn, 1)
	})

	t.Run("killed", func(t *testing.T) {
		first, err := leader(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		selfRolled(t, ns, slow, StandIn)
		someChanged(t, ns, StandIn)
		if err := env.Client.CoreV1().Pods(pillionNamespace).Delete(testContext(t), first, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
		if n, err := selfWith(testContext(t), ns, StandIn); err != nil || n == all {
			t.Fatalf("%d pods have changed already, %v", n, err)
		}
		eventually(t, "the other replica leads", func(ctx context.Context) error {
			now, err := leader(ctx)
			if err == nil && now == first {
				err = errors.New("it is still " + now)
			}
			return err
		})
		wantAll(StandIn, 2)
	})

	t.Run("bad image", func(t *testing.T) {
		selfRolled(t, ns, slow, "registry.example/standin:none")
		wantSelf(t, "Degraded", "True Failed")
		if n, err := selfWith(testContext(t), ns, "registry.example/standin:none"); err != nil || n != 1 {
			t.Errorf("%d pods have the bad image, want 1, %v", n, err)
		}
		selfRolled(t, ns, slow, StandIn)
		wantSelf(t, "Degraded", "False AsExpected")
		wantSelf(t, "Progressing", "False Complete")
		for _, pod := range readyPods(t, ns, "app=self", all) {
			if app := statusIn(&pod, "app"); apps[pod.Name] != app.ContainerID {
				t.Errorf("pod %s: the app was restarted", pod.Name)
			}
		}
	})

	// The pods that have the canary already get the base back.
	t.Run("canary deleted", func(t *testing.T) {
		canary := sidecar{name: "self-next", container: "self", image: NextStandIn, memory: "16Mi", probe: true, spec: "replaces: self, share: 100, rollout: {" + slow + "},"}
		apply(t, ns, canary.manifest())
		someChanged(t, ns, NextStandIn)
		kubectl(t, "delete", "clustersidecartemplate", canary.name)
		if n, err := selfWith(testContext(t), ns, NextStandIn); err != nil || n == all {
			t.Fatalf("%d pods have the canary already, %v", n, err)
		}
		eventually(t, "all pods have the base", func(ctx context.Context) error {
			n, err := selfWith(ctx, ns, StandIn)
			if err == nil && n != all {
				err = fmt.Errorf("%d have", n)
			}
			return err
		})
		wantSelf(t, "Progressing", "False Complete")
		for _, pod := range readyPods(t, ns, "app=self", all) {
			app := statusIn(&pod, "app")
			if _, has := pod.Annotations[canary.name+recordSuffix]; has || apps[pod.Name] != app.ContainerID {
				t.Errorf("pod %s: the app has the ID %s, was %s; %v", pod.Name, app.ContainerID, apps[pod.Name], records(&pod))
			}
		}
	})
}
