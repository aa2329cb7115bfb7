// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"errors"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// nestingLevels returns the number of levels of nested lists and maps in the type. CEL's cost model
// charges nothing for comparing nested values. The real cost doubles with each level if a list
// contains the same value twice.
func nestingLevels(t *types.Type) (levels int) {
	for _, of := range t.Parameters() {
		levels = max(levels, nestingLevels(of))
	}
	if t.Kind() == types.ListKind || t.Kind() == types.MapKind {
		levels++
	}
	return levels
}

// checkHiddenNesting returns an error if an expression makes a value of unknown type from a list: the type then
// no longer shows how deep the list is. This happens if the arguments of a function must have a
// common type, and one of them is dyn. Literals with values of different types are checked in
// [sameTypes].
func checkHiddenNesting(checked *ast.AST, e ast.Expr) error {
	if e.Kind() != ast.CallKind {
		return nil
	}
	call, parts := e.AsCall(), []ast.Expr(nil)
	switch call.FunctionName() {
	case "dyn", operators.Conditional, operators.Add:
		parts = call.Args()
	case "or", "orValue":
		parts = append([]ast.Expr{call.Target()}, call.Args()...)
	}
	result := checked.GetType(e.ID())
	if !isListOfDyn(result) {
		return nil
	}
	for _, part := range parts {
		if !isEmpty(part) && nestingLevels(checked.GetType(part.ID())) > nestingLevels(result) {
			if call.FunctionName() == "dyn" {
				return errors.New("dyn() of a list or a map hides how deep it is; leave out dyn(): json.marshal() and computed objects take values of different types")
			}
			return errors.New("a value that may be a list or something else hides how deep the list is; use the list itself")
		}
	}
	return nil
}

// isListOfDyn reports whether the type is dyn, or a list of it at any depth.
func isListOfDyn(t *types.Type) bool {
	return t.Kind() == types.DynKind || (t.Kind() == types.ListKind || t.Kind() == types.OpaqueKind) && slices.ContainsFunc(t.Parameters(), isListOfDyn)
}

// isEmpty reports whether an expression is [] or {}.
func isEmpty(e ast.Expr) bool {
	return e.Kind() == ast.ListKind && e.AsList().Size() == 0 || e.Kind() == ast.MapKind && e.AsMap().Size() == 0
}
