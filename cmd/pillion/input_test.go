// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/templates/request"
)

// TestDeclaredNamespaces checks random streams of Namespaces and pods in any order. For each pod,
// inject and explain must decide as the engine does in a cluster with these namespaces.
func TestDeclaredNamespaces(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "t.yaml"), strings.Replace(agentTemplate, "  default: true\n", "  default: true\n  params: [{name: level, default: info}]\n", 1))
	set, err := cli.LoadTemplates(nil, []string{dir})
	must(t, err)
	injector := inject.New(set)
	random := rand.New(rand.NewPCG(15, 5))
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	injected, not := 0, 0
	for range 40 {
		namespaces := map[string]request.Namespace{}
		var documents []string
		for _, name := range []string{"a", "b", "c"} {
			if random.IntN(4) == 0 {
				continue // the stream does not have it, so it counts as opted in
			}
			ns := request.Namespace{Name: name, Known: true, Labels: map[string]string{}, Annotations: map[string]string{}}
			if value := pick("", "enabled", "disabled", "shadow", "true"); value != "" {
				ns.Labels["pillion.dev/inject"] = value
			}
			if random.IntN(2) == 0 {
				ns.Annotations["agent.pillion.dev/level"] = "debug"
			}
			namespaces[name] = ns
			text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": ns.Labels, "annotations": ns.Annotations}})
			must(t, err)
			if random.IntN(3) == 0 {
				text = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"List","items":[%s]}`, text)
			}
			documents = append(documents, string(text))
		}
		want := map[string]string{}
		for i := range 4 {
			name, in := fmt.Sprint("pod-", i), pick("a", "b", "c")
			pod := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"labels":%s},"spec":{"containers":[{"name":"web","image":"web:1"}]}}`,
				name, in, pick(`{}`, `{"pillion.dev/inject":"enabled"}`, `{"pillion.dev/inject":"disabled"}`))
			ns := namespaces[in]
			ns.Name = in
			result, err := injector.Inject(inject.Request{Operation: "CREATE", Namespace: ns, Object: []byte(pod)})
			must(t, err)
			if want[name] = string(result.Patch()); result.Adds() {
				injected++
			} else {
				not++
			}
			documents = append(documents, pod)
		}
		random.Shuffle(len(documents), func(i, k int) { documents[i], documents[k] = documents[k], documents[i] })
		checkDeclared(t, dir, strings.Join(documents, "\n---\n"), want)
	}
	if injected < 40 || not < 40 {
		t.Errorf("%d pods were injected, %d were not", injected, not)
	}
}

func checkDeclared(t *testing.T, dir, stream string, want map[string]string) {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run([]string{"inject", "-f", "-", "-t", dir, "-o", "patch", "-q"}, strings.NewReader(stream), &out, &errs); code != exitOK {
		t.Fatalf("inject: %d %s", code, &errs)
	}
	patched := map[string]string{}
	for line := range strings.Lines(out.String()) {
		var of struct {
			Name  string
			Patch json.RawMessage
		}
		must(t, json.Unmarshal([]byte(line), &of))
		patched[of.Name] = string(of.Patch)
	}
	out.Reset()
	if code := run([]string{"explain", "-f", "-", "-t", dir, "-o", "json"}, strings.NewReader(stream), &out, &errs); code != exitOK {
		t.Fatalf("explain: %d %s", code, &errs)
	}
	var explained struct{ Reports []explain.Report }
	must(t, json.Unmarshal(out.Bytes(), &explained))
	for i := range explained.Reports {
		r := &explained.Reports[i]
		var compact bytes.Buffer
		if r.Patch != nil {
			must(t, json.Compact(&compact, r.Patch))
		}
		if name := r.Object.Name; patched[name] != want[name] || compact.String() != want[name] {
			t.Errorf("%s: inject adds %s, explain says %s, the engine %s\n%s", name, patched[name], &compact, want[name], stream)
		}
		if optedOut := len(r.Templates) > 0 && r.Templates[0].Code == inject.CodeNotOptedIn && !strings.HasPrefix(r.Summary, "Nothing is injected, because"); (r.OptedIn != "") != optedOut {
			t.Errorf("%s: %q of %s", r.Object.Name, r.OptedIn, r.Templates[0].Code)
		}
	}
	if len(explained.Reports) != len(want) {
		t.Errorf("%d reports, want %d", len(explained.Reports), len(want))
	}
}

// TestDeclaredForms checks that a Namespace counts however its kind is written. A Namespace that
// cannot be decoded is an error, because its pods must not count as opted in.
func TestDeclaredForms(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "t.yaml"), agentTemplate)
	const pod = "\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: a, image: b}]}\n"
	inject := func(stream string) (code int, out, told string) {
		var stdout, stderr bytes.Buffer
		code = run([]string{"inject", "-f", "-", "-t", dir}, strings.NewReader(stream), &stdout, &stderr)
		return code, stdout.String(), stderr.String()
	}
	for _, kind := range []string{
		"kind: Namespace", "kind: !!str Namespace", "kind: &k Namespace", "kind: >-\n  Namespace", "kind: |-\n  Namespace", `kind: "Name\u0073pace"`,
		`"kind": "Namespace"`, "? kind\n: Namespace", `"\x6bind": Namespace`, "kind:\n  Namespace", "kind: 'Namespace'", "x: &k Namespace\nkind: *k", "<<: {kind: Namespace}",
	} {
		stream := "apiVersion: v1\n" + kind + "\nmetadata:\n  name: shop\n"
		for _, labels := range []string{"", "  labels:\n", "  labels: {}\n", "  labels: {pillion.dev/inject: }\n", "  labels: {pillion.dev/inject: null}\n"} {
			if code, out, told := inject(stream + labels + pod); code != exitOK || out != stream+labels+pod || !strings.Contains(told, "not_opted_in") || strings.Contains(told, "null") {
				t.Errorf("%q with %q: exit code %d\n%s", kind, labels, code, told)
			}
		}
		if code, _, told := inject(stream + "  labels: {pillion.dev/inject: enabled}\n" + pod); code != exitOK || !strings.Contains(told, ": injected") {
			t.Errorf("%q: exit code %d\n%s", kind, code, told)
		}
	}
	for of, stream := range map[string]string{
		"has no metadata.name":         "apiVersion: v1\nkind: Namespace\nmetadata: {name: 5}" + pod,
		"must be an object":            "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: [a]}" + pod,
		"this Namespace cannot be":     "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, name: shop}" + pod,
		"this is an array of objects":  "[[{\"apiVersion\": \"v1\", \"kind\": \"Pod\"}]]",
		"items[1] of this List is no":  "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod}\n- - {apiVersion: v1, kind: Pod}\n",
		"items[0] of this PodList is":  "apiVersion: v1\nkind: PodList\nitems: [5]\n",
		"the items of this List are n": "apiVersion: v1\nkind: List\nitems: {a: b}\n",
	} {
		if code, out, told := inject(stream); code != exitProblem || out != "" || !strings.Contains(strings.Join(strings.Fields(told), " "), of) {
			t.Errorf("%s: exit code %d\n%s\n%s", of, code, out, told)
		}
	}
}
