// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// TestReviewVersions checks that the API server sends the first version of a configuration's
// admissionReviewVersions that it knows. Pillion injects, warns and denies in each version, and
// answers in the version of the request.
func TestReviewVersions(t *testing.T) {
	t.Parallel()
	const v1, v1beta1 = "admission.k8s.io/v1", "admission.k8s.io/v1beta1"
	for _, c := range []struct {
		versions []string
		want     string
	}{
		{[]string{"v1beta1"}, v1beta1},
		{[]string{"v1beta1", "v1"}, v1beta1},
		{[]string{"v1", "v1beta1"}, v1},
		{[]string{"v0", "v1beta1"}, v1beta1},
	} {
		t.Run(strings.Join(c.versions, " "), func(t *testing.T) {
			t.Parallel()
			ns := plainNamespace(t, withLabel(injectLabel, "by-another-entry"))
			reviews := recordReviews(t)
			own := env.manifests.ForNamespaces("versions-"+ns, map[string]string{corev1.LabelMetadataName: ns})
			own.Mutating.Webhooks[0].AdmissionReviewVersions = c.versions
			own.Validating.Webhooks[0].AdmissionReviewVersions = c.versions
			installOwn(t, own, reviews.endpoint)
			eventually(t, "both entries are called", func(ctx context.Context) error {
				_, err := tryPod(ctx, t, ns, newPod("probe"))
				if seen := reviews.seen(); err == nil && len(seen) != 2 {
					err = fmt.Errorf("only %v were called", seen)
				}
				return err
			})

			wantLogger(t, wantVerdict(t, ns, newPod("good"), says(allowed, "logger", "")))
			wantVerdict(t, ns, newPod("warned", overrides("logger", "levl", "debug")),
				says(warned, "logger", "unknown_parameter: the annotation logger.pillion.dev/levl sets"))
			wantVerdict(t, ns, newPod("denied", requests("guard"), overrides("guard", "level", "loud")),
				says(denied, "guard", "invalid_parameter: the pod's annotation guard.pillion.dev/level is"))
			pair := []string{c.want + " answered in " + c.want}
			if diff := cmp.Diff(map[string][]string{"/mutate": pair, "/validate": pair}, reviews.seen()); diff != "" {
				t.Errorf("versions of reviews by path (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnknownReviewVersions checks that the API server rejects a configuration without a version
// that it knows.
func TestUnknownReviewVersions(t *testing.T) {
	t.Parallel()
	api, dryRun := env.Client.AdmissionregistrationV1(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for _, versions := range [][]string{{"v2"}, {"v1alpha1", "v2"}, {}} {
		own := env.manifests.ForNamespaces("unknown-versions", nil)
		own.Mutating.Webhooks[0].AdmissionReviewVersions = versions
		own.Validating.Webhooks[0].AdmissionReviewVersions = versions
		_, mutating := api.MutatingWebhookConfigurations().Create(testContext(t), own.Mutating, dryRun)
		_, validating := api.ValidatingWebhookConfigurations().Create(testContext(t), own.Validating, dryRun)
		want := "must include at least one of v1, v1beta1"
		if len(versions) == 0 {
			want = "must specify one of v1, v1beta1"
		}
		for _, err := range []error{mutating, validating} {
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: the error is %v, want one with %q", versions, err, want)
			}
		}
	}
}

// recordedReviews are the versions of the reviews that went through a proxy in front of Pillion.
type recordedReviews struct {
	endpoint cluster.Endpoint

	mu     sync.Mutex
	byPath map[string][]string // each pair of versions once
}

func (r *recordedReviews) seen() map[string][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := map[string][]string{}
	for path, pairs := range r.byPath {
		seen[path] = slices.Clone(pairs)
	}
	return seen
}

// recordReviews starts a proxy in front of the Pillion that all tests share.
func recordReviews(t *testing.T) *recordedReviews {
	t.Helper()
	target, err := url.Parse(env.pillion.Endpoint.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(env.pillion.Endpoint.CA)
	r := &recordedReviews{byPath: map[string][]string{}}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(target) },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		asked, err := io.ReadAll(request.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		request.Body = io.NopCloser(bytes.NewReader(asked))
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, request)
		pair := reviewVersion(asked) + " answered in " + reviewVersion(answer.Body.Bytes())
		r.mu.Lock()
		// With another status, Pillion answers with no review: it does not know the new namespace yet.
		if path := request.URL.Path; answer.Code == http.StatusOK && !slices.Contains(r.byPath[path], pair) {
			r.byPath[path] = append(r.byPath[path], pair)
		}
		r.mu.Unlock()
		w.Header().Set("Content-Type", answer.Header().Get("Content-Type"))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes())
	}))
	startTLS(t, server, time.Hour)
	r.endpoint = cluster.Endpoint{URL: server.URL, CA: env.Authority.PEM}
	return r
}

func reviewVersion(review []byte) string {
	var meta runtime.TypeMeta
	if err := json.Unmarshal(review, &meta); err != nil {
		return err.Error()
	}
	return meta.APIVersion
}

// installOwn installs configurations of a test's own until it ends.
func installOwn(t *testing.T, own *cluster.Manifests, at cluster.Endpoint) {
	t.Helper()
	if err := errors.Join(env.InstallMutating(testContext(t), own, at), env.InstallValidating(testContext(t), own, at)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Uninstall(cleanupContext(), own); err != nil {
			t.Error(err)
		}
	})
}

// TestRuleScopes checks rules for all resources. The API server does not call a webhook with the
// scope Cluster for pods. It calls one with the scope Namespaced, as Pillion's, only for namespaced
// objects.
func TestRuleScopes(t *testing.T) {
	t.Parallel()
	ns := plainNamespace(t)
	own, wants := scopedEntries(ns)
	installOwn(t, own, env.pillion.Endpoint)
	names := make([]string, len(own.Mutating.Webhooks))
	for i := range names {
		names[i] = own.Mutating.Webhooks[i].Name
	}
	create := func(kind, version, name string) error {
		object := fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": %q, "labels": {"e2e.example.com/all": %q}}`, version, kind, name, ns)
		if kind == "Pod" {
			object += `, "spec": {"containers": [{"name": "web", "image": "registry.example/web:1"}]}`
		}
		_, err := env.RunKubectl(testContext(t), []byte(object+"}"), "create", "-n", ns, "--dry-run=server", "-f", "-")
		return err
	}
	eventually(t, "the entries are called", func(ctx context.Context) error {
		if err := create("Pod", "v1", "probe"); err != nil {
			return err
		}
		if n := callsOf(ctx, t, names[len(names)-1]); n[0] == 0 || n[1] == 0 {
			return fmt.Errorf("%v calls", n)
		}
		return nil
	})
	for _, object := range []struct{ kind, version, scope string }{
		{"Pod", "v1", "Namespaced"}, {"ConfigMap", "v1", "Namespaced"}, {"ClusterRole", "rbac.authorization.k8s.io/v1", "Cluster"},
	} {
		before := callsOfAll(t, names)
		if err := create(object.kind, object.version, "scoped-"+ns); err != nil {
			t.Fatal(err)
		}
		after := callsOfAll(t, names)
		for _, name := range names {
			want := 0.0
			if slices.Contains(wants[name], object.scope) {
				want = 1
			}
			if got := [2]float64{after[name][0] - before[name][0], after[name][1] - before[name][1]}; got != [2]float64{want, want} {
				t.Errorf("%s: the mutating and the validating entry %s were called %v times, want %v", object.kind, name, got, want)
			}
		}
	}
	for _, rules := range pillionRules() {
		for _, rule := range rules {
			want := admissionregistrationv1.NamespacedScope
			switch {
			case slices.Contains(rule.APIGroups, "pillion.dev"): // templates have both
				want = admissionregistrationv1.AllScopes
			case slices.Contains(rule.Resources, "namespaces"):
				want = admissionregistrationv1.ClusterScope
			}
			if rule.Scope == nil || *rule.Scope != want {
				t.Errorf("a rule that Pillion ships for %v has not the scope %s", rule.Resources, want)
			}
		}
	}
}

// callsOfAll is callsOf for several names.
func callsOfAll(t *testing.T, names []string) map[string][2]float64 {
	t.Helper()
	metrics, err := env.Metrics(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][2]float64{}
	for _, name := range names {
		all[name] = callsIn(metrics, name)
	}
	return all
}

// scopedEntries are the entries of [forAll], one for each scope, and the scopes of objects that each must be called for.
func scopedEntries(name string) (own *cluster.Manifests, wants map[string][]string) {
	own, wants = forAll(name), map[string][]string{}
	mutating, validating := own.Mutating.Webhooks[0], own.Validating.Webhooks[0]
	own.Mutating.Webhooks, own.Validating.Webhooks = nil, nil
	for _, scope := range []admissionregistrationv1.ScopeType{
		admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope, admissionregistrationv1.AllScopes,
	} {
		m, v := mutating.DeepCopy(), validating.DeepCopy()
		objects := []string{string(scope)}
		word := strings.ToLower(string(scope))
		if scope == admissionregistrationv1.AllScopes {
			word, objects = "all", []string{"Namespaced", "Cluster"}
		}
		m.Name, v.Name = word+"."+m.Name, word+"."+v.Name
		m.Rules[0].Scope, v.Rules[0].Scope = new(scope), new(scope)
		wants[m.Name] = objects
		own.Mutating.Webhooks = append(own.Mutating.Webhooks, *m)
		own.Validating.Webhooks = append(own.Validating.Webhooks, *v)
	}
	return own, wants
}

// pillionRules are those of every entry that Pillion ships.
func pillionRules() [][]admissionregistrationv1.RuleWithOperations {
	var all [][]admissionregistrationv1.RuleWithOperations
	for i := range env.manifests.Mutating.Webhooks {
		all = append(all, env.manifests.Mutating.Webhooks[i].Rules)
	}
	for i := range env.manifests.Validating.Webhooks {
		all = append(all, env.manifests.Validating.Webhooks[i].Rules)
	}
	for i := range env.manifests.Advising.Webhooks {
		all = append(all, env.manifests.Advising.Webhooks[i].Rules)
	}
	return all
}
