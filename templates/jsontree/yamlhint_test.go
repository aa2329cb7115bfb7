// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestYAMLHints checks the line and the hint of errors in YAML.
func TestYAMLHints(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		line int
		hint string
	}{
		"a:\n\tb: c\n":                        {2, "; indent with spaces, because YAML allows no tabs there"},
		"a: b\n c: d\n":                       {2, "; its indentation of 1 space does not fit the lines above: use 0"},
		"a:\n  - b: c\n     d: e\n":           {3, "; its indentation of 5 spaces does not fit the lines above: use 4"},
		"a:\n  - b: c\n   # no\n   d: e\n":    {4, "; its indentation of 3 spaces does not fit the lines above: use 2 or 4"},
		"a:\n- - b: c\n   d: e\n":             {3, "; its indentation of 3 spaces does not fit the lines above: use 2 or 4"},
		"a: b: c\n":                           {1, `; put a value that contains ": " in quotes`},
		"a: @b\n":                             {1, "; put the value in quotes, because it begins with @"},
		"a:\n- `b`\n":                         {2, "; put the value in quotes, because it begins with `"},
		"a: 'it's'\n":                         {1, "; check the quotes in this line"},
		"a: {b: c\n":                          {1, ""},
		"a: *b\n":                             {1, ""},
		"a: |\n    b\n  c\nd: e\n f: 'g'\n":   {3, "; its indentation of 2 spaces does not fit the lines above: use 0 or 4"},
		"a: [b,\n      c\n    d: 'e: f'}\n\n": {2, ""},
	} {
		err := yaml.Unmarshal([]byte(text), new(yaml.Node))
		if err == nil {
			t.Errorf("%q is valid", text)
			continue
		}
		line, message := WhereYAML([]byte(text), err)
		_, plain := CutLine(err.Error()[len("yaml: "):])
		if line != want.line || message != plain+want.hint {
			t.Errorf("%q: line %d: %s", text, line, message)
		}
	}
}
