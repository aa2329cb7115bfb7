// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"

	"github.com/pillion-dev/pillion/templates/params"
)

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

// conjunct is a part of a condition that must be true.
type conjunct struct {
	text string
	prog cel.Program
}

// compileConjuncts returns the parts of a condition that has several of them.
func (p *program) compileConjuncts() (all []conjunct) {
	parts := Conjuncts(p.checked.Expr())
	if len(parts) == 1 {
		return nil
	}
	for _, part := range parts {
		text, err := parser.Unparse(part, p.checked.SourceInfo(), parser.WrapOnColumn(1<<30))
		if err != nil {
			return nil
		}
		prog, err := p.compilePart(part)
		if err != nil {
			return nil
		}
		all = append(all, conjunct{text, prog})
	}
	return all
}

// Unmet returns the first part of the template's condition that is false for a pod. It returns "" if the
// condition has only one part.
func (t *Template) Unmet(in *Input, values params.Values) string {
	if t.condition == nil {
		return ""
	}
	in.withValues(values, nil)
	for _, c := range t.conjuncts() {
		out, details, err := c.prog.Eval(in)
		if err == nil && out == types.False {
			return c.text
		}
		if in.spendCost(costIn(details, err)); in.spentTooMuch() {
			return ""
		}
	}
	return ""
}
