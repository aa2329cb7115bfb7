// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// counter is a counter of the registry without labels.
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
type known struct{ namespace templates.Namespace }

func (k known) Namespace(string) (templates.Namespace, error) { return k.namespace, nil }

// Every case of the engine goes through the edge too, and what comes out is what
// the engine says.
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
			namespace := templates.Namespace{Name: "shop"}
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
				r, _ := checkContract(t, webhook.PathMutate, body, e.answer(post(t, webhook.PathMutate, body)))
				if !bytes.Equal(r.Patch, want.Patch()) {
					t.Errorf("the patch is\n%s\nnot\n%s", r.Patch, want.Patch())
				}
				if len(r.AuditAnnotations) != len(want.AppendAudit(nil)) {
					t.Errorf("audit annotations %v", r.AuditAnnotations)
				}
			}
		})
	}
}

func fromYAML(t *testing.T, text []byte) []byte {
	t.Helper()
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	n, err := tree.FromYAML(&document)
	if err != nil {
		t.Fatal(err)
	}
	return n.AppendTo(nil)
}

// FuzzBody: whatever the body, the answer is 400, or what the API server takes.
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
				f.Add(part.Data, false)
			}
		}
	}
	f.Add(reviewOf(f, "v1", "CREATE", "shop", []byte(pod)), true)
	e := newEdge(load(f, sidecar))
	e.Log = discard()
	f.Fuzz(func(t *testing.T, body []byte, validate bool) {
		path := webhook.PathMutate
		if validate {
			path = webhook.PathValidate
		}
		w := e.answer(post(t, path, body))
		switch w.Code {
		case http.StatusOK:
			checkContract(t, path, body, w)
		case http.StatusBadRequest:
			if w.Body.Len() < 10 {
				t.Errorf("no sentence: %q", w.Body)
			}
		default:
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
