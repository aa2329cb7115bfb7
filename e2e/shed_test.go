// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/e2e/cluster"
)

// shedding stands before Pillion and answers calls as Pillion does if it sheds them, and passes the others on.
type shedding struct {
	namespace string

	mu    sync.Mutex
	shed  map[string]int       // how many of the next calls, by webhook
	calls map[string]int       // those that came
	last  map[string]time.Time // when the last one was shed
	soon  time.Duration        // the shortest time from one that was shed to the next of that webhook
}

const always = 1 << 30

// newShedding has API servers wait for that many seconds for each of the webhooks; with none, as in the manifests.
func newShedding(t *testing.T, seconds int32) *shedding {
	t.Helper()
	answer, err := os.ReadFile("../inject/webhook/testdata/shed.http") // TestShedAnswer keeps it unchanged
	if err != nil {
		t.Fatal(err)
	}
	pillion, err := url.Parse(env.pillion.Endpoint.URL)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(env.pillion.Endpoint.CA)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(pillion) },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}},
	}
	s := &shedding{shed: map[string]int{}, calls: map[string]int{}, last: map[string]time.Time{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.sheds(path.Base(r.URL.Path)) {
			proxy.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // the caller sees if the rest fails
		said, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), r)
		if err != nil {
			panic(err)
		}
		defer said.Body.Close()
		maps.Copy(w.Header(), said.Header)
		w.WriteHeader(said.StatusCode)
		_, _ = io.Copy(w, said.Body)
	}))
	startTLS(t, server, time.Hour)
	s.install(t, server.URL, seconds)
	return s
}

func (s *shedding) install(t *testing.T, url string, seconds int32) {
	t.Helper()
	const label = "e2e.example.com/shed"
	id := strings.TrimSuffix(namespacePrefix(t.Name()), "-")
	s.namespace = plainNamespace(t, withLabel(label, id))
	own := env.manifests.ForNamespaces(id, map[string]string{label: id})
	if seconds > 0 {
		own.Mutating.Webhooks[0].TimeoutSeconds, own.Validating.Webhooks[0].TimeoutSeconds = &seconds, &seconds
	}
	at := cluster.Endpoint{URL: url, CA: env.Authority.PEM}
	if err := env.InstallMutating(testContext(t), own, at); err != nil {
		t.Fatal(err)
	}
	if err := env.InstallValidating(testContext(t), own, at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Uninstall(cleanupContext(), own); err != nil {
			t.Error(err)
		}
	})
	err := env.WaitForWebhook(testContext(t), s.namespace, func(e cluster.Event) bool {
		return len(e.Calls(id)) > 0 && e.Judgement()[finalVerdict] != ""
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sheds takes note of a call.
func (s *shedding) sheds(webhook string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.last[webhook]; ok {
		s.soon = min(s.soon, time.Since(last))
		delete(s.last, webhook)
	}
	s.calls[webhook]++
	s.shed[webhook]--
	if s.shed[webhook] < 0 {
		return false
	}
	s.last[webhook] = time.Now()
	return true
}

// create sheds so many of the next calls of each webhook, and returns how many came for one pod, and its warnings.
func (s *shedding) create(t *testing.T, mutate, validate int) (calls map[string]int, warnings *collectedWarnings, err error) {
	t.Helper()
	s.mu.Lock()
	s.shed = map[string]int{"mutate": mutate, "validate": validate}
	s.calls, s.last, s.soon = map[string]int{}, map[string]time.Time{}, time.Hour
	s.mu.Unlock()
	client, warnings := warnedClient(t)
	began := time.Now()
	_, err = client.CoreV1().Pods(s.namespace).Create(t.Context(), newPod("web"), metav1.CreateOptions{})
	s.mu.Lock()
	defer s.mu.Unlock()
	t.Logf("%v calls in %v: %v", s.calls, time.Since(began), err)
	if s.soon < 900*time.Millisecond {
		t.Errorf("Retry-After is a second, and it is called again after %v", s.soon)
	}
	return s.calls, warnings, err
}

func wantShedCalls(t *testing.T, calls map[string]int, webhook string, want int) {
	t.Helper()
	if got := calls[webhook]; got != want {
		t.Errorf("%s is called %d times, want %d", webhook, got, want)
	}
}

// TestShed checks that if Pillion sheds calls, the API server retries after a second, and the user
// who creates the pod sees no error.
func TestShed(t *testing.T) {
	t.Parallel()
	s := newShedding(t, 30)
	calls, warnings, err := s.create(t, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	wantShedCalls(t, calls, "mutate", 3)
	wantShedCalls(t, calls, "validate", 2)
	wantWarning(t, warnings, "")
	pod, err := env.Client.CoreV1().Pods(s.namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	wantLogger(t, pod)
	if open := creation(t, s.namespace, "web").FailedOpen(); len(open) > 0 {
		t.Errorf("the webhooks that failed open are %v", open)
	}
}

// TestShedOnAndOn checks that the API server retries at most ten times, and only within its timeout. Then the
// failurePolicy applies, and either webhook leads to a denial.
func TestShedOnAndOn(t *testing.T) {
	t.Parallel()
	t.Run("ten times", func(t *testing.T) {
		t.Parallel()
		s := newShedding(t, 30)
		calls, _, err := s.create(t, always, 0)
		wantShedCalls(t, calls, "mutate", 11)
		wantForbidden(t, err, "logger: not_injected at /spec/initContainers/-")
		if open := creation(t, s.namespace, "web").FailedOpen(); len(open) != 1 {
			t.Errorf("the webhooks that failed open are %v", open)
		}
	})
	t.Run("ten times validate", func(t *testing.T) {
		t.Parallel()
		s := newShedding(t, 30)
		calls, _, err := s.create(t, 0, always)
		wantShedCalls(t, calls, "validate", 11)
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "too many requests at once") {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("as long as in the manifests", func(t *testing.T) {
		t.Parallel()
		s := newShedding(t, 0)
		calls, _, err := s.create(t, always, 0)
		if n := calls["mutate"]; n < 2 || n > 5 {
			t.Errorf("mutate is called %d times in 5 s", n)
		}
		wantForbidden(t, err, "logger: not_injected at /spec/initContainers/-")
	})
}
