// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
)

// Evaluation evaluates a part of an expression by itself, with the variables of the enclosing
// macros.
type Evaluation struct{ prog cel.Program }

// Part returns an Evaluation of a part of the expression's [Expression.AST].
func (e *Expression) Part(part ast.Expr) (*Evaluation, error) {
	prog, err := e.p.compilePart(part)
	return &Evaluation{prog}, err
}

// Value evaluates it.
func (e *Evaluation) Value(in *Input, values params.Values, variables map[string]ref.Val) (ref.Val, error) {
	out, _, err := e.prog.Eval(scope{in.withValues(values, nil), variables})
	return out, err
}

// scope is an input with the variables of macros.
type scope struct {
	*Input

	variables map[string]ref.Val
}

// ResolveName implements cel.Activation.
func (s scope) ResolveName(name string) (any, bool) {
	if v, ok := s.variables[name]; ok {
		return v, true
	}
	return s.Input.ResolveName(name)
}

// View converts JSON to CEL as the variables of expressions do.
func View(n *jsontree.Node) ref.Val { return values.Of(n) }
