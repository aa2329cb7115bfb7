// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"errors"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/templates/params"
)

// Evaluation evaluates a part of an expression by itself.
type Evaluation struct{ prog cel.Program }

// Part returns an Evaluation of a part of the expression's [Expression.AST].
func (p *Expression) Part(part ast.Expr) (*Evaluation, error) {
	prog, err := p.compilePart(part)
	return &Evaluation{prog}, err
}

// Value evaluates the part with values for the variables of the enclosing macros. It does not count the cost.
func (e *Evaluation) Value(in *Input, set params.Values, variables map[string]ref.Val) (ref.Val, error) {
	out, _, err := e.prog.Eval(macroVariables{in.WithValues(set, nil), variables})
	return out, err
}

// ValueWithCost evaluates the part as Value does. The cost counts in spent.
func (e *Evaluation) ValueWithCost(in *Input, set params.Values, variables map[string]ref.Val, spent *uint64) (ref.Val, error) {
	before := in.Spent()
	out, details, err := e.prog.Eval(macroVariables{in.WithValues(set, nil), variables})
	*spent += costIn(details, err) + in.Spent() - before // of the variables that it reads
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
