// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// splitSelect splits an expression such as ns.name, a field of a variable that is not JSON. It returns
// "" for other expressions.
func splitSelect(e ast.Expr) (variable, field string) {
	if e.Kind() != ast.SelectKind || e.AsSelect().IsTestOnly() || e.AsSelect().Operand().Kind() != ast.IdentKind {
		return "", ""
	}
	return e.AsSelect().Operand().AsIdent(), e.AsSelect().FieldName()
}

// stringLiteral returns the value of a string literal.
func stringLiteral(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}
