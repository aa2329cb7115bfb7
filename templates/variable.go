// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"

	"github.com/google/cel-go/common/types/ref"
)

// Variable is a compiled variable of a template. It is evaluated when an expression reads it for the first time.
type Variable struct {
	name    string
	index   int
	program *Expression
	used    bool
}

// evalOnce returns the value for a pod.
func (v *Variable) evalOnce(in *Input) (ref.Val, error) {
	for len(in.variables) <= v.index {
		in.variables = append(in.variables, evaluated{})
	}
	if r := &in.variables[v.index]; r.done {
		return r.value, r.err
	}
	locals := in.locals // of the macros around it
	value, err := v.program.evalValue(in)
	if err != nil {
		err = fmt.Errorf("variables.%s: %w", v.name, err)
	}
	in.locals = locals
	in.variables[v.index] = evaluated{value, err, true}
	return value, err
}

// Name returns the name of the variable.
func (v *Variable) Name() string { return v.name }

// Expression returns the expression that computes the variable.
func (v *Variable) Expression() *Expression { return v.program }

// IsUsed reports whether an expression reads the variable.
func (v *Variable) IsUsed() bool { return v.used }
