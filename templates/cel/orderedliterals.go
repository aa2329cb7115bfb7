// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// orderedMaps returns an option that gives an order to the maps that an expression makes by literals and by macros, or nil if
// it makes none.
func orderedMaps(checked *ast.AST) []cel.ProgramOption {
	if len(ast.MatchDescendants(ast.NavigateAST(checked), ast.KindMatcher(ast.MapKind))) == 0 {
		return nil // a macro that makes a map begins with {}
	}
	macros := map[int64]bool{}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.KindMatcher(ast.ComprehensionKind)) {
		macros[e.ID()] = checked.GetType(e.ID()).Kind() == types.MapKind
	}
	return []cel.ProgramOption{cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		v, ok := i.(interpreter.InterpretableConstructor)
		_, reads := i.(interpreter.InterpretableAttribute) // it has the ID of what it reads
		switch {
		case !ok && !reads && macros[i.ID()]:
			return madeMap{i}, nil
		case !ok || v.Type() != types.MapType:
			return i, nil
		case slices.ContainsFunc(v.InitVals(), func(part interpreter.InterpretableV2) bool {
			_, ok := part.(interpreter.InterpretableConst)
			return !ok
		}):
			return madeMap{v}, nil
		}
		return interpreter.NewConstValue(i.ID(), values.WithOrder(v.Eval(interpreter.EmptyActivation()))), nil
	})}
}

// madeMap makes a map.
type madeMap struct {
	interpreter.InterpretableV2
}

// Exec implements interpreter.InterpretableV2.
func (m madeMap) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	return values.WithOrder(m.InterpretableV2.Exec(frame))
}

// Eval implements interpreter.Interpretable.
func (m madeMap) Eval(vars interpreter.Activation) ref.Val {
	return values.WithOrder(m.InterpretableV2.Eval(vars))
}
