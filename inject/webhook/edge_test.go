// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"unicode"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/request"
)

func TestMain(m *testing.M) { os.Exit(reviews.Main(m, os.Stdout)) }

// edge is a handler with its log and metrics.
type edge struct {
	*webhook.Handler
	Injector func() *inject.Injector
	Judge    func() *inject.Judge // nil: one for the injector
	judges   sync.Map             // by *inject.Injector
	log      bytes.Buffer
	registry *prometheus.Registry
}

// use returns the same judge for the same injector, so that tests can count allocations.
func (e *edge) use(string) (*inject.Injector, *inject.Judge) {
	injector := e.Injector()
	if e.Judge != nil {
		return injector, e.Judge()
	}
	judge, ok := e.judges.Load(injector)
	if !ok {
		judge, _ = e.judges.LoadOrStore(injector, inject.NewJudge(injector, nil, true))
	}
	return injector, judge.(*inject.Judge)
}

// unknown knows no namespace.
type unknown struct{}

func (unknown) Namespace(name string) (request.Namespace, error) {
	return request.Namespace{Name: name}, nil
}

func newEdge(injector func() *inject.Injector) *edge {
	e := &edge{registry: prometheus.NewRegistry(), Injector: injector}
	e.Handler = &webhook.Handler{
		Limiter:    webhook.NewLimiter(e.registry, 1, 64<<20),
		Use:        e.use,
		All:        func() *templates.Set { return injector().All() },
		Namespaces: unknown{},
		Metrics:    webhook.NewMetrics(e.registry),
		Log:        slog.New(slog.NewJSONHandler(&e.log, nil)),
	}
	e.Metrics.Use(injector().Set())
	return e
}

// sidecar is a template that every pod gets.
const sidecar = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: log-agent}
spec:
  default: true
  pod:
    spec:
      initContainers:
      - {name: log-agent, image: "registry.example/log-agent:1", restartPolicy: Always}
`

func load(t testing.TB, texts ...string) func() *inject.Injector {
	t.Helper()
	files := fstest.MapFS{}
	for i, text := range texts {
		files[strconv.Itoa(i)+".yaml"] = &fstest.MapFile{Data: []byte(text)}
	}
	set, err := templates.Load(templates.Source{FS: files, Name: "."})
	if err != nil {
		t.Fatal(err)
	}
	injector := inject.New(set)
	return func() *inject.Injector { return injector }
}

// post returns a request as an API server sends it.
func post(t testing.TB, path string, body []byte) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

func (e *edge) answer(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

// checkContract checks an answer against everything that the API server requires and recommends,
// and returns the response and the patched object.
func checkContract(t testing.TB, path string, request []byte, w *httptest.ResponseRecorder) (*admissionv1.AdmissionResponse, []byte) {
	t.Helper()
	var in, out admissionv1.AdmissionReview
	strict, err := kjson.UnmarshalStrict(w.Body.Bytes(), &out)
	if err != nil || len(strict) > 0 {
		t.Fatalf("the answer does not decode strictly: %v %v\n%s", err, strict, w.Body)
	}
	if out.Kind != "AdmissionReview" || out.Request != nil || out.Response == nil || out.Response.UID == "" || (out.Response.Result != nil) == out.Response.Allowed {
		t.Fatalf("not an answer: %s", w.Body)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(request, &in); err == nil {
		if out.APIVersion != in.APIVersion || out.Response.UID != in.Request.UID {
			t.Fatalf("answers another request: %s", w.Body)
		}
	}
	r := out.Response
	denials := map[string]int32{webhook.PathValidate: http.StatusForbidden, webhook.PathLint: http.StatusUnprocessableEntity}
	if !r.Allowed && (r.Result.Message == "" || r.Result.Code != denials[path] || r.Warnings != nil) {
		t.Fatalf("rejected: %s", w.Body)
	}
	if (len(r.Patch) > 0) != (r.PatchType != nil) || bytes.Contains(w.Body.Bytes(), []byte(`"patch":""`)) {
		t.Fatalf("a patch without its type, or a type without a patch: %s", w.Body)
	}
	if path != webhook.PathMutate && r.Patch != nil {
		t.Fatalf("the validating webhook patches: %s", w.Body)
	}
	if got := w.Header().Get("Content-Length"); got != strconv.Itoa(w.Body.Len()) {
		t.Errorf("Content-Length %q for %d bytes", got, w.Body.Len())
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	if !r.Allowed && hidden(r.Result.Message) {
		t.Errorf("a terminal would obey the denial %q", r.Result.Message)
	}
	if !r.Allowed && r.Result.Details != nil {
		for _, cause := range r.Result.Details.Causes {
			if hidden(cause.Field + cause.Message) {
				t.Errorf("a terminal would obey the cause %q", cause)
			}
		}
	}
	checkAudit(t, r.AuditAnnotations)
	checkWarnings(t, r.Warnings)
	return r, checkPatch(t, in, r)
}

// hidden reports whether a line has hidden characters.
func hidden(text string) bool {
	return strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsFunc(text, inject.Hidden)
}

func checkAudit(t testing.TB, audit map[string]string) {
	t.Helper()
	for key, value := range audit {
		if problems := validation.IsQualifiedName("pod.mutate.pillion.dev/" + key); problems != nil {
			t.Errorf("the audit annotation's key %q: %v", key, problems)
		}
		if value == "" || utf8.RuneCountInString(value) > 512 || hidden(value) {
			t.Errorf("the audit annotation %s is %q", key, value)
		}
	}
}

func checkWarnings(t testing.TB, warnings []string) {
	t.Helper()
	total := 0
	for i, text := range warnings {
		n := utf8.RuneCountInString(text)
		total += n
		if n == 0 || n > 256 || !utf8.ValidString(text) || hidden(text) || slices.Contains(warnings[:i], text) {
			t.Errorf("the API server would not show the warning %q", text)
		}
	}
	if total > 4096 {
		t.Errorf("the API server would cut %d runes of warnings", total)
	}
}

// checkPatch applies the patch as the API server does.
func checkPatch(t testing.TB, in admissionv1.AdmissionReview, r *admissionv1.AdmissionResponse) []byte {
	t.Helper()
	if in.Request == nil || r.Patch == nil {
		return nil
	}
	if *r.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Fatalf("the patch type is %q", *r.PatchType)
	}
	patch, err := jsonpatch.DecodePatch(r.Patch)
	if err != nil || len(patch) == 0 {
		t.Fatalf("no patch: %v\n%s", err, r.Patch)
	}
	object, err := patch.Apply(in.Request.Object.Raw)
	if err != nil {
		t.Fatalf("the patch does not apply: %v\n%s\n%s", err, r.Patch, in.Request.Object.Raw)
	}
	return object
}

// reviewOf returns a review of a pod.
func reviewOf(t testing.TB, version, operation, namespace string, pod []byte) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": "admission.k8s.io/" + version, "kind": "AdmissionReview",
		"request": map[string]any{
			"uid":       "705ab4f5-6393-11e8-b7cc-42010a800002",
			"kind":      map[string]any{"group": "", "version": "v1", "kind": "Pod"},
			"resource":  map[string]any{"group": "", "version": "v1", "resource": "pods"},
			"namespace": namespace, "operation": operation, "dryRun": false,
			"userInfo": map[string]any{"username": "user"},
			"object":   json.RawMessage(pod),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}
