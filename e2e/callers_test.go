// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

const (
	callersLabel = "e2e.example.com/callers"
	// judgedLabel is on namespaces whose pods are judged by the guarded Pillion too, not only injected.
	judgedLabel = "e2e.example.com/callers-judged"

	guardedService = "guarded"

	noCredential = "callers must authenticate with a "
	unauthorized = "the caller is not authenticated (401): "
)

// guarded is a Pillion that asks who calls, and webhook configurations that lead to it.
type guarded struct {
	callerCase
	pillion *cluster.Pillion
	host    string // that the API server calls
	// injected has the mutating webhook alone, judged has both.
	injected, judged string
}

// TestCallers checks each way to authenticate an API server. With the right credential, pods are
// injected and validated. With another credential or none, the API server ignores the mutating
// webhook (failurePolicy Ignore), and denies the pod because of the validating one (Fail).
// Credentials are replaced while both sides run.
func TestCallers(t *testing.T) {
	t.Parallel()
	var all []*guarded
	users := map[string]*clientcmdapi.AuthInfo{}
	for _, c := range callerCases(t) {
		g := startGuarded(t, c)
		entry := g.host
		if c.entry != nil {
			entry = c.entry(g.host)
		}
		users[entry] = c.user
		all = append(all, g)
	}
	server, err := env.StartCallingAPIServer(t.Context(), users)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() }) // how it ends does not matter
	for _, g := range all {
		g.install(t)
	}
	t.Run("first", func(t *testing.T) {
		for _, g := range all {
			t.Run(g.name, func(t *testing.T) {
				t.Parallel()
				g.beforeRotation(t, server)
			})
		}
	})
	// One after the other: they all wait for the same minute to pass.
	for _, g := range all {
		t.Run("rotated/"+g.name, func(t *testing.T) {
			if g.user.TokenFile != "" {
				g.awaitReread(t, server)
			}
			g.wantLetIn(t, server, "rotated")
			g.wantCounted(t)
		})
	}
}

// beforeRotation has API servers with the right credential, without one, and with a wrong one. In the end that
// is the right one.
func (g *guarded) beforeRotation(t *testing.T, server *cluster.APIServer) {
	if !g.startsWrong {
		g.wantLetIn(t, server, "right")
	}
	if g.optional {
		g.wantLetIn(t, env.APIServer(), "missing")
	} else {
		g.wantDenied(t, env.APIServer(), "missing", noCredential)
	}
	if !g.startsWrong {
		g.spoil(t)
	}
	g.wantDenied(t, server, "wrong", g.wrong)
	g.repair(t)
}

func startGuarded(t *testing.T, c callerCase) *guarded {
	t.Helper()
	mode := "required"
	if c.optional {
		mode = "optional"
	}
	flags := append(c.flags, "--caller-authentication", mode)
	g := &guarded{callerCase: c}
	var err error
	if c.service {
		name := types.NamespacedName{Namespace: plainNamespace(t), Name: guardedService}
		g.host = name.Name + "." + name.Namespace + ".svc"
		g.pillion, err = env.StartGuardedService(t.Context(), name, env.binary, env.templates, flags...)
	} else if g.pillion, err = env.StartGuarded(t.Context(), env.binary, env.templates, flags...); err == nil {
		g.host = strings.TrimPrefix(g.pillion.Endpoint.URL, "https://")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.pillion.Stop(); err != nil {
			t.Errorf("pillion serve after SIGTERM: %v\n%s", err, g.pillion.LogTail())
		}
	})
	return g
}

// install makes the webhook configurations, and the namespaces that they are for.
func (g *guarded) install(t *testing.T) {
	t.Helper()
	ctx := testContext(t)
	id := strings.TrimSuffix(namespacePrefix("callers-"+g.name), "-")
	manifests := env.manifests.ForNamespaces(id, map[string]string{callersLabel: id})
	mutating, validating := &manifests.Mutating.Webhooks[0], &manifests.Validating.Webhooks[0]
	validating.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{callersLabel: id, judgedLabel: "true"}}
	g.lead(&mutating.ClientConfig)
	g.lead(&validating.ClientConfig)
	own := []namespaceOption{withLabel(callersLabel, id), withLabel(injectLabel, "by-a-guarded-one")}
	g.injected = plainNamespace(t, own...)
	g.judged = plainNamespace(t, append(own, withLabel(judgedLabel, "true"))...)
	api := env.Client.AdmissionregistrationV1()
	if _, err := api.MutatingWebhookConfigurations().Create(ctx, manifests.Mutating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.ValidatingWebhookConfigurations().Create(ctx, manifests.Validating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Uninstall(cleanupContext(), manifests); err != nil {
			t.Error(err)
		}
	})
}

// lead has the API server call the guarded Pillion.
func (g *guarded) lead(config *admissionregistrationv1.WebhookClientConfig) {
	config.CABundle = g.pillion.Endpoint.CA
	if g.service {
		config.Service.Name, config.Service.Namespace = guardedService, strings.Split(g.host, ".")[1]
		return
	}
	config.URL, config.Service = new(g.pillion.Endpoint.URL+*config.Service.Path), nil
}

// wantLetIn waits until the API server can have a pod injected and judged, and has a real one so.
func (g *guarded) wantLetIn(t *testing.T, server *cluster.APIServer, name string) {
	t.Helper()
	tries := 0
	eventually(t, "the API server is let in", func(ctx context.Context) error {
		tries++
		pod, err := createAt(ctx, server, g.judged, newPod(fmt.Sprintf("probe-%s-%d", name, tries)), metav1.DryRunAll)
		if err != nil {
			return err
		}
		event, err := server.Audit.Wait(ctx, func(e cluster.Event) bool { return e.CreatesPod(g.judged, pod.Name) })
		if err == nil && (pod.Annotations["logger.pillion.dev/injected"] == "" || event.Judgement()[finalVerdict] == "") {
			err = fmt.Errorf("a pod is not injected or not judged: %v", event.Annotations)
		}
		return err
	})
	for _, ns := range []string{g.injected, g.judged} {
		pod, err := createAt(testContext(t), server, ns, newPod(name))
		if err != nil {
			t.Fatal(err)
		}
		wantLogger(t, pod)
	}
}

// awaitReread waits until the API server has read the file of its token again, which it does every 50 seconds
// (NewCachedFileTokenSource of client-go).
func (g *guarded) awaitReread(t *testing.T, server *cluster.APIServer) {
	t.Helper()
	tries := 0
	err := wait.PollUntilContextTimeout(t.Context(), time.Second, time.Minute+waitLimit, true, func(ctx context.Context) (bool, error) {
		tries++
		_, err := createAt(ctx, server, g.judged, newPod(fmt.Sprintf("probe-token-%d", tries)), metav1.DryRunAll)
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("the API server never shows its new token: %v", err)
	}
}

// wantDenied waits until the API server is rejected, and creates pods then.
func (g *guarded) wantDenied(t *testing.T, server *cluster.APIServer, name, sentence string) {
	t.Helper()
	eventually(t, "the API server is rejected", func(ctx context.Context) error {
		_, err := createAt(ctx, server, g.judged, newPod("probe-"+name), metav1.DryRunAll)
		switch {
		case err == nil:
			return errors.New("it is let in")
		case !strings.Contains(err.Error(), unauthorized+sentence):
			return fmt.Errorf("want %q: %w", unauthorized+sentence, err)
		}
		return nil
	})
	if pod, err := createAt(testContext(t), server, g.judged, newPod(name)); err == nil {
		t.Errorf("the API server made a pod that Pillion has not judged: %v", pod.Annotations)
	} else if text := err.Error(); !strings.Contains(text, "failed calling webhook") || !strings.Contains(text, unauthorized+sentence) {
		t.Errorf("the API server says %s", text)
	}
	pod, err := createAt(testContext(t), server, g.injected, newPod(name))
	if err != nil {
		t.Fatalf("the mutating webhook is not passed over: %v", err)
	}
	wantNoLogger(t, pod)
	event, err := server.Audit.Wait(testContext(t), func(e cluster.Event) bool { return e.CreatesPod(g.injected, name) })
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"namespace.mutate.pillion.dev"}, event.FailedOpen()); diff != "" {
		t.Errorf("webhooks that failed open (-want +got):\n%s", diff)
	}
}

// wantCounted compares what Pillion counted.
func (g *guarded) wantCounted(t *testing.T) {
	t.Helper()
	metrics, err := g.pillion.Metrics(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	reasons := []string{g.reason}
	if !g.optional {
		reasons = append(reasons, "missing")
	}
	for _, reason := range reasons {
		if metrics.Counter("pillion_callers_rejected_total", map[string]string{"reason": reason}) == 0 {
			t.Errorf("no caller was rejected for %s; the reasons are %v", reason, metrics.Label("pillion_callers_rejected_total", "reason"))
		}
	}
	if metrics.Counter("pillion_callers_accepted_total", map[string]string{"way": g.way}) == 0 {
		t.Errorf("no caller was let in by %s; the ways are %v", g.way, metrics.Label("pillion_callers_accepted_total", "way"))
	}
}

func createAt(ctx context.Context, server *cluster.APIServer, ns string, pod *corev1.Pod, dryRun ...string) (*corev1.Pod, error) {
	return server.Client.CoreV1().Pods(ns).Create(ctx, pod, metav1.CreateOptions{DryRun: dryRun})
}
