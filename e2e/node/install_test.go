// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	selfSigned  = "self-signed"
	certManager = "cert-manager"

	// web is a Deployment of a user.
	web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: app
        image: registry.example/standin:1
        args: ["-serve=:8000"]
        readinessProbe: {httpGet: {path: /, port: 8000}, periodSeconds: 1}
`
)

// TestSelfSigned installs the overlay self-signed as users do.
func TestSelfSigned(t *testing.T) { testInstall(t, selfSigned) }

// TestCertManager installs the overlay cert-manager as users do, with cert-manager running.
func TestCertManager(t *testing.T) {
	needCertManager(t)
	testInstall(t, certManager)
}

// needCertManager starts cert-manager for this test and all later ones.
func needCertManager(t *testing.T) {
	t.Helper()
	if certManagerRuns {
		return
	}
	if _, err := env.StartCertManager(testContext(t)); err != nil {
		t.Fatal(err)
	}
	certManagerRuns = true
}

var certManagerRuns bool

// testInstall installs an overlay, and measures how long it takes until the first injected pod is
// ready. Nothing is done by hand in between: the namespace has its label before Pillion runs, and the
// Deployment is applied right after the overlay, so its controller retries until Pillion answers.
func testInstall(t *testing.T, overlay string) {
	remove(t)
	ns := optedInNamespace(t)
	started := time.Now()
	applyOverlay(t, overlay)
	applied := time.Since(started)
	applyTemplate(t, ns, "helper")
	apply(t, ns, web)
	pod := readyPods(t, ns, "app=web", 1)[0]
	first := time.Since(started)
	wantSidecar(t, &pod)
	waitForRollout(t)
	figure(t, "kubectl apply", applied)
	figure(t, "from apply to the first injected pod, ready", first)
	figure(t, "from apply to a complete rollout of Pillion", time.Since(started))
}

// installed makes sure that Pillion is installed, by whichever overlay, and that the template helper is
// in use.
//
// For five minutes, a replica also accepts pods without a template that is new. So a pod that Pillion could
// not inject would not be denied. Replicas that started after the template know nothing else.
func installed(t *testing.T) {
	t.Helper()
	if current == "" {
		applyOverlay(t, selfSigned)
	}
	waitForRollout(t)
	if settled {
		return
	}
	applyTemplate(t, optedInNamespace(t), "helper")
	kubectl(t, "-n", pillionNamespace, "rollout", "restart", "deployment/pillion")
	waitForRollout(t)
	readyPods(t, pillionNamespace, pillionSelector, 2)
	settled = true
}

// applyTemplate applies a template, and waits until the replicas use it. That takes a moment longer than
// kubectl apply.
func applyTemplate(t *testing.T, ns, name string) {
	t.Helper()
	kubectl(t, "apply", "-f", filepath.Join("testdata", name+".yaml"))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "probe", Annotations: map[string]string{"pillion.dev/templates": name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: StandIn}}},
	}
	eventually(t, "the template "+name+" is in use", func(ctx context.Context) error {
		made, err := env.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if len(made.Spec.InitContainers) == 0 {
			return errors.New("a pod was not injected")
		}
		return agree(ctx)
	})
}

var (
	// current is the installed overlay, or "".
	current string
	// settled is whether no replica has used other templates.
	settled bool
)

func overlayDir(t *testing.T, overlay string) string {
	t.Helper()
	root, err := cluster.Root(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "manifests", "overlays", overlay)
}

func applyOverlay(t *testing.T, overlay string) {
	t.Helper()
	current, settled = overlay, false
	kubectl(t, "apply", "--server-side", "-k", overlayDir(t, overlay))
}

func waitForRollout(t *testing.T) {
	t.Helper()
	for _, deployment := range []string{"pillion", "pillion-controller"} {
		if _, err := env.RunKubectl(testContext(t), nil, "-n", pillionNamespace, "rollout", "status", "deployment/"+deployment, "--timeout=120s"); err != nil {
			t.Fatalf("%v\n%s", err, describe(testContext(t), pillionNamespace))
		}
	}
}

// remove removes Pillion as the docs say.
func remove(t *testing.T) {
	t.Helper()
	if current == "" {
		return
	}
	started := time.Now()
	kubectl(t, "delete", "--ignore-not-found", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "-l", "app.kubernetes.io/name=pillion")
	kubectl(t, "delete", "--ignore-not-found", "-k", overlayDir(t, current))
	figure(t, "removing the overlay "+current, time.Since(started))
	current, settled = "", false
	wantNothingLeft(t)
}

func wantNothingLeft(t *testing.T) {
	t.Helper()
	eventually(t, "nothing of Pillion is left", func(ctx context.Context) error {
		namespaces, err := env.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=pillion"})
		if err != nil {
			return err
		}
		if len(namespaces.Items) > 0 {
			return errors.New("its namespace is left")
		}
		left, err := env.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name in (pillion, pillion-controller)"})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d pods are left", len(left.Items))
		}
		return err
	})
}
