// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"
	admissionv1 "k8s.io/api/admission/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// counter returns a counter of the registry without labels.
func counter(t *testing.T, e *edge, name string) prometheus.Collector {
	t.Helper()
	families, err := e.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: name})
			c.Add(f.GetMetric()[0].GetCounter().GetValue())
			return c
		}
	}
	t.Fatalf("no metric %s", name)
	return nil
}

// known knows one namespace.
type known struct{ namespace request.Namespace }

func (k known) Namespace(string) (request.Namespace, error) { return k.namespace, nil }

// TestEngineCases runs every case of the engine through HTTP. The result is the engine's.
func TestEngineCases(t *testing.T) {
	files, err := filepath.Glob("../testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no cases", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			namespace := request.Namespace{Name: "shop"}
			var object []byte
			var texts []string
			for _, f := range archive.Files {
				switch {
				case strings.HasSuffix(f.Name, ".template.yaml"):
					texts = append(texts, string(f.Data))
				case f.Name == "pod.json":
					object = f.Data
				case f.Name == "pod.yaml":
					object = fromYAML(t, f.Data)
				case f.Name == "namespace.yaml":
					if err := yaml.Unmarshal(f.Data, &namespace); err != nil {
						t.Fatal(err)
					}
					namespace.Known = true
				}
			}
			injector := load(t, texts...)
			want, err := injector().Inject(inject.Request{Operation: "CREATE", Username: "user", OptedIn: true, Namespace: namespace, Object: object})
			if err != nil {
				t.Fatal(err)
			}
			e := newEdge(injector)
			e.Namespaces = known{namespace}
			for _, version := range []string{"v1", "v1beta1"} {
				body := reviewOf(t, version, "CREATE", namespace.Name, object)
				r, injected := checkContract(t, webhook.PathMutate, body, e.answer(post(t, webhook.PathMutate, body)))
				if !bytes.Equal(r.Patch, want.Patch()) {
					t.Errorf("the patch is\n%s\nnot\n%s", r.Patch, want.Patch())
				}
				if len(r.AuditAnnotations) != len(want.AppendAudit(nil)) {
					t.Errorf("audit annotations %v", r.AuditAnnotations)
				}
				if injected == nil {
					injected = object
				}
				wantForetold(t, e, body, reviewOf(t, version, "CREATE", namespace.Name, injected), r)
			}
		})
	}
}

// wantForetold checks that the answer in a shadow namespace announces what both webhooks do if the namespace is opted in.
func wantForetold(t *testing.T, e *edge, came, injected []byte, mutated *admissionv1.AdmissionResponse) {
	t.Helper()
	shadow, _ := checkContract(t, webhook.PathShadow, came, e.answer(post(t, webhook.PathShadow, came)))
	judged, _ := checkContract(t, webhook.PathValidate, injected, e.answer(post(t, webhook.PathValidate, injected)))
	verdict := "would be " + judged.AuditAnnotations["final_verdict"]
	if !judged.Allowed {
		verdict += ": " + judged.Result.Message
	}
	if got := shadow.AuditAnnotations["final_verdict"]; got != webhook.Clip(verdict) {
		t.Errorf("foretold is %q, and it came %q", got, verdict)
	}
	for template, text := range mutated.AuditAnnotations {
		if got := shadow.AuditAnnotations[template]; got != text && got != "would be "+text && got != "present: the pod already has all of it" {
			t.Errorf("%s: foretold is %q, and it came %q", template, got, text)
		}
	}
	foretold, denied := slices.ContainsFunc(shadow.Warnings, func(w string) bool { return strings.HasSuffix(w, " the pod would be denied") }), !judged.Allowed
	if foretold != denied {
		t.Errorf("denied: %t; the warnings are %q", denied, shadow.Warnings)
	}
	where := regexp.MustCompile(`/(\d+|-)`) // only the final pod has the index of an added item
	for _, text := range slices.Concat(mutated.Warnings, judged.Warnings) {
		if !slices.ContainsFunc(shadow.Warnings, func(w string) bool {
			return strings.HasPrefix(where.ReplaceAllString("shadow: "+text, "/N"), where.ReplaceAllString(strings.TrimSuffix(w, "…"), "/N"))
		}) {
			t.Errorf("the warning %q is not foretold: %q", text, shadow.Warnings)
		}
	}
}

func fromYAML(t *testing.T, text []byte) []byte {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	n, err := jsontree.FromYAML(&document)
	if err != nil {
		t.Fatal(err)
	}
	return n.AppendTo(nil)
}

// FuzzBody checks that for any body, the answer is 400, one that the API server accepts, or a redirect
// to another replica, because the pod names a revision that is unknown here.
func FuzzBody(f *testing.F) {
	files, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatal("no cases", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, part := range archive.Files {
			if part.Name == "body" {
				f.Add(part.Data, uint8(0))
			}
		}
	}
	f.Add(reviewOf(f, "v1", "CREATE", "shop", []byte(pod)), uint8(1))
	f.Add(reviewOf(f, "v1", "CREATE", "shop", []byte(pod)), uint8(2))
	e := newEdge(load(f, sidecar))
	e.Log = discard()
	f.Fuzz(func(t *testing.T, body []byte, which uint8) {
		path := []string{webhook.PathMutate, webhook.PathValidate, webhook.PathShadow}[which%3]
		w := e.answer(post(t, path, body))
		switch w.Code {
		case http.StatusOK:
			checkContract(t, path, body, w)
		case http.StatusBadRequest:
			if w.Body.Len() < 10 {
				t.Errorf("no sentence: %q", w.Body)
			}
		case http.StatusTemporaryRedirect:
			if path != webhook.PathValidate || w.Header().Get("Location") == "" {
				t.Errorf("%s redirects to %q", path, w.Header().Get("Location"))
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
