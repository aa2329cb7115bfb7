// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
)

// goal is a condition of the pod, or of at least one container.
type goal struct {
	of          *cel.Expression
	expr        ast.Expr // a part of it
	ofContainer bool
	orInit      bool // an init container counts, too
}

// conditionsOf returns the parts of a template's condition, which must all be true.
func conditionsOf(t *templates.Template) []*goal {
	if e := t.ConditionExpression(); e != nil {
		return goalsOf(e, e.AST().Expr())
	}
	return nil
}

// goalsOf returns the parts of an expression that must all be true.
func goalsOf(of *cel.Expression, e ast.Expr) (all []*goal) {
	if v := of.Variable(e); v != nil {
		return goalsOf(v, v.AST().Expr())
	}
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.LogicalAnd {
		return []*goal{{of: of, expr: e}}
	}
	for _, operand := range e.AsCall().Args() {
		all = append(all, goalsOf(of, operand)...)
	}
	return all
}

// celText returns the condition as CEL, or the whole expression if that fails.
func (g *goal) celText() string {
	return g.of.TextOf(g.expr)
}

// containerPaths returns the places of the containers that the goal may be about.
func (g *goal) containerPaths(w *world) (all []path) {
	if all = w.childPaths(containers); g.orInit {
		all = append(all, w.childPaths(initContainers)...)
	}
	return all
}
