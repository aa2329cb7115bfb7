// SPDX-License-Identifier: Apache-2.0

package library

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// When is the name of the macro for a value that is there only under a condition.
const When = "when"

// whenMacro declares when(condition, value): an optional value, which is missing if the condition is false. It is a macro, so that
// value is evaluated only if the condition is true.
func whenMacro() cel.EnvOption {
	return cel.Macros(cel.GlobalMacro(When, 2, func(f cel.MacroExprFactory, _ ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
		return f.NewCall(operators.Conditional, args[0], f.NewCall("optional.of", args[1]), f.NewCall("optional.none")), nil
	}))
}
