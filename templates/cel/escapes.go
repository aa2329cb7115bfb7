// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
)

// cutLiteral splits a string after the first $${, the escape for the characters ${, which it replaces by them. It returns false if
// the string has none, or if a ${ that is no escape comes before it: then literal is what is before that ${.
func cutLiteral(text string) (literal, rest string, escaped bool) {
	i := strings.Index(text, "${")
	if i < 1 || text[i-1] != '$' {
		return text[:max(i, 0)], text[max(i, 0):], false
	}
	return text[:i-1] + "${", text[i+2:], true
}

// unescapeLiterals replaces $${ in the string literals of an expression by ${. The escape is the same as in the text around
// expressions, so that an author needs to know one. It returns an error for a ${ without it: a string literal inserts no value.
func unescapeLiterals(parsed *ast.AST) (err error) {
	done := map[ast.Expr]bool{} // a macro and what it stands for share parts
	visitor := ast.NewExprVisitor(func(e ast.Expr) {
		text, ok := StringLiteral(e)
		if !ok || done[e] || !strings.Contains(text, "${") {
			return
		}
		done[e] = true
		var unescaped strings.Builder
		for {
			literal, rest, escaped := cutLiteral(text)
			unescaped.WriteString(literal)
			if text = rest; !escaped {
				break
			}
		}
		if strings.HasPrefix(text, "${") && err == nil {
			err = fmt.Errorf("${ in a string inserts no value; join strings, as in 'text' + %s; for the characters, write $${", diagnostics.FirstExpression(text))
		}
		unescaped.WriteString(text)
		e.SetKindCase(ast.NewExprFactory().NewLiteral(e.ID(), types.String(unescaped.String())))
	})
	ast.PostOrderVisit(parsed.Expr(), visitor)
	for _, macro := range parsed.SourceInfo().MacroCalls() {
		ast.PostOrderVisit(macro, visitor)
	}
	return err
}
