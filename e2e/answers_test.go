// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	answerLabel = "e2e.example.com/answer"

	// patchedLabel is what the patches of these tests add.
	patchedLabel = "patched"

	rejectionMetric = "apiserver_admission_webhook_rejection_count"
)

// TestAnswers checks how the API server treats every kind of answer, valid or not, for both kinds
// of webhooks and both failure policies.
func TestAnswers(t *testing.T) {
	t.Parallel()
	ns, cases := plainNamespace(t), answerCases(t)
	server := httptest.NewUnstartedServer(answerHandler(cases))
	startTLS(t, server, time.Hour)
	installAnswers(t, ns, server.URL, cases)
	t.Run("pods", func(t *testing.T) {
		for i := range cases {
			for _, w := range answerers(&cases[i]) {
				t.Run(w.name, func(t *testing.T) { // one after the other: each takes some milliseconds
					created, err := env.Client.CoreV1().Pods(ns).Create(testContext(t), newPod(w.name, w.sent), metav1.CreateOptions{})
					w.want.check(t, w.policy, created, err)
				})
			}
		}
	})
	metrics, err := env.Metrics(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	for i := range cases {
		for _, w := range answerers(&cases[i]) {
			w.checkMetrics(t, metrics)
		}
	}
}

// answerer is an entry of a webhook configuration that gets one of the answers.
type answerer struct {
	name   string // of the pod that it is called for
	kind   string // as metrics have it
	policy admissionregistrationv1.FailurePolicyType
	at     string
	want   answerOutcome
}

func answerers(c *answerCase) []answerer {
	var all []answerer
	for _, policy := range []admissionregistrationv1.FailurePolicyType{admissionregistrationv1.Ignore, admissionregistrationv1.Fail} {
		name := slug(c.name) + "-" + strings.ToLower(string(policy))
		all = append(all, answerer{name + "-mutate", "admit", policy, c.at, c.mutating}, answerer{name + "-validate", "validating", policy, c.at, c.validating})
	}
	return all
}

// sent makes the pod one that this entry alone is called for.
func (w *answerer) sent(p *corev1.Pod) { p.Labels[answerLabel] = w.name }

func (w *answerer) webhook() string { return w.name + ".e2e.example.com" }

// installAnswers makes one configuration of each kind with all entries, and one more entry by which one sees that the
// API server has taken it up.
func installAnswers(t *testing.T, ns, url string, cases []answerCase) {
	t.Helper()
	base := env.manifests.ForNamespaces("z-"+ns, map[string]string{corev1.LabelMetadataName: ns})
	mutating, validating := base.Mutating.Webhooks[0], base.Validating.Webhooks[0]
	base.Mutating.Webhooks, base.Validating.Webhooks = nil, nil
	live := answerCase{name: "live", at: url + "/denied"}
	for _, c := range append(cases, live) {
		if c.at == "" {
			c.at = url + "/" + slug(c.name)
		}
		for _, w := range answerers(&c) {
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{answerLabel: w.name}}
			client := admissionregistrationv1.WebhookClientConfig{URL: &w.at, CABundle: env.Authority.PEM}
			if w.kind == "admit" {
				m := mutating.DeepCopy()
				m.Name, m.ObjectSelector, m.ClientConfig, m.FailurePolicy = w.webhook(), selector, client, &w.policy
				base.Mutating.Webhooks = append(base.Mutating.Webhooks, *m)
			} else {
				v := validating.DeepCopy()
				v.Name, v.ObjectSelector, v.ClientConfig, v.FailurePolicy = w.webhook(), selector, client, &w.policy
				base.Validating.Webhooks = append(base.Validating.Webhooks, *v)
			}
		}
	}
	api := env.Client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Create(testContext(t), base.Mutating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Create(testContext(t), base.Validating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Uninstall(cleanupContext(), base); err != nil {
			t.Error(err)
		}
	})
	for _, w := range answerers(&live) {
		eventually(t, "the webhooks are called", func(ctx context.Context) error {
			_, err := env.Client.CoreV1().Pods(ns).Create(ctx, newPod(w.name, w.sent), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil || !strings.Contains(err.Error(), w.webhook()) {
				return fmt.Errorf("%s does not deny: %w", w.webhook(), err)
			}
			return nil
		})
	}
}

// answerHandler serves the cases' answers, each at its name.
func answerHandler(cases []answerCase) http.Handler {
	mux := http.NewServeMux()
	for _, c := range cases {
		if c.answer == nil {
			continue
		}
		mux.HandleFunc("/"+slug(c.name), func(w http.ResponseWriter, r *http.Request) {
			review := &admissionv1.AdmissionReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Request == nil {
				http.Error(w, r.Method+" without an AdmissionReview", http.StatusInternalServerError)
				return
			}
			c.answer(w, review)
		})
	}
	return mux
}

// startTLS starts a server whose certificate is valid from now on for that long, or has expired that long ago.
func startTLS(t *testing.T, server *httptest.Server, valid time.Duration) {
	t.Helper()
	cert, key, err := env.Authority.ServingUntil(time.Now().Add(valid))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
}

// tlsServer is a server whose handler is never reached.
func tlsServer(t *testing.T, valid time.Duration) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	startTLS(t, server, valid)
	return server
}

func plainServer(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	return server
}

// check compares the request's own result.
func (o *answerOutcome) check(t *testing.T, policy admissionregistrationv1.FailurePolicyType, created *corev1.Pod, err error) {
	t.Helper()
	want := *o
	if o.failed != "" && policy == admissionregistrationv1.Fail {
		want = errorWith(http.StatusInternalServerError, metav1.StatusReasonInternalError, "failed calling webhook")
	}
	if want.status == 0 {
		if err != nil {
			t.Fatalf("the error is: %v", err)
		}
		if got := created.Labels[patchedLabel] == "yes"; got != want.patched {
			t.Errorf("patched: %t, want %t", got, want.patched)
		}
		return
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		t.Fatalf("the error is %v, want the status %d %s", err, want.status, want.reason)
	}
	if got := status.Status(); int(got.Code) != want.status || got.Reason != want.reason {
		t.Errorf("the error is %d %s, want %d %s: %v", got.Code, got.Reason, want.status, want.reason, err)
	}
	for _, text := range []string{want.text, o.failed} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %q, want one with %q", err, text)
		}
	}
}

// checkMetrics checks the API server's metrics: a failed call that the API server ignores counts as failed open, one that it does not
// ignore as an error of the call, and an answer that it cannot use as an internal error.
func (w *answerer) checkMetrics(t *testing.T, metrics cluster.Metrics) {
	t.Helper()
	failedOpen, rejected := 0.0, ""
	switch {
	case w.want.failed != "" && w.policy == admissionregistrationv1.Ignore:
		failedOpen = 1
	case w.want.failed != "":
		rejected = "calling_webhook_error"
	case w.want.status == http.StatusInternalServerError:
		rejected = "apiserver_internal_error"
	case strings.Contains(w.want.text, "denied the request"):
		rejected = "no_error"
	}
	if got := metrics.Counter(failOpenMetric, map[string]string{"name": w.webhook(), "type": w.kind}); got != failedOpen {
		t.Errorf("%s: %s is %v, want %v", w.name, failOpenMetric, got, failedOpen)
	}
	for _, errorType := range []string{"calling_webhook_error", "apiserver_internal_error", "no_error"} {
		got := metrics.Counter(rejectionMetric, map[string]string{"name": w.webhook(), "type": w.kind, "error_type": errorType})
		if (got == 1) != (errorType == rejected) {
			t.Errorf("%s: %s with %s is %v; want it with %q only", w.name, rejectionMetric, errorType, got, rejected)
		}
	}
}
