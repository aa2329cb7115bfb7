// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/inject/webhook"
)

// TestCases runs the cases. A case is one file with the head of the request in HTTP's format, its
// body, templates (*.template.yaml), the response and the log. Without a head, it is that of an API
// server for /mutate. Without templates, the test has one. REVISION in the body is replaced with
// the first template's revision.
func TestCases(t *testing.T) {
	golden.Cases(t, "testdata/cases/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		return []txtar.File{{Name: "want", Data: []byte(runCase(t, archive))}}
	})
}

func runCase(t *testing.T, archive *txtar.Archive) string {
	head := "POST /mutate?timeout=5s HTTP/1.1\nHost: pillion\nContent-Type: application/json\n"
	var body []byte
	var texts []string
	var namespaces webhook.Namespaces = unknown{}
	var limits knownLimits
	for _, f := range archive.Files {
		switch {
		case f.Name == "head":
			head = string(f.Data)
		case f.Name == "namespace.yaml":
			namespaces = known{namespaceIn(t, f.Data)}
		case f.Name == "limits.yaml":
			limits = limitsIn(t, f.Data)
		case f.Name == "body":
			body = f.Data
		case strings.HasSuffix(f.Name, ".template.yaml"):
			texts = append(texts, string(f.Data))
		case f.Name != "want":
			t.Fatalf("a case has no file %q", f.Name)
		}
	}
	if texts == nil {
		texts = []string{sidecar}
	}
	injector := load(t, texts...)
	if all := injector().Set().Templates; len(all) > 0 {
		body = bytes.ReplaceAll(body, []byte("REVISION"), []byte(all[0].Revision))
	}
	request := strings.ReplaceAll(head, "\n", "\r\n") + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(request)))
	if err != nil {
		t.Fatal(err)
	}
	e := newEdge(injector)
	e.Namespaces, e.Limits, e.Fit = namespaces, limits, evaluator(t)
	w := e.answer(r)
	if w.Code == http.StatusOK {
		checkContract(t, r.URL.Path, body, w)
	} else {
		checkRejection(t, w)
	}
	return describe(t, w) + logged(t, e.log.Bytes())
}

// checkRejection checks that the sentence is in a Status. The API server shows no other sentence.
func checkRejection(t *testing.T, w *httptest.ResponseRecorder) {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("the rejection is no JSON: %v, %v\n%s", err, w.Header(), w.Body)
	}
	if status.Kind != "Status" || int(status.Code) != w.Code || status.Message == "" || status.Reason == "" {
		t.Errorf("the rejection is no Status of %d: %s", w.Code, w.Body)
	}
}

// describe returns the answer with a readable patch.
func describe(t *testing.T, w *httptest.ResponseRecorder) string {
	t.Helper()
	if w.Code != http.StatusOK {
		head := fmt.Sprintf("%d\n", w.Code)
		for _, name := range []string{"Location", "Retry-After", "Connection"} {
			if value := w.Header().Get(name); value != "" {
				head += name + ": " + value + "\n"
			}
		}
		return head + hideRevisions(w.Body.String())
	}
	var answer struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Response   struct {
			UID              string            `json:"uid"`
			Allowed          bool              `json:"allowed"`
			Status           *metav1.Status    `json:"status,omitempty"`
			PatchType        string            `json:"patchType,omitempty"`
			Patch            []byte            `json:"patch,omitempty"`
			Operations       []json.RawMessage `json:"operations,omitempty"`
			AuditAnnotations map[string]string `json:"auditAnnotations,omitempty"`
			Warnings         []string          `json:"warnings,omitempty"`
		} `json:"response"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Response.Patch != nil {
		if err := json.Unmarshal(answer.Response.Patch, &answer.Response.Operations); err != nil {
			t.Fatal(err)
		}
		answer.Response.Patch = nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(answer); err != nil {
		t.Fatal(err)
	}
	return "200\n" + hideRevisions(text.String())
}

// hideRevisions keeps a case unchanged if a template's revision changes.
func hideRevisions(text string) string {
	return regexp.MustCompile(`\b[0-9a-f]{12}\b`).ReplaceAllString(text, "REVISION")
}

// logged returns the log without the parts that differ between runs.
func logged(t *testing.T, log []byte) string {
	t.Helper()
	var text strings.Builder
	for line := range bytes.Lines(log) {
		for _, changing := range []string{`"time":"[^"]*",`, `"microseconds":\d+,`, `,"client":"[^"]*"`} {
			line = regexp.MustCompile(changing).ReplaceAll(line, nil)
		}
		text.WriteString("log: " + string(line))
	}
	return text.String()
}

// TestHidden checks that no content of a pod can control a terminal through Pillion's messages
// about the pod.
func TestHidden(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, strings.Replace(sidecar, "  default: true\n", "  default: true\n  validate: {mode: Deny}\n", 1)))
	for _, text := range []string{"\x1b[2J", "\x1b]52;c;eA==\x07", "\u009b31m", "\u202ereversed", "\u2066x\u2069", "\u200f", "\u2028", "\u2029", "\x7f", "a\r\nb"} {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		object := strings.ReplaceAll(`{"metadata":{"name":T,"annotations":{"pillion.dev/templates":T,"log-agent.pillion.dev/injected":T,"log-agent.pillion.dev/level":T,"log-agent.pillion.dev/x":T,"a.pillion.dev/injected":T}},
"spec":{"initContainers":[{"name":"log-agent","image":T}],"containers":[{"name":"web","image":T,"env":[{"name":"A","value":T}]}]}}`, "T", string(quoted))
		for _, path := range []string{webhook.PathMutate, webhook.PathValidate, "/shadow"} {
			body := reviewOf(t, "v1", "CREATE", "shop", []byte(object))
			checkContract(t, path, body, e.answer(post(t, path, body)))
		}
	}
	if log := e.log.String(); hidden(strings.ReplaceAll(log, "\n", "")) {
		t.Errorf("the log is %q", log)
	}
}
