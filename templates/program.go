// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// program is a compiled expression.
type program struct {
	source  string
	line    int            // in the file, if it is known
	params  []string       // the parameters that it reads, sorted
	ofPod   bool           // whether its value depends on the pod
	given   params.Indexes // if pure: the parameters that it reads, and it reads nothing else
	pure    bool
	leaf    bool   // it is a whole value that may be left out
	free    uint32 // the loops whose variables it reads, by depth
	checked *ast.AST
	env     *cel.Env
	prog    cel.Program
	out     *cel.Type

	variables []*variable // that it reads itself

	readsPodName bool
	mixed        bool // whether its value contains values of different types
}

// variable is a compiled variable of a template. It is evaluated when an expression reads it for the first time.
type variable struct {
	name    string
	index   int
	program *program
	used    bool
}

// evalOnce returns the value for a pod.
func (v *variable) evalOnce(in *Input) (ref.Val, error) {
	for len(in.variables) <= v.index {
		in.variables = append(in.variables, evaluated{})
	}
	if r := &in.variables[v.index]; r.done {
		return r.value, r.err
	}
	value, err := v.program.evalCEL(in)
	if err != nil {
		err = fmt.Errorf("variables.%s: %w", v.name, err)
	}
	in.variables[v.index] = evaluated{value, err, true}
	return value, err
}

// loop is a compiled ${forEach}.
type loop struct {
	name  string // of its variable
	list  *program
	depth int // number of loops around it
}

var errGone = errors.New("the caller no longer waits for the result")

// evalCEL returns the value for one pod. The evaluation counts in the cost of the input.
func (p *program) evalCEL(in *Input) (ref.Val, error) {
	if in.isDone() {
		return nil, errGone
	}
	if in.spentTooMuch() {
		return nil, p.errTooMuch()
	}
	out, details, err := p.prog.Eval(in)
	in.spendCost(costIn(details, err))
	if err != nil {
		return nil, fmt.Errorf("%q: %w%s", p.source, err, diagnostics.MissingValueHint(err, p.checked, p.leaf))
	}
	if in.spentTooMuch() {
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
		return costLimit
	}
	return 0
}

func (p *program) errTooMuch() error {
	return fmt.Errorf("%q: the template's expressions for this pod cost more than %d", p.source, totalLimit)
}

// evalBool evaluates a condition.
func (p *program) evalBool(in *Input) (bool, error) {
	out, err := p.evalCEL(in)
	if err != nil {
		return false, err
	}
	return out == types.True, nil
}

// faultAt returns an error of an expression.
func (p *program) faultAt(path string, err error) error {
	return &fault{path, p.line, p.params, err}
}

// piece is a part of a string: a literal, or an expression if program is not nil.
type piece struct {
	literal string
	program *program
}

// noteIdent records what an expression reads, for one of its identifiers.
func (p *program) noteIdent(ident ast.NavigableExpr, declared []v1alpha1.Param, loops []*loop) {
	for _, l := range loops {
		if l.name == ident.AsIdent() {
			p.free |= 1 << l.depth
			p.ofPod = p.ofPod || l.list.ofPod
			return
		}
	}
	switch ident.AsIdent() {
	case "pod":
		p.ofPod = true
	case "params":
		field := fieldRead(ident)
		p.pure = p.pure && field != ""
		for i := range declared {
			if field != "" && declared[i].Name != field {
				continue // without a field, it may read any of them
			}
			p.params = append(p.params, declared[i].Name)
			if p.given |= 1 << i; i >= params.MaxIndexes {
				p.pure = false
			}
		}
		return
	case "variables":
		return // what they read is recorded
	}
	p.pure = false
}

// compilePart returns a program for a part of the expression.
func (p *program) compilePart(e ast.Expr) (cel.Program, error) {
	checked := ast.NewCheckedAST(ast.NewAST(e, p.checked.SourceInfo()), p.checked.TypeMap(), p.checked.ReferenceMap())
	language, err := theLanguage()
	if err != nil {
		return nil, err
	}
	return p.env.PlanProgram(checked, language.limitOptions(checked)...)
}
