// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

// limitsAPI has a LimitRange and a quota beside what kubeAPI has; other objects
// come over the watches.
type limitsAPI struct {
	kubeAPI
	mayNot bool            // read LimitRanges
	quotas chan watchEvent // of their watch
}

func (l *limitsAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	kind, object, events := "ResourceQuota", limitObject("ResourceQuota", "shop", "1", `{"hard":{"limits.memory":"1Gi"}}`), l.quotas
	switch {
	case strings.HasSuffix(r.URL.Path, "/limitranges"):
		kind, object, events = "LimitRange", limitObject("LimitRange", "shop", "1", `{"limits":[{"type":"Container","min":{"cpu":"1"}}]}`), nil
		if l.mayNot {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
	case !strings.HasSuffix(r.URL.Path, "/resourcequotas"):
		l.kubeAPI.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	q := r.URL.Query()
	if q.Get("watch") == "" {
		_ = encoder.Encode(map[string]any{"apiVersion": "v1", "kind": kind + "List", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{object}})
		return
	}
	if q.Get("sendInitialEvents") == "true" {
		_ = encoder.Encode(watchEvent{"ADDED", object})
		_ = encoder.Encode(watchEvent{"BOOKMARK", map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{
			"resourceVersion": "1", "annotations": map[string]string{"k8s.io/initial-events-end": "true"},
		}}})
	}
	for {
		w.(http.Flusher).Flush()
		select {
		case e := <-events:
			_ = encoder.Encode(e)
		case <-r.Context().Done():
			return
		}
	}
}

func limitObject(kind, namespace, rv, spec string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": kind, "spec": json.RawMessage(spec),
		"metadata": map[string]any{"name": "small", "namespace": namespace, "resourceVersion": rv},
	}
}

func (s *served) advise(t *testing.T) *admissionv1.AdmissionResponse {
	t.Helper()
	const web = `{"metadata":{"name":"web"},"spec":{"template":{"metadata":{"annotations":{"log-agent.pillion.dev/levels":"info"}},"spec":{"containers":[` +
		`{"name":"web","image":"nginx","resources":{"requests":{"cpu":"1"},"limits":{"memory":"1Mi"}}}]}}}}`
	body := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE","namespace":"shop",` +
		`"kind":{"group":"apps","version":"v1","kind":"Deployment"},"resource":{"group":"apps","version":"v1","resource":"deployments"},"object":` + web + `}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhook+"/advise?timeout=2s", strings.NewReader(body))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	response, err := s.client.Do(r)
	must(t, err)
	defer response.Body.Close()
	return answered(t, response)
}

// serveAdvice runs pillion serve beside an API.
func serveAdvice(t *testing.T, api http.Handler, args ...string) *served {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{Handler: api, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x}}]\n"+
		"clusters: [{name: x, cluster: {server: 'http://"+listener.Addr().String()+"'}}]\n")
	return startServe(t, append([]string{"--kubeconfig", kubeconfig, "--tls-self-signed", "--templates", "testdata/templates"}, args...)...)
}

// effects are the beginnings of the warnings about what the template changes for the rest of the pod.
var effects = []string{"effect: kubectl drain", "effect: the cluster autoscaler", "effect: a HorizontalPodAutoscaler"}

func TestServeAdvises(t *testing.T) {
	t.Parallel()
	api := &limitsAPI{kubeAPI: kubeAPI{release: make(chan struct{})}, quotas: make(chan watchEvent)}
	close(api.release)
	s := serveAdvice(t, api, "--advise")
	s.ready(t, 200, "[+]namespaces ok: 1 known")
	says := func(want ...string) {
		t.Helper()
		until(t, fmt.Sprintf("it says %q", want), func() (bool, string) {
			got := s.advise(t).Warnings
			return slices.EqualFunc(got, append(want, effects...), strings.Contains), fmt.Sprintf("%q", got)
		})
	}
	says(`did you mean "level"?`, "the LimitRange small requires", "the quota small requires")
	api.quotas <- watchEvent{"ADDED", limitObject("ResourceQuota", "other", "2", `{"hard":{"requests.memory":"1Gi"}}`)}
	api.quotas <- watchEvent{"DELETED", limitObject("ResourceQuota", "shop", "3", `{"hard":{"limits.memory":"1Gi"}}`)}
	says(`did you mean "level"?`, "the LimitRange small requires")
	if _, body := s.get(t, s.admin+"/metrics"); !regexp.MustCompile(`pillion_webhook_requests_total{decision="warned",status="200",webhook="advise"} [1-9]`).MatchString(body) {
		t.Errorf("the requests are not counted:\n%s", body)
	}
}

// TestServeAdvisesWithoutLimits checks that without the flag, or without the right to read limits,
// the answer does not mention limits and is otherwise the same.
func TestServeAdvisesWithoutLimits(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"no flag": nil, "no right": {"--advise"}} {
		api := &limitsAPI{kubeAPI: kubeAPI{release: make(chan struct{})}, mayNot: true}
		close(api.release)
		s := serveAdvice(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/resourcequotas") {
				if args == nil {
					t.Errorf("%s: asks for %s", name, r.URL)
				}
				http.Error(w, "no", http.StatusForbidden)
				return
			}
			api.ServeHTTP(w, r)
		}), args...)
		s.ready(t, 200, "[+]namespaces ok: 1 known")
		if got := s.advise(t).Warnings; !slices.EqualFunc(got, append([]string{`did you mean "level"?`}, effects...), strings.Contains) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
