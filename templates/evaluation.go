// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/parser"

	"github.com/pillion-dev/pillion/templates/params"
)

// Evaluation evaluates a part of an expression by itself.
type Evaluation struct{ prog cel.Program }

// Part returns an Evaluation of a part of the expression's [Expression.AST].
func (p *Expression) Part(part ast.Expr) (*Evaluation, error) {
	prog, err := p.compilePart(part)
	return &Evaluation{prog}, err
}

// compilePart returns a program for a part of the expression.
func (p *Expression) compilePart(e ast.Expr) (cel.Program, error) {
	checked := ast.NewCheckedAST(ast.NewAST(e, p.checked.SourceInfo()), p.checked.TypeMap(), p.checked.ReferenceMap())
	language, err := theLanguage()
	if err != nil {
		return nil, err
	}
	return p.env.PlanProgram(checked, language.limitOptions(checked)...)
}

// Value evaluates the part with values for the variables of the enclosing macros. It does not count the cost.
func (e *Evaluation) Value(in *Input, set params.Values, variables map[string]ref.Val) (ref.Val, error) {
	out, _, err := e.prog.Eval(macroVariables{in.WithValues(set, nil), variables})
	return out, err
}

// ErrExhausted is the error of an evaluation that does not begin, because others have cost too much.
var ErrExhausted = errors.New("the expressions have cost too much")

// ValueForMessage evaluates the part for a message. The cost counts in spent and in [Input.Total], but not in what the template may
// cost. It returns [ErrExhausted] if spent is more than that, or if the caller no longer waits.
func (e *Evaluation) ValueForMessage(in *Input, spent *uint64) (ref.Val, error) {
	if *spent > MaxTemplateCost || in.SpentTooMuch() || in.isDone() {
		return nil, ErrExhausted
	}
	out, details, err := e.prog.Eval(in)
	*spent += costIn(details, err)
	in.spendOfTotal(costIn(details, err))
	return out, err
}

// macroVariables is an input with the variables of macros.
type macroVariables struct {
	*Input

	variables map[string]ref.Val
}

// ResolveName implements cel.Activation.
func (m macroVariables) ResolveName(name string) (any, bool) {
	if v, ok := m.variables[name]; ok {
		return v, true
	}
	return m.Input.ResolveName(name)
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

// conjunct is a part of a condition that must be true.
type conjunct struct {
	text string
	prog cel.Program
}

// compileConjuncts returns the parts of a condition that has several of them.
func (p *Expression) compileConjuncts() (all []conjunct) {
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

// FirstFalse returns the first part of a condition that is false. It returns "" if the condition has only one part.
func (p *Expression) FirstFalse(in *Input) string {
	for _, c := range p.conjuncts() {
		out, details, err := c.prog.Eval(in)
		if err == nil && out == types.False {
			return c.text
		}
		if in.Spend(costIn(details, err)); in.SpentTooMuch() {
			return ""
		}
	}
	return ""
}
