// SPDX-License-Identifier: Apache-2.0

package playground_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/pillion-dev/pillion/cmd/pillion/playground"
)

const (
	agent = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  default: true
  pod: {spec: {containers: [{name: agent, image: "agent:1"}]}}
`
	web     = "# 𝄞\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n  containers:\n  - {name: app, image: app}\n"
	optedIn = "pillion.dev/inject: enabled"
)

func evaluate(t *testing.T, in playground.Input) *playground.Output {
	t.Helper()
	e, err := playground.New()
	if err != nil {
		t.Fatal(err)
	}
	return e.Evaluate(&in)
}

// TestAdded checks that the spans are exactly what is not in the manifest, in UTF-16 code units.
func TestAdded(t *testing.T) {
	out := evaluate(t, playground.Input{Templates: agent, Manifest: web + "---\n" + web, NamespaceLabels: optedIn})
	units, at, rest := utf16.Encode([]rune(out.Result)), 0, ""
	for _, s := range out.Added {
		rest += string(utf16.Decode(units[at:s.From]))
		at = s.To
	}
	rest += string(utf16.Decode(units[at:]))
	if rest != web+"---\n"+web || len(out.Objects) != 2 || out.Objects[1].Line != 10 {
		t.Errorf("without the additions, the result is\n%s\nobjects: %+v", rest, out.Objects)
	}
}

// TestMistakes checks the places of mistakes.
func TestMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		in    playground.Input
		field string
		line  int
		part  string
	}{
		"manifest":    {playground.Input{Templates: agent, Manifest: web + "---\na: [\n"}, "", 9, "did not find expected node content"},
		"labels":      {playground.Input{Templates: agent, NamespaceLabels: "a: b\nc"}, "namespaceLabels", 2, ""},
		"no object":   {playground.Input{Templates: agent, AccountAnnotations: "a"}, "accountAnnotations", 1, "key: value"},
		"final":       {playground.Input{Templates: agent, Final: "kind: Pod\napiVersion: v1\nspec: [\n"}, "final", 3, ""},
		"other kinds": {playground.Input{Templates: agent, Manifest: "a: b\n---\nkind: Rollout\nspec: {template: {spec: {containers: [{name: a}]}}}\n"}, "", 3, "does not know this kind"},
	} {
		out := evaluate(t, c.in)
		if len(out.Mistakes) != 1 || out.Mistakes[0].Field != c.field || out.Mistakes[0].Line != c.line || !strings.Contains(out.Mistakes[0].Message, c.part) {
			t.Errorf("%s: %+v", name, out.Mistakes)
		}
	}
	if out := evaluate(t, playground.Input{Templates: agent + "  x: y\n"}); len(out.Problems) != 1 || out.Problems[0].Line != 7 {
		t.Errorf("%+v", out.Problems)
	}
}

// TestJSON checks that no list is null, because the page iterates over all of them, and that invalid input gives an
// error.
func TestJSON(t *testing.T) {
	e, err := playground.New()
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(playground.Input{Templates: agent, Manifest: web, NamespaceLabels: optedIn, Policy: "mutating"})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{string(in), "{}"} {
		if out := string(e.JSON([]byte(in))); strings.Contains(out, "null") {
			t.Errorf("%s gives %s", in, out)
		}
	}
	if out := string(e.JSON([]byte("x"))); !strings.HasPrefix(out, `{"error":`) {
		t.Error(out)
	}
}
