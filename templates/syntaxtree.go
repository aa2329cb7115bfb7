// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// SplitSelect splits an expression such as ns.name, a field of a variable that is not JSON. It returns
// "" for other expressions.
func SplitSelect(e ast.Expr) (variable, field string) {
	if e.Kind() != ast.SelectKind || e.AsSelect().IsTestOnly() || e.AsSelect().Operand().Kind() != ast.IdentKind {
		return "", ""
	}
	return e.AsSelect().Operand().AsIdent(), e.AsSelect().FieldName()
}

// StringLiteral returns the value of a string literal.
func StringLiteral(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}
