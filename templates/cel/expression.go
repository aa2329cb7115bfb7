// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
)

// Expression is a compiled CEL expression of a template. It does not change after the template is loaded.
type Expression struct {
	source    string
	line      int            // in the file, if it is known
	fastpath  fastpath       // evaluates it without CEL, if possible
	params    []string       // the parameters that it reads, sorted
	ofPod     bool           // whether its value depends on the pod
	given     params.Indexes // if pure: the parameters that it reads, and it reads nothing else
	pure      bool
	omittable bool   // it is a whole value that may be left out
	free      uint32 // the variables of loops that it reads, see [Loop.Variables]
	checked   *ast.AST
	env       *cel.Env
	prog      cel.Program
	out       *cel.Type

	variables []*Variable // that it reads itself
	conjuncts func() []conjunct

	readsPodName bool
	mixed        bool // whether its value contains values of different types
	unknown      bool // see ReadsUnknown
}

// Source returns the expression as written.
func (p *Expression) Source() string { return p.source }

// AST returns the type-checked expression. Its macros are available as written, by
// [ast.SourceInfo.GetMacroCall].
func (p *Expression) AST() *ast.AST { return p.checked }

// Type returns the type of the expression's value.
func (p *Expression) Type() *cel.Type { return p.out }

// Params returns the parameters that the expression reads, sorted.
func (p *Expression) Params() []string { return p.params }

// ReadsPod reports whether the expression's value depends on the pod.
func (p *Expression) ReadsPod() bool { return p.ofPod }

// ReadsPodName reports whether the expression reads the name of the pod. An admission policy cannot
// distinguish it from a name that the API server generates later.
func (p *Expression) ReadsPodName() bool { return p.readsPodName }

// ReadsUnknown reports whether the expression reads a value of unknown type. Then, the type of the expression's value says only what
// CEL expects: it accepts such a value in place of any other, for example in pod.spec.containers[0].env + params.json.
func (p *Expression) ReadsUnknown() bool { return p.unknown }

// ReadsContainer reports whether the value may differ between the containers of a pod.
func (p *Expression) ReadsContainer() bool {
	return slices.ContainsFunc(ast.MatchDescendants(ast.NavigateAST(p.checked), ast.KindMatcher(ast.IdentKind)), func(e ast.NavigableExpr) bool {
		return e.AsIdent() == "container"
	})
}

// ReadsOnlyParams reports whether the expression reads nothing but parameters and the variables of loops, and which: the
// parameters by their indexes in the declaration, and the variables by how many there are outside of each.
func (p *Expression) ReadsOnlyParams() (only bool, given params.Indexes, variables uint32) {
	return p.pure, p.given, p.free
}

// SetOmittable records whether the expression is a whole value that is left out if there is none. Messages about a missing value
// depend on it.
func (p *Expression) SetOmittable(omittable bool) { p.omittable = omittable }

// Variable returns the expression of a variable that is selected in the expression, or nil.
func (p *Expression) Variable(part ast.Expr) *Expression {
	of, name := SplitSelect(part)
	for _, v := range p.variables {
		if of == "variables" && v.name == name {
			return v.program
		}
	}
	return nil
}

// Fault returns an error of the expression, which is at a path of the template.
func (p *Expression) Fault(path string, err error) error {
	return NewFault(path, p.line, p.params, err)
}

var errGone = errors.New("the caller no longer waits for the result")

// evalCEL returns the value for one pod. The evaluation counts in the cost of the input.
func (p *Expression) evalCEL(in *Input) (ref.Val, error) {
	if in.isDone() {
		return nil, errGone
	}
	if in.SpentTooMuch() {
		return nil, p.errTooMuch()
	}
	out, details, err := p.prog.Eval(in)
	in.Spend(costIn(details, err))
	if err != nil {
		return nil, fmt.Errorf("%q: %w%s", p.source, err, diagnostics.MissingValueHint(err, p.checked, p.omittable))
	}
	if in.SpentTooMuch() {
		return nil, p.errTooMuch()
	}
	return out, nil
}

// costIn returns the cost of an evaluation. A stopped one costs as much as one may: an expression may
// handle the error of a variable.
func costIn(details *cel.EvalDetails, err error) uint64 {
	cost := details.ActualCost()
	switch _, stopped := errors.AsType[interpreter.EvalCancelledError](err); {
	case cost != nil && !stopped:
		return *cost
	case err != nil:
		return MaxCost
	}
	return 0
}

func (p *Expression) errTooMuch() error {
	return fmt.Errorf("%q: the template's expressions for this pod cost more than %d", p.source, MaxTemplateCost)
}

// evalValue evaluates the expression without CEL if possible.
func (p *Expression) evalValue(in *Input) (ref.Val, error) {
	switch {
	case p.fastpath.bool != nil:
		if v, ok := p.fastpath.bool(in); ok {
			return types.Bool(v), nil
		}
	case p.fastpath.text != nil && p.out.Kind() == types.StringKind:
		if v, ok := p.fastpath.text(in); ok {
			return types.String(v), nil
		}
	}
	return p.evalCEL(in)
}

// EvalBool evaluates a condition.
func (p *Expression) EvalBool(in *Input) (bool, error) {
	if p.fastpath.bool != nil {
		if v, ok := p.fastpath.bool(in); ok {
			return v, nil
		}
	}
	out, err := p.evalCEL(in)
	if err != nil {
		return false, err
	}
	return out == types.True, nil
}

// EvalString returns the value as a part of a string.
func (p *Expression) EvalString(in *Input) (string, error) {
	if p.fastpath.text != nil {
		if text, ok := p.fastpath.text(in); ok {
			return text, nil
		}
	}
	out, err := p.evalCEL(in)
	if err != nil {
		return "", err
	}
	if text, ok := out.(types.String); ok {
		return string(text), nil
	}
	if text, ok := out.ConvertToType(types.StringType).(types.String); ok {
		return string(text), nil
	}
	return "", errors.New("the value of " + p.source + " is not a string")
}

// RenderInto sets n to the expression's value. It sets n to a node without a kind if an optional value is missing.
func (p *Expression) RenderInto(in *Input, n *jsontree.Node) error {
	if p.fastpath.node != nil && p.fastpath.node(in, n) {
		return nil
	}
	out, err := p.evalCEL(in)
	if v, ok := out.(*types.Optional); ok && err == nil {
		if !v.HasValue() {
			*n = jsontree.Node{}
			return nil
		}
		out = v.GetValue()
	}
	if err == nil {
		*n, err = values.ToJSON(out)
	}
	if err == nil && n.Size() > values.MaxOutput {
		err = values.ErrTooLong
	}
	return err
}

// RenderStringInto sets n to a scalar as a string. It sets n to a node without a kind if an optional value is missing.
func (p *Expression) RenderStringInto(in *Input, n *jsontree.Node) error {
	out, err := p.evalCEL(in)
	if err != nil {
		return err
	}
	*n = jsontree.Node{}
	if v, ok := out.(*types.Optional); ok && v.HasValue() {
		*n = in.Nodes.Text(values.TextOf(v.GetValue().ConvertToType(types.StringType)))
	}
	return nil
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
		prog, err := p.compilePart(part)
		if err != nil {
			return nil
		}
		all = append(all, conjunct{p.TextOf(part), prog})
	}
	return all
}

// TextOf returns a part of the expression as text, or the whole expression if that fails.
func (p *Expression) TextOf(part ast.Expr) string {
	text, err := diagnostics.Unparse(part, p.checked.SourceInfo())
	if err != nil {
		return p.source
	}
	return text
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

// Variable is a compiled variable of a template. It is evaluated when an expression reads it for the first time.
type Variable struct {
	lazy

	program *Expression
	used    bool
}

// Name returns the name of the variable.
func (v *Variable) Name() string { return v.name }

// Expression returns the expression that computes the variable.
func (v *Variable) Expression() *Expression { return v.program }

// IsUsed reports whether an expression reads the variable.
func (v *Variable) IsUsed() bool { return v.used }
