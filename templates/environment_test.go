// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// functionsPage is the page with an example of each function.
const functionsPage = "../manifests/docs/functions.md"

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

func newTestCompiler(t testing.TB) *compiler {
	t.Helper()
	c, err := newCompiler(directParams())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// printed returns the value of an expression as JSON.
func printed(t testing.TB, c *compiler, source string) (string, error) {
	t.Helper()
	p, err := c.compileExpression(c.env, source)
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
