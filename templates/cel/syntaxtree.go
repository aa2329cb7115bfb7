// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
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

// Conjuncts returns the parts of an expression that must all be true.
func Conjuncts(e ast.Expr) []ast.Expr {
	if call := e.AsCall(); e.Kind() == ast.CallKind && call.FunctionName() == operators.LogicalAnd {
		var all []ast.Expr
		for _, arg := range call.Args() {
			all = append(all, Conjuncts(arg)...)
		}
		return all
	}
	return []ast.Expr{e}
}
