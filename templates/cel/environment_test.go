// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// functionsPage is the page with an example of each function.
const functionsPage = "../../manifests/docs/functions.md"

// example is a row of a table: | `expression` | `result` | or | `expression` | error: message |.
var example = regexp.MustCompile("(?m)^\\| `(.*)` \\| (?:`(.*)`|error: (.*)) \\|$")

// TestFunctionsPage evaluates the examples of the page, and checks that each function has one.
func TestFunctionsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(functionsPage)
	if err != nil {
		t.Fatal(err)
	}
	c := newTestCompiler(t)
	var all strings.Builder
	for _, row := range example.FindAllStringSubmatch(string(page), -1) {
		source, want, failure := row[1], row[2], row[3]
		all.WriteString(" " + source)
		got, err := printed(t, c, source)
		if failure != "" && (err == nil || !strings.Contains(err.Error(), failure)) {
			t.Errorf("%s gives %s and the error %v, not %s", source, got, err, failure)
		} else if failure == "" && (err != nil || got != want) {
			t.Errorf("%s gives %s (%v), not %s", source, got, err, want)
		}
	}
	for _, name := range functionNames(t) {
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\(`).MatchString(all.String()) {
			t.Errorf("%s has no example in %s", name, functionsPage)
		}
	}
}

func newTestCompiler(t testing.TB) *Compiler {
	t.Helper()
	c, err := NewCompiler(testParams())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// printed returns the value of an expression as JSON.
func printed(t testing.TB, c *Compiler, source string) (string, error) {
	t.Helper()
	p, err := c.compileExpression(c.pod, source, false)
	if err != nil {
		return "", err
	}
	v, err := p.evalCEL(&Input{})
	if err != nil {
		return "", err
	}
	text, err := values.AppendJSON(nil, v)
	return string(text), err
}

// functionNames returns the names of functions and macros. Operators have names with other
// characters.
func functionNames(t testing.TB) []string {
	t.Helper()
	l, err := theLanguage()
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Collect(maps.Keys(l.Functions()))
	for _, m := range l.Macros() {
		names = append(names, m.Function())
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return name == "in" || strings.ContainsAny(name, "@!?[") || strings.HasPrefix(name, "_") || strings.HasPrefix(name, "-")
	})
}

// testParams returns one parameter of each type.
func testParams() []v1alpha1.Param {
	return []v1alpha1.Param{{Name: "s"}, {Name: "i", Type: "integer"}, {Name: "n", Type: "number"}, {Name: "b", Type: "boolean"}, {Name: "q", Type: "quantity"}, {Name: "o", Optional: true}, {Name: "a", Optional: true}}
}

// newTestInput returns an input with a value of each of these parameters, in three loops, the last one with two variables.
func newTestInput(t *testing.T, pod, container string) *Input {
	t.Helper()
	in := &Input{
		Namespace:      request.Namespace{Name: "shop", Labels: map[string]string{"app": "web", "web": "ä"}, Annotations: map[string]string{"other": "\xff"}},
		ServiceAccount: &request.ServiceAccount{Name: "web", Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"web": "x", "other": "\xff"}},
		Request:        request.Info{Operation: "CREATE", Username: "somebody", DryRun: true},
	}
	annotations := jsontree.Members()
	for name, text := range map[string]string{"s": "app", "i": "3", "n": "1e21", "b": "true", "q": "100m", "o": "web"} {
		annotations.Set(name, jsontree.Text(text))
	}
	var compiled []*params.Param
	for _, p := range testParams() {
		compiled = append(compiled, params.Compile(&p, p.Name, func(field, format string, args ...any) { t.Fatalf(field+" "+format, args...) }))
	}
	set, err := params.NewSet(compiled).Find(&annotations, nil, &in.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	var nodes [2]*jsontree.Node
	for i, text := range []string{pod, container} {
		if nodes[i], err = jsontree.Parse([]byte(text)); err != nil {
			t.Skip()
		}
	}
	in.Pod = nodes[0]
	in.loops = []loopValue{{"w", types.String("web")}, {"k", values.Of(nodes[1])}, {"i", types.Int(0)}, {"j", types.Int(7)}}
	return in.WithValues(set, nodes[1])
}

// loopingCompiler returns a compiler inside of three loops, the last one with two variables.
func loopingCompiler(t testing.TB) *Compiler {
	t.Helper()
	c := newTestCompiler(t)
	for _, l := range [][2]string{{"w", "[params.s]"}, {"k", "pod.spec.containers"}, {"i,j", "[params.i]"}} {
		_, within, err := c.CompileLoop(c.container, strings.Split(l[0], ","), l[1], 0)
		if err != nil {
			t.Fatal(err)
		}
		c.container = within
	}
	return c
}

// TestMadeMapsHaveOrder checks that maps that functions and macros make are read in the order of their keys. CEL's own maps have
// another order in every run.
func TestMadeMapsHaveOrder(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	const letters = `['g', 'b', 'f', 'a', 'e', 'c', 'd']`
	for _, made := range []string{
		letters + `.transformMapEntry(i, x, {x: i})`,
		letters + `.transformMapEntry(i, x, {x: i}).transformMap(k, v, v + 1)`,
		`cel.bind(m, ` + letters + `.transformMapEntry(i, x, i > 9, {x: i}), m.merge(` + letters + `.transformMapEntry(i, x, {x: i})))`,
		`{'g': 1, 'b': 2, 'd': 0}.merge({'f': 3, 'a': 4}).merge({'e': 5, 'c': 6})`,
		`[` + letters + `.transformMapEntry(i, x, {x: i})][0]`,
		`{'x': ` + letters + `.transformMapEntry(i, x, {x: i})}.x`,
	} {
		for _, read := range []string{`%s.map(k, k)`, `%s.transformList(k, v, k)`, `%s.transformMap(k, v, v).map(k, k)`} {
			source := fmt.Sprintf(read, made)
			if got, err := printed(t, c, source); err != nil || got != `["a","b","c","d","e","f","g"]` {
				t.Errorf("%s gives %s (%v)", source, got, err)
			}
		}
	}
}
