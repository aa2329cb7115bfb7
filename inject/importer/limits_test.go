// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"strings"
	"testing"
)

// TestRejectedDocuments checks documents that are an error as a whole, because no importer should read them.
func TestRejectedDocuments(t *testing.T) {
	long := strings.Repeat("a", 1000)
	for name, c := range map[string]struct{ text, want string }{
		"too many fields": {"a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n" +
			"d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\n", "more than 100000 fields"},
		"too long names":  {strings.Repeat("{"+long+": ", 30) + "[" + strings.Repeat("1, ", 1500) + "1]" + strings.Repeat("}", 30), "nested too deeply"},
		"too deep":        {strings.Repeat("[", 20000) + strings.Repeat("]", 20000), "max depth"},
		"cyclic alias":    {"a: &a\n- *a\n", `the alias "a" contains itself`},
		"cyclic merge":    {"a: &a\n  <<: *a\n  b: c\n", "more than 100000 fields"},
		"name of a list":  {"? [a]\n: b\n", "the name of a field is not a string"},
		"name of nothing": {`"": b`, "the name of a field is not a string"},
		"control":         {"a: b\x00\n", "control characters"},
	} {
		t.Run(name, func(t *testing.T) {
			results, err := Import([]Source{{"input.yaml", []byte(c.text)}})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "input.yaml") {
				t.Errorf("%v, and %d objects; want an error with %q", err, len(results), c.want)
			}
		})
	}
}

// TestSameDocument checks that the encoding of a file and the ends of its lines mean nothing.
func TestSameDocument(t *testing.T) {
	text := "apiVersion: apps.kruise.io/v1alpha1\nkind: SidecarSet\nmetadata: {name: a}\nspec:\n  selector: {matchLabels: {a: b}}\n  containers:\n" +
		"  - name: a\n    image: b\n    command:\n    - |\n      first\n      second\n"
	want := importText(t, text)
	for name, other := range map[string]string{
		"byte order mark":    "\ufeff" + text,
		"CRLF":               strings.ReplaceAll(text, "\n", "\r\n"),
		"further documents":  "---\n---\nnull\n---\n" + text,
		"aliases as names":   strings.Replace(strings.Replace(text, "name: a}", "name: &name a}", 1), "{a: b}", "{*name : b}", 1),
		"a List":             "kind: List\nitems:\n- " + strings.ReplaceAll(text, "\n", "\n  "),
		"a List in a stream": "kind: ConfigMap\n---\nkind: SidecarSetList\nitems:\n- " + strings.ReplaceAll(text, "\n", "\n  "),
	} {
		if got := importText(t, other); got != want {
			t.Errorf("%s: got\n%swant\n%s", name, got, want)
		}
	}
}

// importText returns the templates without the line that has where they come from.
func importText(t *testing.T, text string) string {
	t.Helper()
	results, err := Import([]Source{{"input.yaml", []byte(text)}})
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(YAML(results), "\n")
	return rest
}

// TestManyProblems checks that each of many parts that a template cannot have is reported, and that they are taken out together.
func TestManyProblems(t *testing.T) {
	const count = 2 * maxRepairs
	var env strings.Builder
	for i := range count {
		fmt.Fprintf(&env, `{"name": "A=%d", "value": "x"},`, i)
	}
	set := fmt.Sprintf(`{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "SidecarSet", "metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"a": "b"}},
		"containers": [{"name": "a", "image": "b", "env": [%s {"name": "A", "value": "x"}]}]}}`, env.String())
	results, err := Import([]Source{{"a.json", []byte(set)}})
	if err != nil || len(results[0].Templates) != 1 || len(results[0].LeftOut) != count {
		t.Errorf("%v: %d templates, %d fields are left out; want %d", err, len(results[0].Templates), len(results[0].LeftOut), count)
	}
}
