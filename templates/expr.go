// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// program is a compiled expression.
type program struct {
	source  string
	direct  direct   // evaluates it without CEL, if possible
	params  []string // the parameters that it reads, sorted
	ofPod   bool     // whether its value depends on the pod
	given   paramSet // if pure: the parameters that it reads, and it reads nothing else
	pure    bool
	checked *ast.AST
	env     *cel.Env
	prog    cel.Program
	out     *cel.Type
}

var errGone = errors.New("nobody waits for the result")

func (p *program) eval(in *Input) (ref.Val, error) {
	select {
	case <-in.Done:
		return nil, errGone
	default:
	}
	out, details, err := p.prog.Eval(in)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", p.source, err)
	}
	if cost := details.ActualCost(); cost != nil {
		in.spent += *cost
	}
	if in.spent > totalLimit {
		return nil, fmt.Errorf("%q: the template's expressions for this pod cost more than %d", p.source, totalLimit)
	}
	return out, nil
}

func (p *program) evalBool(in *Input) (bool, error) {
	if p.direct.bool != nil {
		if v, ok := p.direct.bool(in); ok {
			return v, nil
		}
	}
	out, err := p.eval(in)
	if err != nil {
		return false, err
	}
	return out == types.True, nil
}

// piece is a part of a string: a literal, or an expression if program is not nil.
type piece struct {
	literal string
	program *program
}
