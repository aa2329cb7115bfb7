// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// TestUnescapeLiterals checks that $${ is the escape for ${ in every string literal of an expression, also in a macro.
func TestUnescapeLiterals(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t)
	for source, want := range map[string]string{
		`'$${X}'`:                                `"${X}"`,
		`'echo $${A} $${B:-x} $(C) $D'`:          `"echo ${A} ${B:-x} $(C) $D"`,
		`'$$${X}'`:                               `"$${X}"`,
		`'$$${X}$$$${Y}'`:                        `"$${X}$$${Y}"`,
		`r'\$${X}'`:                              `"\\${X}"`,
		`"$${X}" + '''$${Y}'''`:                  `"${X}${Y}"`,
		`'costs $5, {x} and $'`:                  `"costs $5, {x} and $"`,
		`'\u0024$\u007bX}'`:                      `"${X}"`,
		`['a'].map(x, '$$${' + x + '}')`:         `["$${a}"]`,
		`{'$${k}': '$${v}'}`:                     `{"${k}":"${v}"}`,
		`when(true, '$$${X}').orValue('')`:       `"$${X}"`,
		`cel.bind(a, '$${X}', a + a)`:            `"${X}${X}"`,
		`'a-$${X}'.split('$${')[1]`:              `"X}"`,
		`['x', '$${y}'].exists(x, x == '$${y}')`: `true`,
	} {
		if got, err := printed(t, c, source); err != nil || got != want {
			t.Errorf("%s gives %s (%v), not %s", source, got, err, want)
		}
	}
	for _, source := range []string{`'${X}'`, `'$${X} ${Y}'`, `['a'].map(x, '${x}')`, `'\u0024{X}'`} {
		if _, err := printed(t, c, source); err == nil || !strings.Contains(err.Error(), "for the characters, write $${") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// FuzzUnescape checks that $${ means the same in a string of a template and in a string literal of an expression.
func FuzzUnescape(f *testing.F) {
	c := newTestCompiler(f)
	for _, seed := range []string{"", "a", "$${X}", "$$${X}", "${X}", "$${ ${", "{$}$${", "$${a}$${b}$"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pieces, err := c.CompilePieces(c.pod, text, 0, false)
		quoted := `r"` + text + `"`
		if strings.ContainsAny(text, "\\\"\r\n\x00") || strings.ToValidUTF8(text, "") != text || err == nil && (len(pieces) != 1 || pieces[0].Expression != nil) {
			t.Skip()
		}
		got, literalErr := printed(t, c, quoted)
		if err != nil {
			if literalErr == nil {
				t.Errorf("%q: the text has the problem %v, and the literal has the value %s", text, err, got)
			}
			return
		}
		if want, _ := values.AppendJSON(nil, types.String(pieces[0].Literal)); literalErr != nil || got != string(want) {
			t.Errorf("%q gives %s (%v) as a literal, and %q as a text", text, got, literalErr, pieces[0].Literal)
		}
	})
}
