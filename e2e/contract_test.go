// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
	"github.com/pillion-dev/pillion/e2e/testwebhook"
)

// These tests hold what the API server promises about webhooks and what Pillion's manifests, documents and
// failure policies rest on.

// TestNoAnswer checks a webhook that accepts the request and never answers. The API server waits
// for timeoutSeconds, and then applies the failurePolicy.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	silent := func(t *testing.T, policy admissionregistrationv1.FailurePolicyType) (ns, name string) {
		over := make(chan struct{})
		t.Cleanup(func() { close(over) })
		ns = plainNamespace(t)
		name = ns + ".e2e.example.com"
		registerWebhook(t, ns, "z", testwebhook.Webhook{
			Mutate: func(*corev1.Pod) []testwebhook.Operation { <-over; return nil },
			Change: func(w *admissionregistrationv1.MutatingWebhook) {
				w.Name, w.TimeoutSeconds, w.FailurePolicy = name, new(int32(1)), &policy
			},
		})
		return ns, name
	}
	t.Run("Fail", func(t *testing.T) {
		t.Parallel()
		ns, name := silent(t, admissionregistrationv1.Fail)
		var denial error
		eventually(t, "the pod is denied", func(ctx context.Context) error {
			if _, denial = tryPod(ctx, t, ns, newPod("web")); denial == nil {
				return errors.New("it was made")
			}
			return nil
		})
		for _, want := range []string{fmt.Sprintf("failed calling webhook %q", name), "?timeout=1s", "context deadline exceeded"} {
			if !apierrors.IsInternalError(denial) || !strings.Contains(denial.Error(), want) {
				t.Errorf("the error is %q, want an internal one with %q", denial, want)
			}
		}
	})
	t.Run("Ignore", func(t *testing.T) {
		t.Parallel()
		ns, name := silent(t, admissionregistrationv1.Ignore)
		open := func(e cluster.Event) bool { return slices.Equal(e.FailedOpen(), []string{name}) }
		if err := env.WaitForWebhook(testContext(t), ns, open); err != nil {
			t.Fatal(err)
		}
		createPod(t, ns, newPod("web"))
		if event := creation(t, ns, "web"); !open(event) {
			t.Errorf("the audit log says that %q failed open, want %q", event.FailedOpen(), name)
		}
		metrics, err := env.Metrics(testContext(t))
		if err != nil || metrics.Counter(failOpenMetric, map[string]string{"name": name}) < 2 {
			t.Errorf("%s does not count %s (%v)", failOpenMetric, name, err)
		}
	})
}

// TestRegisteredForAll checks what happens if both entries of Pillion get a rule for all resources.
// Deletions pass unchanged. Changes of webhook configurations are not sent to Pillion, so that users can fix
// them while it is broken. As a control, other cluster-scoped objects are sent.
func TestRegisteredForAll(t *testing.T) {
	t.Parallel()
	ns := optedInNamespace(t)
	mine := func(p *corev1.Pod) { p.Labels["e2e.example.com/all"] = ns }
	own := forAll(ns)
	name := own.Mutating.Webhooks[0].Name
	if err := errors.Join(
		env.InstallMutating(testContext(t), own, env.pillion.Endpoint),
		env.InstallValidating(testContext(t), own, env.pillion.Endpoint)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Uninstall(cleanupContext(), own); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "both entries are called", func(ctx context.Context) error {
		if _, err := tryPod(ctx, t, ns, newPod("web", mine)); err != nil {
			return err
		}
		if n := callsOf(ctx, t, name); n[0] == 0 || n[1] == 0 {
			return fmt.Errorf("%v calls", n)
		}
		return nil
	})

	t.Run("deletion", func(t *testing.T) {
		for _, pod := range []string{"one", "two", "three"} {
			createPod(t, ns, newPod(pod, mine))
		}
		pods := env.Client.CoreV1().Pods(ns)
		if err := pods.Delete(testContext(t), "one", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		event, err := env.Audit.Wait(testContext(t), func(e cluster.Event) bool {
			return e.Verb == "delete" && e.ObjectRef.Namespace == ns && e.ObjectRef.Name == "one"
		})
		if err != nil {
			t.Fatal(err)
		}
		wantCallsOf(t, event, ns, inRound("0", ns, name+" mutated=false"))
		before := callsOf(testContext(t), t, name)
		if err := pods.DeleteCollection(testContext(t), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		left, err := pods.List(testContext(t), metav1.ListOptions{})
		if err != nil || len(left.Items) > 0 {
			t.Errorf("%d pods are left (%v)", len(left.Items), err)
		}
		// The API server may ask more than once about a pod.
		if after := callsOf(testContext(t), t, name); after[0] < before[0]+2 || after[1] < before[1]+2 {
			t.Errorf("the mutating and the validating entry were called %v times before two more pods went, and %v times after", before, after)
		}
	})
	for _, c := range []struct {
		kind, version string
		want          float64 // calls of each entry when one is made, changed and deleted
	}{
		{"MutatingWebhookConfiguration", "admissionregistration.k8s.io/v1", 0},
		{"ValidatingWebhookConfiguration", "admissionregistration.k8s.io/v1", 0},
		{"ClusterRole", "rbac.authorization.k8s.io/v1", 3},
	} {
		t.Run(c.kind, func(t *testing.T) {
			before := callsOf(testContext(t), t, name)
			object := fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": "other-%s", "labels": {"e2e.example.com/all": %q}}}`, c.version, c.kind, ns, ns)
			for _, verb := range [][]string{{"create"}, {"label", "changed=yes"}, {"delete"}} {
				if _, err := env.RunKubectl(testContext(t), []byte(object), append(verb, "-f", "-")...); err != nil {
					t.Error(err)
				}
			}
			if after := callsOf(testContext(t), t, name); after[0] != before[0]+c.want || after[1] != before[1]+c.want {
				t.Errorf("the mutating and the validating entry were called %v times before and %v times after it, want %v more", before, after, c.want)
			}
		})
	}
}

// forAll are Pillion's first entries for all operations on all objects that bear the label, as configurations
// of that name. What Pillion cannot answer is rejected.
func forAll(name string) *cluster.Manifests {
	own := env.manifests.ForNamespaces(name, map[string]string{corev1.LabelMetadataName: name})
	m, v := &own.Mutating.Webhooks[0], &own.Validating.Webhooks[0]
	m.Name, v.Name = name+".e2e.example.com", name+".e2e.example.com"
	m.Rules = []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
	m.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"e2e.example.com/all": name}}
	m.FailurePolicy = new(admissionregistrationv1.Fail)
	m.MatchConditions, v.MatchConditions = nil, nil
	v.Rules, v.ObjectSelector, v.FailurePolicy = m.Rules, m.ObjectSelector, m.FailurePolicy
	return own
}

// callsOf is how often the API server has called the mutating and the validating webhook of that name.
func callsOf(ctx context.Context, t *testing.T, name string) (calls [2]float64) {
	t.Helper()
	metrics, err := env.Metrics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return callsIn(metrics, name)
}

func callsIn(metrics cluster.Metrics, name string) (calls [2]float64) {
	for i, kind := range []string{"admit", "validating"} {
		calls[i] = metrics.Counter(cluster.CallsMetric, map[string]string{"name": name, "type": kind})
	}
	return calls
}

// TestExclusionsCounted runs alone, because the metric has no label for namespaces. It checks that a
// matchCondition prevents calls for a mirror pod.
func TestExclusionsCounted(t *testing.T) {
	ns := optedInNamespace(t)
	excluded := func() (counts [2]float64) {
		metrics, err := env.Metrics(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		for i, name := range []string{env.manifests.Mutating.Webhooks[0].Name, env.manifests.Validating.Webhooks[0].Name} {
			counts[i] = metrics.Counter("apiserver_admission_match_condition_exclusions_total", map[string]string{"name": name, "operation": "CREATE"})
		}
		return counts
	}
	before := excluded()
	createPod(t, ns, newPod("other"))
	if after := excluded(); after != before {
		t.Errorf("another pod counts too: %v, then %v", before, after)
	}
	createPod(t, ns, newPod("web", mirrorPod))
	if after := excluded(); after[0] != before[0]+1 || after[1] != before[1]+1 {
		t.Errorf("the mutating and the validating entry excluded %v pods before it and %v after it", before, after)
	}
}

// TestSystemRoots runs alone, because it sets a variable of this process for the API server that it starts.
// Without a caBundle, the API server trusts the CAs of the machine.
func TestSystemRoots(t *testing.T) {
	t.Setenv("SSL_CERT_FILE", env.Path("ca.crt"))
	trusting, err := env.StartAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = trusting.Stop() }) // how it ends does not matter
	ns := plainNamespace(t)
	name := registerWebhook(t, ns, "z", testwebhook.Webhook{
		Mutate: testwebhook.AddLabel("added", "yes"),
		Change: func(w *admissionregistrationv1.MutatingWebhook) { w.ClientConfig.CABundle = nil },
	})
	if err := trusting.WaitForWebhook(testContext(t), ns, cluster.Called(name)); err != nil {
		t.Fatal(err)
	}
	pod, err := trusting.Client.CoreV1().Pods(ns).Create(testContext(t), newPod("web"), metav1.CreateOptions{})
	if err != nil || pod.Labels["added"] != "yes" {
		t.Errorf("the authority is among the system's: labels %v, error %v", pod.Labels, err)
	}
	eventually(t, "an API server that does not know the authority denies", func(ctx context.Context) error {
		if _, err := tryPod(ctx, t, ns, newPod("web")); err == nil || !strings.Contains(err.Error(), "x509: certificate signed by unknown authority") {
			return fmt.Errorf("the error is %w", err)
		}
		return nil
	})
}

// TestConfigurationRules checks what the API server rejects in a webhook configuration, and which
// defaults it sets.
func TestConfigurationRules(t *testing.T) {
	t.Parallel()
	type entry = admissionregistrationv1.MutatingWebhook
	try := func(edit func(*entry)) (*admissionregistrationv1.MutatingWebhookConfiguration, error) {
		config := env.manifests.Mutating.DeepCopy()
		config.Name = "dry"
		edit(&config.Webhooks[0])
		return env.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().
			Create(testContext(t), config, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	url := func(url string) func(*entry) {
		return func(w *entry) { w.ClientConfig = admissionregistrationv1.WebhookClientConfig{URL: &url} }
	}
	for want, edit := range map[string]func(*entry){
		"'https' is the only allowed URL scheme":    url("http://a.example/mutate"),
		"user information is not permitted":         url("https://me@a.example/mutate"),
		"fragments are not permitted":               url("https://a.example/mutate#a"),
		"query parameters are not permitted":        url("https://a.example/mutate?a=b"),
		"exactly one of url or service is required": func(w *entry) { w.ClientConfig.URL = new("https://a.example/mutate") },
		"must be between 1 and 30 seconds":          func(w *entry) { w.TimeoutSeconds = new(int32(31)) },
		"timeoutSeconds: Invalid value: 0":          func(w *entry) { w.TimeoutSeconds = new(int32(0)) },
	} {
		if _, err := try(edit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
	filled, err := try(func(w *entry) {
		w.TimeoutSeconds, w.FailurePolicy, w.MatchPolicy, w.ReinvocationPolicy, w.Rules[0].Scope = nil, nil, nil, nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w := filled.Webhooks[0]
	got := fmt.Sprint(*w.TimeoutSeconds, " ", *w.FailurePolicy, " ", *w.MatchPolicy, " ", *w.ReinvocationPolicy, " ", *w.Rules[0].Scope)
	if diff := cmp.Diff("10 Fail Equivalent Never *", got); diff != "" {
		t.Errorf("what is filled in (-want +got):\n%s", diff)
	}
}
