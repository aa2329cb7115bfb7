// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/request"
)

const pod = `{"metadata":{"name":"web-0"},"spec":{"containers":[{"name":"web","image":"nginx"}]}}`

// TestTooLarge checks that a body of the maximum size is accepted, and that a larger one is rejected.
func TestTooLarge(t *testing.T) {
	e := newEdge(load(t, sidecar))
	const limit = 8 << 20
	// The largest valid body consists mostly of a string that nothing reads.
	body := reviewOf(t, "v1", "UPDATE", "shop", []byte(`"`+strings.Repeat("x", limit)+`"`))
	fits := bytes.Replace(body, bytes.Repeat([]byte("x"), len(body)-limit), nil, 1)
	for _, row := range []struct {
		body    []byte
		chunked bool
		want    int
	}{
		{fits, false, http.StatusOK},
		{fits, true, http.StatusOK},
		{append(fits, ' '), false, http.StatusRequestEntityTooLarge},
		{append(fits, ' '), true, http.StatusRequestEntityTooLarge},
	} {
		r := post(t, webhook.PathMutate, row.body)
		if row.chunked {
			r.ContentLength = -1
		}
		if w := e.answer(r); w.Code != row.want {
			t.Errorf("%d bytes, chunked %v: %d %s", len(row.body), row.chunked, w.Code, w.Body)
		}
	}
}

// serve starts a real server, also for HTTP/2, which API servers use to localhost.
func serve(t *testing.T, e *edge, http2 bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(e)
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// TestTimeout checks that a request whose body does not arrive ends after the API server's timeout.
func TestTimeout(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := serve(t, newEdge(load(t, sidecar)), http2)
		body, never := io.Pipe() // a body that never arrives
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/mutate?timeout=50ms", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		never.Close()
		if response.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("HTTP/2 %v: %s", http2, response.Status)
		}
	}
}

// TestTimeoutGoneAlready checks that a request whose caller is gone is not processed.
func TestTimeoutGoneAlready(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := newEdge(load(t, sidecar))
	if w := e.answer(post(t, "/mutate?timeout=5s", reviewOf(t, "v1", "CREATE", "shop", []byte(pod))).WithContext(ctx)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestPanic checks that a panic affects only its own request, not others on the same connection.
func TestPanic(t *testing.T) {
	var broken atomic.Bool
	good := load(t, sidecar)
	e := newEdge(func() *inject.Injector {
		if broken.Load() {
			panic("the engine is broken")
		}
		return good()
	})
	s := serve(t, e, false)
	body := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
	reused := false
	for i, want := range []int{http.StatusOK, http.StatusInternalServerError, http.StatusOK} {
		broken.Store(want != http.StatusOK)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused },
		})
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+webhook.PathMutate, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		response, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != want || reused != (i > 0) {
			t.Errorf("request %d: %s, connection reused: %v\n%s", i, response.Status, reused, text)
		}
	}
	for _, want := range []string{"the engine is broken", "TestPanic", "705ab4f5"} {
		if !strings.Contains(e.log.String(), want) {
			t.Errorf("the log does not have %q", want)
		}
	}
	if n := testutil.ToFloat64(counter(t, e, "pillion_webhook_panics_total")); n != 1 {
		t.Errorf("%v panics are counted", n)
	}
}

// TestAbort checks that net/http sees its own panic, http.ErrAbortHandler.
func TestAbort(t *testing.T) {
	e := newEdge(load(t, sidecar))
	e.Injector = func() *inject.Injector { panic(http.ErrAbortHandler) }
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, http.ErrAbortHandler) {
			t.Error("net/http does not get to see its own panic:", err)
		}
	}()
	e.answer(post(t, webhook.PathMutate, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
}

// parameters knows one namespace with its annotations, and no other one yet.
type parameters struct{ name string }

func (p parameters) Namespace(name string) (request.Namespace, error) {
	if name != p.name {
		return request.Namespace{}, errors.New("not yet")
	}
	return request.Namespace{Name: name, Known: true, Annotations: map[string]string{"log-agent.pillion.dev/leve": "x"}}, nil
}

// TestNamespaceIsTheRequests checks that the namespace of the request counts, and not the one in the pod's metadata.
func TestNamespaceIsTheRequests(t *testing.T) {
	e := newEdge(load(t, sidecar))
	e.Namespaces = parameters{"shop"}
	other := strings.Replace(pod, `"name":"web-0"`, `"name":"web-0","namespace":"other"`, 1)
	w := e.answer(post(t, webhook.PathMutate, reviewOf(t, "v1", "CREATE", "shop", []byte(other))))
	if r, _ := checkContract(t, webhook.PathMutate, nil, w); r.Patch == nil || len(r.Warnings) != 1 {
		t.Errorf("not injected by the annotations of its namespace: %s", w.Body)
	}
}

// TestNamespaceNotKnownYet checks that the API server is asked to retry, if possible at another
// replica.
func TestNamespaceNotKnownYet(t *testing.T) {
	for _, path := range []string{webhook.PathMutate, webhook.PathValidate} {
		e := newEdge(load(t, sidecar))
		e.Namespaces = parameters{"other"}
		w := e.answer(post(t, path, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
		var status metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || w.Header().Get("Connection") != "close" || status.Message != "not yet" || status.Kind != "Status" {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
}

// TestManyWarnings checks that many long warnings stay within the limits of the API server.
func TestManyWarnings(t *testing.T) {
	var names []string
	for i := range 500 {
		names = append(names, fmt.Sprintf("+%s-%d", strings.Repeat("ü", 50), i))
	}
	annotated := fmt.Sprintf(`{"metadata":{"annotations":{"pillion.dev/templates":%q}},"spec":{"containers":[]}}`, strings.Join(names, ","))
	body := reviewOf(t, "v1", "CREATE", "shop", []byte(annotated))
	e := newEdge(load(t, sidecar))
	r, _ := checkContract(t, webhook.PathMutate, body, e.answer(post(t, webhook.PathMutate, body)))
	if len(r.Warnings) == 0 {
		t.Error("no warnings")
	}
}

// TestReloadUnderLoad checks that a request sees either the old templates or the new ones, never a
// mix.
func TestReloadUnderLoad(t *testing.T) {
	var current atomic.Pointer[inject.Injector]
	sets := []*inject.Injector{load(t, sidecar)(), load(t, strings.ReplaceAll(sidecar, "log-agent", "proxy"))()}
	current.Store(sets[0])
	e := newEdge(current.Load)
	e.Log = discard()
	body := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 100 {
				current.Store(sets[i%2])
				w := e.answer(post(t, webhook.PathMutate, body))
				if r, _ := checkContract(t, webhook.PathMutate, body, w); len(r.AuditAnnotations) != 1 {
					t.Errorf("two sets in one answer: %v", r.AuditAnnotations)
				}
			}
		})
	}
	wg.Wait()
}

// TestMetrics checks what the metrics count of pods, of other objects and of invalid requests.
func TestMetrics(t *testing.T) {
	e := newEdge(load(t, sidecar))
	e.answer(post(t, webhook.PathMutate, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
	e.answer(post(t, webhook.PathMutate, reviewOf(t, "v1", "CREATE", "kube-system", []byte(pod))))
	e.answer(post(t, webhook.PathMutate, reviewOf(t, "v1", "DELETE", "shop", []byte("null"))))
	e.answer(post(t, webhook.PathMutate, []byte("hello")))
	e.answer(post(t, "/made/up/by/a/stranger", nil))
	e.answer(post(t, webhook.PathValidate, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
	want := `pillion_decisions_total{code="excluded_namespace",template="log-agent"} 1
pillion_decisions_total{code="injected",template="log-agent"} 1
pillion_findings_total{code="not_injected",template="log-agent",webhook="validate"} 1
pillion_webhook_requests_total{decision="denied",status="200",webhook="validate"} 1
pillion_webhook_requests_total{decision="ignored",status="200",webhook="mutate"} 1
pillion_webhook_requests_total{decision="injected",status="200",webhook="mutate"} 1
pillion_webhook_requests_total{decision="rejected",status="400",webhook="mutate"} 1
pillion_webhook_requests_total{decision="rejected",status="404",webhook="none"} 1
pillion_webhook_requests_total{decision="unchanged",status="200",webhook="mutate"} 1
`
	if got := counted(t, e.registry); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestCorpus checks that every review gets an answer.
func TestCorpus(t *testing.T) {
	e := newEdge(load(t, sidecar))
	e.Log = discard()
	patched := 0
	reviews := reviews.All(t)
	for _, one := range reviews {
		body := one.Body
		for _, path := range []string{webhook.PathMutate, webhook.PathValidate} {
			t.Run(one.Name+path, func(t *testing.T) {
				w := e.answer(post(t, path+"?timeout=10s", body))
				for w.Code == http.StatusTemporaryRedirect { // the pod's record is none of a template here
					w = e.answer(post(t, path+w.Header().Get("Location"), body))
				}
				if w.Code != http.StatusOK {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
				r, object := checkContract(t, path, body, w)
				if r.Patch == nil {
					return
				}
				patched++
				again := e.answer(post(t, path, reviewOf(t, "v1", "CREATE", "shop", object)))
				if r, _ := checkContract(t, path, nil, again); r.Patch != nil {
					t.Errorf("the second call patches: %s", r.Patch)
				}
			})
		}
	}
	t.Logf("%d reviews, %d patched", len(reviews), patched)
	if patched < len(reviews)/2 {
		t.Error("this tests nothing: hardly a pod was patched")
	}
}
