// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

// Expression is a compiled CEL expression.
type Expression struct{ p *program }

// Source returns the expression as written.
func (e *Expression) Source() string { return e.p.source }

// AST returns the type-checked expression. Its macros are available as written, by
// [ast.SourceInfo.GetMacroCall].
func (e *Expression) AST() *ast.AST { return e.p.checked }

// Type returns the type of the expression's value.
func (e *Expression) Type() *cel.Type { return e.p.out }

// ReadsPodName reports whether the expression reads the name of the pod. An admission policy cannot
// distinguish it from a name that the API server generates later.
func (e *Expression) ReadsPodName() bool { return e.p.readsPodName }

// Params returns the parameters that a condition reads.
func (e *Expression) Params() []string { return e.p.params }

func newExpression(p *program) *Expression {
	if p == nil {
		return nil
	}
	return &Expression{p}
}

// Variable returns the expression of a variable that is selected in e, or nil.
func (e *Expression) Variable(part ast.Expr) *Expression {
	of, name := splitSelect(part)
	for _, v := range e.p.variables {
		if of == "variables" && v.name == name {
			return newExpression(v.program)
		}
	}
	return nil
}
