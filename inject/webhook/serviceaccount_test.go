// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

// withAccounts knows namespaces with one ServiceAccount, web.
type withAccounts struct{}

func (withAccounts) Namespace(name string) (request.Namespace, error) {
	return request.Namespace{Name: name, Known: true, ServiceAccounts: withAccounts{}}, nil
}

func (withAccounts) ServiceAccount(_, name string) request.ServiceAccount {
	return request.ServiceAccount{Name: name, Known: name == "web", Annotations: map[string]string{"role": "admin"}}
}

// TestServiceAccountNotKnownYet checks that a pod waits for its ServiceAccount if a template for the pod
// reads it, and only then.
func TestServiceAccountNotKnownYet(t *testing.T) {
	t.Parallel()
	found, problems := templates.Parse("t", []byte(`{apiVersion: pillion.dev/v1alpha1, kind: ClusterSidecarTemplate, metadata: {name: reader}, spec: {
  default: true, match: {podSelector: {matchLabels: {app: web}}}, validate: {mode: Deny},
  pod: {spec: {containers: [{name: reader, image: r, args: ["${serviceAccount.annotations['role']}"]}]}}}}`))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	injector := inject.New(templates.NewSet(found))
	h := &webhook.Handler{
		Use:        func(string) (*inject.Injector, *inject.Judge) { return injector, inject.NewJudge(injector, nil, true) },
		Namespaces: withAccounts{}, Metrics: webhook.NewMetrics(prometheus.NewRegistry()), Log: slog.New(slog.DiscardHandler),
	}
	h.Metrics.Use(injector.Set())
	for _, c := range []struct {
		path, account, app string
		status             int
	}{
		{webhook.PathMutate, "web", "web", http.StatusOK},
		{webhook.PathMutate, "new", "web", http.StatusServiceUnavailable},
		{webhook.PathMutate, "new", "other", http.StatusOK},
		{webhook.PathValidate, "new", "web", http.StatusServiceUnavailable},
		{webhook.PathValidate, "new", "other", http.StatusOK},
		{webhook.PathShadow, "new", "web", http.StatusOK},
	} {
		body := fmt.Sprintf(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","kind":{"version":"v1","kind":"Pod"},
"resource":{"version":"v1","resource":"pods"},"namespace":"shop","operation":"CREATE","object":{"metadata":{"name":"web","labels":{"app":%q}},
"spec":{"serviceAccountName":%q,"containers":[{"name":"web","image":"w"}]}}}}`, c.app, c.account)
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		answer, _ := io.ReadAll(w.Result().Body)
		if w.Code != c.status {
			t.Errorf("%+v: HTTP %d %s", c, w.Code, answer)
		}
		if c.status != http.StatusServiceUnavailable {
			continue
		}
		if w.Header().Get("Retry-After") != "1" || !strings.Contains(string(answer), "the ServiceAccount new, which is not known in the namespace shop; retry in a moment") {
			t.Errorf("%+v: %v %s", c, w.Header(), answer)
		}
	}
}
