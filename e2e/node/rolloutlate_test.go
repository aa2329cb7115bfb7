// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// latePods is the number of pods of a Deployment that gets an image which fails its readiness late.
const latePods = 8

// TestRolloutLate rolls out images that are ready at first, and not any more after 20 or 60 seconds, by the command and by the
// controller. The rollout stops. Then the controller puts the pods back, if the template says so. Otherwise, pillion rollout undo puts
// the template back, and the controller or another rollout the pods. Until the end, no more pods are unready than may be, so the
// Service always answers, and no app is restarted.
func TestRolloutLate(t *testing.T) {
	installed(t)
	root, err := cluster.Root(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, "apply", "--server-side", "-f", filepath.Join(root, "manifests", "components", "rollout", "rbac.yaml"))
	for _, after := range LateAfter() {
		t.Run("after "+after, func(t *testing.T) {
			for _, allowed := range []int{1, 4} {
				for _, by := range []struct {
					name string
					roll func(t *testing.T, after string, allowed int)
				}{{"command", lateCommand}, {"controller", lateController}, {"controller with undo", lateUndo}} {
					t.Run(fmt.Sprintf("%s, at most %d", by.name, allowed), func(t *testing.T) { t.Parallel(); by.roll(t, after, allowed) })
				}
			}
		})
	}
}

const lateRolloutSpec = "rollout: {strategy: InPlace, onFailure: %s, maxUnavailable: %d, first: 0, waves: [100%%]},"

func lateSidecar(by, after string, allowed int, spec string) sidecar {
	return sidecar{name: fmt.Sprintf("late-%s-%s-%d", by, after, allowed), image: StandIn, memory: "16Mi", readiness: true, spec: spec}
}

// lateCommand rolls out by the command, and goes back by two commands.
func lateCommand(t *testing.T, after string, allowed int) {
	s := lateSidecar("command", after, allowed, "")
	l := startLate(t, optedInNamespace(t), s, LateStandIn(after))
	wantLateStop(t, l.ns, allowed)
	l.wantStopped(t, LateStandIn(after), allowed)
	undoTemplate(t, s.name)
	mustRollout(t, l.ns, "--max-unavailable", fmt.Sprint(allowed), "--first", "0", "--waves", "100%")
	l.wantBack(t, after, allowed)
	l.pods.wantAll(t, l.first)
}

// lateController lets the controller roll out, and go back when the template is put back.
func lateController(t *testing.T, after string, allowed int) {
	s := lateSidecar("controller", after, allowed, fmt.Sprintf(lateRolloutSpec, "Stop", allowed))
	l := startLate(t, rolledNamespace(t), s, LateStandIn(after))
	wantLateCondition(t, s.name, l.ns, "Degraded True Failed: pod web-")
	l.wantStopped(t, LateStandIn(after), allowed)
	undoTemplate(t, s.name)
	l.wantBack(t, after, allowed)
	eventually(t, "the rollout is complete", wantConditions(s.name, "Degraded False AsExpected: ", "Progressing False Complete: "))
	l.pods.wantAll(t, l.first)
}

// lateUndo lets the controller roll out and go back. The template keeps the content that fails.
func lateUndo(t *testing.T, after string, allowed int) {
	s := lateSidecar("undo", after, allowed, fmt.Sprintf(lateRolloutSpec, "Undo", allowed))
	l := startLate(t, rolledNamespace(t), s, LateStandIn(after))
	wantLateCondition(t, s.name, l.ns, "Degraded True Undone: ", "put back to the content before the rollout, because of this failure: pod web-")
	l.wantBack(t, after, allowed)
}

// rolledNamespace creates a namespace in which the controller changes pods.
func rolledNamespace(t *testing.T) string {
	t.Helper()
	return namespace(t, map[string]string{injectLabel: "enabled", "pillion.dev/rollout": "enabled"})
}

// lateRollout is a rollout while clients send requests and a watch counts pods that are unready.
type lateRollout struct {
	ns      string
	first   sidecar
	pods    *rolled
	load    *traffic
	watched *readiness
}

// startLate starts pods with the first image of a sidecar, which the history of the template has, and then applies the template with
// another image.
func startLate(t *testing.T, ns string, s sidecar, image string) *lateRollout {
	t.Helper()
	s.use(t, ns, nil)
	apply(t, ns, deploymentOf("web", latePods, s.name, "")+`
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8000}]}
`)
	l := &lateRollout{ns: ns, first: s, pods: running(t, ns, latePods)}
	wantRevisions(t, s.name, 1)
	service, err := env.Client.CoreV1().Services(ns).Get(testContext(t), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(service.Spec.ClusterIP, "80")
	l.load, l.watched = startTraffic(t, requestEvery, address), watchReadiness(t, ns)
	s.image = image
	s.use(t, ns, nil)
	return l
}

// wantStopped checks how many pods have the image when the rollout has stopped. That it stays stopped shows wantBack, which counts
// all pods that were changed. Requests and the watch go on.
func (l *lateRollout) wantStopped(t *testing.T, image string, allowed int) {
	t.Helper()
	changed := 0
	for _, pod := range podsIn(t, l.ns) {
		if pod.Spec.InitContainers[0].Image == image {
			changed++
		}
	}
	if changed < 1 || changed > allowed {
		t.Errorf("%d pods have the image, want 1 to %d", changed, allowed)
	}
	if out, err := rollout(t, l.ns, "--dry-run"); err != nil || strings.Contains(out, "All pods are current") {
		t.Errorf("a plan after the stop: %v: %s", err, out)
	}
}

// wantBack waits until all pods are ready and run their first image again. It checks that not too many pods were changed, or unready
// at the same time, that no request to the Service failed, and that no app was restarted.
func (l *lateRollout) wantBack(t *testing.T, after string, allowed int) {
	t.Helper()
	most := l.watched.endWhen(t, l.ns, func(pod *corev1.Pod) bool { return ready(pod) && runs(l.first, pod) == nil })
	requests, changed := l.load.wantNoFailures(t), 0
	if most < 1 || most > allowed {
		t.Errorf("%d of %d pods were unready at the same time, want 1 to %d", most, latePods, allowed)
	}
	for _, pod := range podsIn(t, l.ns) {
		was := l.pods.before[pod.Name]
		if err := untouched(&was, &pod); err != nil {
			t.Error(err)
		}
		if statusIn(&pod, l.first.containerName()).RestartCount > 0 {
			changed++
		}
	}
	if changed < 1 || changed > allowed {
		t.Errorf("%d pods were changed, want 1 to %d", changed, allowed)
	}
	figure(t, fmt.Sprintf("an image that fails after %s, until all pods are back: pods unready of %d at a time, pods put back, requests to the Service, those that failed", after, latePods), fmt.Sprintf("%d, %d, %d, %d", most, changed, requests, len(l.load.failures)))
}

// undoTemplate waits until the history has both contents of a template, and puts the first one back by pillion rollout undo.
func undoTemplate(t *testing.T, template string) {
	t.Helper()
	wantRevisions(t, template, 2)
	if out, err := pillion(t, "rollout", "undo", template, "--yes"); err != nil {
		t.Fatalf("rollout undo: %v: %s", err, out)
	}
}

// wantRevisions waits until the history of a template has a number of contents.
func wantRevisions(t *testing.T, template string, want int) {
	t.Helper()
	eventually(t, "the history is complete", func(ctx context.Context) error {
		list, err := env.Client.AppsV1().ControllerRevisions(pillionNamespace).List(ctx, metav1.ListOptions{LabelSelector: "pillion.dev/template=" + template})
		if err == nil && len(list.Items) != want {
			err = fmt.Errorf("it has %d contents, want %d", len(list.Items), want)
		}
		return err
	})
}

// wantLateStop runs the command, which stops. Its other flags have their defaults: both images fail within --bake, but long after
// --min-ready.
func wantLateStop(t *testing.T, ns string, allowed int) {
	t.Helper()
	out, err := rollout(t, ns, "--max-unavailable", fmt.Sprint(allowed), "--first", "0", "--waves", "100%")
	for _, want := range []string{fmt.Sprintf("rollout has stopped after 0 of %d pods: pod web-", latePods), "it was ready with the change for", "Readiness probe failed: HTTP probe failed with statuscode: 503", "half done: pod web-"} {
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("rollout does not stop with %q: %v: %s", want, err, out)
		}
	}
}

// wantLateCondition waits until the controller knows the failure and has stopped, and checks what it reports.
func wantLateCondition(t *testing.T, template, ns string, degraded ...string) {
	t.Helper()
	eventually(t, "the failure is known", wantConditions(template, "Degraded True ", "it was ready with the change for"))
	eventually(t, "the rollout has stopped", wantConditions(template, append(degraded, "Progressing False Stopped: ")...)) // an undo takes its time
	eventually(t, "there is an Event", func(ctx context.Context) error {
		list, err := env.Client.CoreV1().Events(corev1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "reason=RolloutStopped,involvedObject.name=" + template})
		if err == nil && (len(list.Items) == 0 || !strings.Contains(list.Items[0].Message, "in the namespace "+ns)) {
			err = fmt.Errorf("%+v", list.Items)
		}
		return err
	})
}

// wantConditions returns a check that the conditions of a template contain all these strings.
func wantConditions(template string, all ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := env.RunKubectl(ctx, nil, "get", "clustersidecartemplate", template, "-o", `jsonpath={range .status.conditions[*]}{.type} {.status} {.reason}: {.message}{"\n"}{end}`)
		for _, want := range all {
			if err == nil && !strings.Contains(string(out), want) {
				err = errors.New(string(out))
			}
		}
		return err
	}
}
