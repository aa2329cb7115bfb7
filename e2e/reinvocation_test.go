// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// The API server runs its own plugins and the mutating webhooks at most twice. These tests go through
// the cases in which there is a second time, named as in Kubernetes' proposal 492: how often Pillion is
// called, whether it changed anything, and what the pod looks like in the end.

const (
	ifNeeded = admissionregistrationv1.IfNeededReinvocationPolicy
	never    = admissionregistrationv1.NeverReinvocationPolicy

	otherChanged      = "test.e2e.example.com mutated=true"
	otherDidNotChange = "test.e2e.example.com mutated=false"
)

func inRound(n, configuration, outcome string) string {
	return "round_" + n + " " + configuration + "/" + outcome
}

// TestReinvocationNothingToAdd is R1: Kubernetes changes the pod and Pillion does not. No webhook
// is called again.
func TestReinvocationNothingToAdd(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	pod := createPod(t, ns, newPod("web", func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" }))
	if len(container(t, pod, "web").VolumeMounts) == 0 {
		t.Error("the ServiceAccount plugin added no token mount, so this test shows nothing")
	}
	wantCalls(t, creation(t, ns, "web"), calledInVain)
}

// TestReinvocationNotNeeded is R2: Pillion changes the pod so that Kubernetes adds nothing. Pillion
// is called once.
func TestReinvocationNotNeeded(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	createPod(t, ns, newPod("web"))
	wantCalls(t, creation(t, ns, "web"), calledOnce)
}

// TestReinvocationByKubernetes is R3: Kubernetes adds something to Pillion's container. Pillion is
// called again and changes nothing.
func TestReinvocationByKubernetes(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	limitRange(t, ns, corev1.LimitRangeItem{
		Type:           corev1.LimitTypeContainer,
		Default:        corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		DefaultRequest: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")},
	})
	pod := createPod(t, ns, newPod("web", requests("bare")))
	requests := container(t, pod, "bare").Resources.Requests
	if got := requests.Memory().String(); got != "48Mi" {
		t.Errorf("the LimitRange gave the sidecar a memory request of %s, want 48Mi", got)
	}
	event := creation(t, ns, "web")
	wantCalls(t, event, calledOnce, againInVain)
	wantReason(t, event, "bare", "injected")
	wantNothingToAdd(t, pod)
}

// limitRange makes a LimitRange and waits until the API server applies it. The item must give a default
// for memory.
func limitRange(t *testing.T, ns string, item corev1.LimitRangeItem) {
	t.Helper()
	_, err := env.Client.CoreV1().LimitRanges(ns).Create(testContext(t), &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	probe := newPod("probe", func(p *corev1.Pod) { p.Labels[injectLabel] = "disabled" })
	eventually(t, "the LimitRange is applied", func(ctx context.Context) error {
		pod, err := env.Client.CoreV1().Pods(ns).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err
		}
		if pod.Spec.Containers[0].Resources.Limits.Memory().IsZero() {
			return errors.New("a container has no memory limit")
		}
		return nil
	})
}

// TestReinvocationByLaterWebhook is R4: a later webhook changes something that no other webhook
// reads. Pillion is called again, that webhook is not.
func TestReinvocationByLaterWebhook(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	other := installWebhook(t, ns, "z", testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.AddLabel("other", "yes")})
	pod := createPod(t, ns, newPod("web"))
	event := creation(t, ns, "web")
	wantCalls(t, event, calledOnce, againInVain)
	wantCallsOf(t, event, other, inRound("0", other, otherChanged))
	wantLogger(t, pod)
	wantReason(t, event, "logger", "injected")
}

// TestReinvocationFight is R5: a later webhook removes Pillion's additions at each call. There is
// no third call, so the other webhook wins.
func TestReinvocationFight(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	other := installWebhook(t, ns, "z", testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.Strip("logger", "/logs")})
	pod := createPod(t, ns, newPod("web"))
	event := creation(t, ns, "web")
	wantCalls(t, event, calledOnce, againMutated)
	wantCallsOf(t, event, other, inRound("0", other, otherChanged), inRound("1", other, otherChanged))
	logger := container(t, pod, "logger")
	if logger.RestartPolicy != nil || slices.Contains(mountPaths(logger), "/logs") {
		t.Errorf("restartPolicy %v, mounts %v: want what the last webhook left of them, which is nothing", logger.RestartPolicy, mountPaths(logger))
	}
}

// TestReinvocationRepairs is R5 with a webhook that is called only once: Pillion adds again what
// the webhook removed.
func TestReinvocationRepairs(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	other := installWebhook(t, ns, "z", testwebhook.Webhook{Reinvocation: never, Mutate: testwebhook.Strip("logger", "/logs")})
	pod := createPod(t, ns, newPod("web"))
	event := creation(t, ns, "web")
	wantCalls(t, event, calledOnce, againMutated)
	wantCallsOf(t, event, other, inRound("0", other, otherChanged))
	wantLogger(t, pod)
	if logger := container(t, pod, "logger"); !slices.Contains(mountPaths(logger), "/logs") {
		t.Errorf("the mount at /logs is not back: %v", mountPaths(logger))
	}
	wantReason(t, event, "logger", "injected")
	wantNothingToAdd(t, pod)
}

// TestReinvocationNewContainer checks a container that another webhook adds. Like the application's
// own containers, it gets its mount and its variable. Kubernetes causes the second call in any
// case, because it mounts the token into this container.
func TestReinvocationNewContainer(t *testing.T) {
	t.Parallel()
	extra := corev1.Container{Name: "extra", Image: "registry.example/extra:1"}
	cases := []struct {
		name, order string
		want        []string
	}{
		{"before Pillion", "a", []string{calledOnce, againInVain}},
		{"between Pillion's calls", "z", []string{calledOnce, againMutated}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			other := installWebhook(t, ns, c.order, testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.AddContainer(extra)})
			pod := createPod(t, ns, newPod("web"))
			event := creation(t, ns, "web")
			wantCalls(t, event, c.want...)
			wantCallsOf(t, event, other, inRound("0", other, otherChanged), inRound("1", other, otherDidNotChange))
			wantLogger(t, pod) // of every container, so of the new one too
			if got := container(t, pod, "extra").Env; len(got) != 1 || got[0].Name != "LOG_DIR" {
				t.Errorf("variables of the new container are %v, want LOG_DIR", got)
			}
			wantReason(t, event, "logger", "injected")
			wantNothingToAdd(t, pod)
		})
	}
}

// TestReinvocationOrder tries three webhooks in any order. Every container that two of them add
// gets Pillion's additions for all containers. A further call of any of the three would change
// nothing.
func TestReinvocationOrder(t *testing.T) {
	t.Parallel()
	for _, orders := range [][2]string{{"a", "b"}, {"b", "a"}, {"a", "z"}, {"z", "a"}, {"y", "z"}, {"z", "y"}} {
		t.Run(orders[0]+orders[1], func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			for i, order := range orders {
				extra := corev1.Container{Name: fmt.Sprintf("extra-%d", i), Image: "registry.example/extra:1"}
				installWebhook(t, ns, order, testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: testwebhook.AddContainer(extra)})
			}
			pod := createPod(t, ns, newPod("web"))
			wantLogger(t, pod) // of every container
			if got := containerNames(pod.Spec.Containers); len(got) != 4 {
				t.Errorf("containers are %q, want web, worker and one of each other webhook", got)
			}
			wantNothingToAdd(t, pod)
		})
	}
}

// TestReinvocationLateOptIn is R6: the API server does not call a webhook again if it did not call
// it the first time. An opt-in by a later webhook is therefore too late, and the pod is denied. An
// opt-in by an earlier webhook is in time.
func TestReinvocationLateOptIn(t *testing.T) {
	t.Parallel()
	optIn := testwebhook.AddLabel(injectLabel, "enabled")

	t.Run("later webhook", func(t *testing.T) {
		t.Parallel()
		ns := plainNamespace(t)
		// Dry runs must pass until the webhook is live, so only this test's pod opts in.
		installWebhook(t, ns, "z", testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: func(p *corev1.Pod) []testwebhook.Operation {
			if p.Name != "web" {
				return nil
			}
			return optIn(p)
		}})
		// Only the validating webhook sees the result, so only it can report this.
		wantVerdict(t, ns, newPod("web"), says(denied, "logger", "not_injected at /spec/initContainers/-"))
		wantCalls(t, creation(t, ns, "web"))
	})
	t.Run("earlier webhook", func(t *testing.T) {
		t.Parallel()
		ns := plainNamespace(t)
		installWebhook(t, ns, "a", testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: optIn})
		pod := createPod(t, ns, newPod("web"))
		wantCalls(t, creation(t, ns, "web"), "round_0 pillion/pod.mutate.pillion.dev mutated=true")
		wantLogger(t, pod)
	})
}

// TestReinvocationDenied is R7: Kubernetes rejects the result of the webhooks. The user gets the
// error, and nothing is stored.
func TestReinvocationDenied(t *testing.T) {
	t.Parallel()

	t.Run("by a plugin's second run", func(t *testing.T) {
		t.Parallel()
		ns := optedInNamespace(t)
		// Dry runs must pass until the webhook is live, so only this test's pod is spoiled.
		installWebhook(t, ns, "z", testwebhook.Webhook{Reinvocation: ifNeeded, Mutate: func(p *corev1.Pod) []testwebhook.Operation {
			if p.Name != "web" {
				return nil
			}
			return testwebhook.SetPriorityClass("absent")(p)
		}})
		wantCreateError(t, ns, newPod("web"), "no PriorityClass with name absent was found")
		wantCalls(t, creation(t, ns, "web"), calledOnce)
	})
	t.Run("sidecar above the namespace's limit", func(t *testing.T) {
		t.Parallel()
		ns := optedInNamespace(t)
		limitRange(t, ns, corev1.LimitRangeItem{
			Type:    corev1.LimitTypeContainer,
			Max:     corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("48Mi")},
			Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")},
		})
		wantCreateError(t, ns, newPod("web"), "maximum memory usage per Container is 48Mi, but limit is 64Mi")
	})
}

func wantCreateError(t *testing.T, ns string, pod *corev1.Pod, reason string) {
	t.Helper()
	_, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), pod, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), reason) {
		t.Errorf("the error of the create is %v, want one with %q", err, reason)
	}
}

// TestReinvocationPolicyOfOthers is R8: the reinvocationPolicy of another webhook decides whether
// it is called again after Pillion's change.
func TestReinvocationPolicyOfOthers(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name   string
		policy admissionregistrationv1.ReinvocationPolicyType
		again  bool
	}{
		{"Never", never, false},
		{"not set", "", false},
		{"IfNeeded", ifNeeded, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := optedInNamespace(t)
			other := installWebhook(t, ns, "a", testwebhook.Webhook{Reinvocation: c.policy, Mutate: testwebhook.Nothing})
			pod := createPod(t, ns, newPod("web"))
			event := creation(t, ns, "web")
			want := []string{inRound("0", other, otherDidNotChange)}
			if c.again {
				want = append(want, inRound("1", other, otherDidNotChange))
			}
			wantCallsOf(t, event, other, want...)
			if got := len(env.webhooks.Calls(other, pod)); got != len(want) {
				t.Errorf("the webhook counted %d calls, the API server %d", got, len(want))
			}
			wantCalls(t, event, calledOnce)
		})
	}
}

// wantNothingToAdd checks that a third call, were there one, would change nothing: the command prints
// patches only if there are some.
func wantNothingToAdd(t *testing.T, stored *corev1.Pod) {
	t.Helper()
	pod := stored.DeepCopy()
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if patch := bytes.TrimSpace(injectOffline(t, raw, pod.Namespace, "-o", "patch")); len(patch) > 0 {
		t.Errorf("injecting pod %s/%s again would change it: %s", pod.Namespace, pod.Name, patch)
	}
}

// checkAuditAnnotations runs when all tests are done: the API server rejects, and logs, an audit
// annotation whose value differs between the calls for one pod. Where another webhook has tampered with
// the pod between the calls, they do differ.
func checkAuditAnnotations(c *cluster.Cluster) error {
	logs, err := filepath.Glob(c.Path("kube-apiserver*.log"))
	if err != nil || len(logs) == 0 {
		return fmt.Errorf("no log of an API server: %w", err)
	}
	rejectedNote := regexp.MustCompile(`audit annotation \S+\.pillion\.dev/(\S+)`)
	for _, path := range logs {
		log, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for line := range bytes.Lines(log) {
			if m := rejectedNote.FindSubmatch(line); m != nil && !slices.Contains(tampered(), string(m[1])) {
				return errors.New("the API server did not take an audit annotation of Pillion's: " + string(line))
			}
		}
	}
	return nil
}
