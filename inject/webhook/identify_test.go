// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/inject/webhook/authentication"
)

// guard makes the edge accept callers with the token.
func guard(t *testing.T, e *edge, required bool) {
	t.Helper()
	tokens, err := authentication.ParseTokens([]byte("right-token\n"))
	if err != nil {
		t.Fatal(err)
	}
	e.Guard = authentication.NewGuard(required, &authentication.Credentials{Tokens: tokens}, func() (wall, steady time.Time) { return time.Now(), time.Now() })
}

// unreadRejection is a body that fails if it is read.
type unreadRejection struct{ t *testing.T }

func (u unreadRejection) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

func (unreadRejection) Close() error { return nil }

// TestCallers checks the status for callers with a right, a wrong and no token, if authentication is required and if it is not.
func TestCallers(t *testing.T) {
	for _, c := range []struct {
		token    string
		required bool
		path     string
		status   int
	}{
		{"right-token", true, webhook.PathMutate, http.StatusOK},
		{"right-token", false, webhook.PathValidate, http.StatusOK},
		{"", false, webhook.PathMutate, http.StatusOK},
		{"", true, webhook.PathMutate, http.StatusUnauthorized},
		{"wrong-token", true, webhook.PathValidate, http.StatusUnauthorized},
		{"wrong-token", false, webhook.PathMutate, http.StatusUnauthorized},
	} {
		t.Run(fmt.Sprintf("%s,%v,%s", c.path, c.required, c.token), func(t *testing.T) {
			e := newEdge(load(t, sidecar))
			guard(t, e, c.required)
			body := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
			r := post(t, c.path, body)
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			if c.status != http.StatusOK {
				r.Body = unreadRejection{t}
			}
			w := e.answer(r)
			if w.Code != c.status {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if c.status == http.StatusOK {
				checkContract(t, c.path, body, w)
				return
			}
			checkUnauthorized(t, w)
			if log := e.log.String(); strings.Contains(log, "wrong-token") || !strings.Contains(log, `"client":"192.0.2.1:1234"`) || !strings.Contains(log, `"caller":"`) {
				t.Errorf("the log is %s", log)
			}
		})
	}
}

// checkUnauthorized checks that a 401 has a metav1.Status, because the API server shows only its message.
func checkUnauthorized(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
		t.Fatal(err)
	}
	if status.Kind != "Status" || status.Code != http.StatusUnauthorized || status.Reason != metav1.StatusReasonUnauthorized ||
		!strings.HasPrefix(status.Message, "the caller is not authenticated (401): ") {
		t.Errorf("the status is %+v", status)
	}
	if got := w.Header().Get("WWW-Authenticate"); got != `Bearer realm="pillion"` {
		t.Errorf("WWW-Authenticate: %q", got)
	}
	if got := w.Header().Get("Connection"); got != "close" {
		t.Errorf("Connection: %q", got)
	}
	if w.Header().Get("Retry-After") != "" {
		t.Error("the API server is to try again")
	}
}

// TestCallersBlockingBody checks that the answer does not wait for the body, and that the
// connection is not used again.
func TestCallersBlockingBody(t *testing.T) {
	e := newEdge(load(t, sidecar))
	e.Log = discard()
	guard(t, e, true)
	for _, http2 := range []bool{false, true} {
		s := serve(t, e, http2)
		body, never := io.Pipe() // a body that never arrives
		defer never.Close()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/mutate?timeout=10s", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer wrong-token")
		client := s.Client()
		client.Timeout = 10 * time.Second
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("HTTP/2 %v: %s", http2, response.Status)
		}
	}
}

// TestCallersConnection checks that the rest of a partial body is not read as the next request.
func TestCallersConnection(t *testing.T) {
	e := newEdge(load(t, sidecar))
	e.Log = discard()
	guard(t, e, true)
	s := serve(t, e, false)
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nPOST /mutate HTTP/1.1\r\nHost: x\r\n")
	answers := bufio.NewReader(conn)
	response, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusUnauthorized || !response.Close {
		t.Errorf("%s, to be closed: %v", response.Status, response.Close)
	}
}

// TestCallersMetrics checks what the metrics count of the credentials of callers.
func TestCallersMetrics(t *testing.T) {
	e := newEdge(load(t, sidecar))
	guard(t, e, false)
	body := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
	for _, token := range []string{"right-token", "wrong-token", ""} {
		r := post(t, webhook.PathMutate, body)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		e.answer(r)
	}
	e.answer(post(t, "/elsewhere", body)) // there is no authentication there
	want := `pillion_callers_accepted_total{way="token"} 1
pillion_callers_accepted_total{way="unknown"} 1
pillion_callers_rejected_total{reason="wrong_token"} 1
`
	if got := counted(t, e.registry); !strings.HasPrefix(got, want) || strings.Count(got, "callers") != 3 {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
