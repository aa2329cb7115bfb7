// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const failOpenMetric = "apiserver_admission_webhook_fail_open_count"

// nowhere is an endpoint at which nothing listens.
func nowhere() cluster.Endpoint {
	return cluster.Endpoint{URL: "https://127.0.0.1:1", CA: env.Authority.PEM}
}

// TestMutatingDown changes the configuration that all tests share, so it runs alone. The mutating webhook
// cannot be reached, and its failure policy is Ignore. The pod reaches the validating webhook without sidecars
// and is denied, and the API server counts the failed call.
func TestMutatingDown(t *testing.T) {
	ns := optedInNamespace(t)
	before := countFailOpen(t, "admit", "namespace.mutate.pillion.dev")

	install := func(at cluster.Endpoint) {
		if err := env.InstallMutating(cleanupContext(), env.manifests, at); err != nil {
			t.Fatal(err)
		}
	}
	failsOpen := func(e cluster.Event) bool { return len(e.FailedOpen()) > 0 }
	t.Cleanup(func() {
		install(env.pillion.Endpoint)
		waitLive(t, ns, func(e cluster.Event) bool { return !failsOpen(e) && len(e.Calls(pillionConfiguration)) > 0 })
	})
	install(nowhere())
	eventually(t, "the mutating webhook is away", func(ctx context.Context) error {
		_, err := env.Client.CoreV1().Pods(ns).Create(ctx, newPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("the error is %w", err)
	})

	// Whether the template's mode is Warn or Deny, the pod does not get by.
	for template, edit := range map[string]func(*corev1.Pod){"logger": func(*corev1.Pod) {}, "guard": requests("guard")} {
		wantVerdict(t, ns, newPod("web-"+template, edit), says(denied, template, "not_injected at /spec/initContainers/-"))
	}
	event := creation(t, ns, "web-logger")
	if diff := cmp.Diff([]string{"namespace.mutate.pillion.dev"}, event.FailedOpen()); diff != "" {
		t.Errorf("webhooks that failed open (-want +got):\n%s", diff)
	}
	if after := countFailOpen(t, "admit", "namespace.mutate.pillion.dev"); after <= before {
		t.Errorf("%s was %v and is %v, want more", failOpenMetric, before, after)
	}
}

// countFailOpen returns how many calls of webhooks the API server gave up, and went on. The type is admit or validating.
func countFailOpen(t *testing.T, webhookType string, names ...string) float64 {
	t.Helper()
	metrics, err := env.Metrics(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	var n float64
	for _, name := range names {
		n += metrics.Counter(failOpenMetric, map[string]string{"name": name, "type": webhookType})
	}
	return n
}

// waitLive outlives the test's context, since it is used to clean up too.
func waitLive(t *testing.T, ns string, live func(cluster.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(cleanupContext(), waitLimit)
	defer cancel()
	if err := env.WaitForWebhook(ctx, ns, live); err != nil {
		t.Fatal(err)
	}
}

// TestValidatingDown runs alone, because it changes the shared configuration. The failure policy of
// the validating webhook is Fail: pods that opted in wait until Pillion is back, and all other pods
// are unaffected.
func TestValidatingDown(t *testing.T) {
	optedIn, plain, shadowed := optedInNamespace(t), plainNamespace(t), plainNamespace(t, withLabel(injectLabel, "shadow"))
	create := func(ns, name string) error {
		_, err := env.Client.CoreV1().Pods(ns).Create(cleanupContext(), newPod(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	install := func(at cluster.Endpoint) {
		if err := env.InstallValidating(cleanupContext(), env.manifests, at); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		install(env.pillion.Endpoint)
		ctx, cancel := context.WithTimeout(cleanupContext(), waitLimit)
		defer cancel()
		pollUntil(ctx, t, "the validating webhook is back", func() bool { return create(optedIn, "back") == nil })
	})
	install(nowhere())
	var denial error
	pollUntil(testContext(t), t, "the validating webhook is away", func() bool {
		denial = create(optedIn, "web")
		return denial != nil
	})
	if want := `failed calling webhook "namespace.validate.pillion.dev"`; !strings.Contains(denial.Error(), want) {
		t.Errorf("error is %q, want one with %q", denial, want)
	}
	optIn := func(p *corev1.Pod) { p.Labels[injectLabel] = "enabled" }
	wantCreateError(t, plain, newPod("opts-in", optIn), `failed calling webhook "pod.validate.pillion.dev"`)
	for _, ns := range []string{plain, shadowed} {
		if err := create(ns, "web"); err != nil {
			t.Errorf("a pod in a namespace that did not opt in: %v", err)
		}
	}
	// Pillion's own pods and the system's must not wait for Pillion.
	for _, ns := range []string{"pillion-system", "kube-system"} {
		wantNoLogger(t, dryRun(t, ns, newPod("opts-in-by-itself", restricted, optIn)))
	}

	createDeployment(t, optedIn)
	if message, want := failedCreate(t, optedIn), `failed calling webhook "namespace.validate.pillion.dev"`; !strings.Contains(message, want) {
		t.Errorf("the ReplicaSet's event is %q, want one with %q", message, want)
	}
	install(env.pillion.Endpoint)
	wantLogger(t, onlyPod(t, optedIn)) // the controller retries
}

// TestRestart runs alone, because it stops Pillion. Pillion stops without an error, and the next
// process takes over.
func TestRestart(t *testing.T) {
	ns := optedInNamespace(t)
	if err := env.pillion.Stop(); err != nil {
		t.Errorf("pillion serve after SIGTERM: %v\n%s", err, env.pillion.LogTail())
	}
	next, err := env.StartPillion(testContext(t), env.binary, env.templates...)
	if err != nil {
		t.Fatal(err)
	}
	env.pillion = next
	if err := env.InstallMutating(testContext(t), env.manifests, next.Endpoint); err != nil {
		t.Fatal(err)
	}
	if err := env.InstallValidating(testContext(t), env.manifests, next.Endpoint); err != nil {
		t.Fatal(err)
	}
	pollUntil(testContext(t), t, "the next Pillion is called", func() bool {
		pod, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), newPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && pod.Annotations["logger.pillion.dev/injected"] != ""
	})
	wantLogger(t, createPod(t, ns, newPod("web")))
}

func pollUntil(ctx context.Context, t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait.PollUntilContextCancel(ctx, pollEvery, true, func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
