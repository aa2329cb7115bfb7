// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/inject/testing/reviews"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

func TestMain(m *testing.M) { os.Exit(reviews.Main(m, os.Stdout)) }

// TestCases runs the cases. A case is one file with templates (*.template.yaml), a pod, a
// namespace, and the result of the engine. The pod is pod.yaml, or pod.json if the JSON itself
// matters. The namespace is namespace.yaml with labels and annotations; without it, only the name
// is known. The pod's ServiceAccount is serviceaccount.yaml, with the same fields. Every case must
// keep the invariants too.
func TestCases(t *testing.T) {
	golden.Cases(t, "testdata/cases/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		injector, req := readCase(t, archive)
		r, _ := checkInvariants(t, injector, req)
		return []txtar.File{{Name: "want", Data: []byte(describe(r))}}
	})
}

// TestCodesHaveCases checks that each code of a decision occurs in the result of a case.
func TestCodesHaveCases(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, want, _ := strings.Cut(string(text), "\n-- want --\n")
		for _, match := range regexp.MustCompile(`(?m)^[-a-z0-9]+: ([a-z_]+)(:|$)`).FindAllStringSubmatch(want, -1) {
			found[match[1]] = true
		}
	}
	for _, code := range inject.DecisionCodes() {
		if !found[string(code)] {
			t.Errorf("no case in testdata/cases gives the code %s", code)
		}
	}
}

// roles are ServiceAccounts. Some have a role and a parameter, and the one named unknown is unknown.
type roles struct{}

func (roles) ServiceAccount(_, name string) request.ServiceAccount {
	account := request.ServiceAccount{Name: name, Known: name != "unknown"}
	if len(name)%2 == 1 {
		account.Annotations = map[string]string{"role": "admin-" + name, "t0.pillion.dev/p": "of-" + name}
	}
	return account
}

func shopNamespace() request.Namespace {
	return request.Namespace{Name: "shop", ServiceAccounts: roles{}}
}

func readCase(t testing.TB, archive *txtar.Archive) (*inject.Injector, inject.Request) {
	t.Helper()
	req := inject.Request{Operation: "CREATE", Username: "user", Namespace: request.Namespace{Name: "shop"}}
	var all []*templates.Template
	for _, f := range archive.Files {
		switch {
		case strings.HasSuffix(f.Name, ".template.yaml"):
			found, problems := templates.Parse(f.Name, f.Data)
			if len(problems) > 0 {
				t.Fatal(problems.Error())
			}
			all = append(all, found...)
		case f.Name == "pod.json":
			req.Object = f.Data
		case f.Name == "pod.yaml":
			req.Object = yamlToJSON(t, f.Data)
		case f.Name == "namespace.yaml":
			if err := yaml.Unmarshal(f.Data, &req.Namespace); err != nil {
				t.Fatal(err)
			}
			req.Namespace.Known = true
		case f.Name == "serviceaccount.yaml":
			account := request.ServiceAccount{Known: true}
			if err := yaml.Unmarshal(f.Data, &account); err != nil {
				t.Fatal(err)
			}
			req.Namespace.ServiceAccounts = request.SameServiceAccount(account)
		case f.Name != "want":
			t.Fatalf("a case has no file %q", f.Name)
		}
	}
	slices.SortFunc(all, func(a, b *templates.Template) int { return a.Spec.Order - b.Spec.Order })
	return inject.New(templates.NewSet(all)), req
}

func yamlToJSON(t testing.TB, text []byte) []byte {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	n, err := jsontree.FromYAML(&doc)
	if err != nil {
		t.Fatal(err)
	}
	return n.AppendTo(nil)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// describe returns a result as a string. It omits revisions, because those change with every edit
// of a template.
func describe(r *inject.Result) string {
	var b strings.Builder
	hide := func(s string) string {
		for i := range r.Decisions {
			s = strings.ReplaceAll(s, r.Decisions[i].Revision, "REVISION")
		}
		return s
	}
	for i := range r.Decisions {
		d := &r.Decisions[i]
		fmt.Fprintf(&b, "%s: %s", d.Template, d.Code)
		if d.Message != "" {
			fmt.Fprintf(&b, ": %s", d.Message)
		}
		b.WriteString("\n")
		for _, p := range d.Params {
			fmt.Fprintf(&b, "  param %s = %q (%s)\n", p.Name, p.Text, p.Source)
		}
		for _, k := range d.Kept {
			if k.Beside != "" {
				fmt.Fprintf(&b, "  left out %s %s, because %s has %s\n", k.Path, k.Template, k.Owner(), k.Beside)
				continue
			}
			fmt.Fprintf(&b, "  kept %s %s of %s, not %s\n", k.Path, k.Pod, k.Owner(), k.Template)
		}
	}
	for _, op := range r.Ops() {
		fmt.Fprintf(&b, "%s %s %s\n", op.Operation, op.Path, hide(fmt.Sprintf("%s", op.Value)))
	}
	for _, w := range r.Warnings() {
		fmt.Fprintf(&b, "warning: %s\n", hide(w))
	}
	notes := r.AppendAudit(nil)
	slices.SortFunc(notes, func(a, b inject.Note) int { return strings.Compare(a.Key, b.Key) })
	for _, note := range notes {
		fmt.Fprintf(&b, "audit %s: %s\n", note.Key, hide(note.Text))
	}
	return b.String()
}
