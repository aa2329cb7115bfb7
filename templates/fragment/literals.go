// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// checkLiterals finds mistakes in the literals of which an expression makes a value of a Go type: unknown keys, and values of another
// type. It does not follow every function, because the values are checked again for each pod.
func checkLiterals(program *cel.Expression, e ast.Expr, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if macro, ok := program.AST().SourceInfo().GetMacroCall(e.ID()); ok {
		call := macro.AsCall()
		if call.FunctionName() == operators.Map && t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if call.FunctionName() == operators.Has {
			return nil
		}
		return checkLiterals(program, call.Args()[len(call.Args())-1], t)
	}
	switch e.Kind() {
	case ast.SelectKind:
		if v := program.Variable(e); v != nil {
			return checkLiterals(v, v.AST().Expr(), t)
		}
	case ast.ListKind:
		if t.Kind() == reflect.Slice {
			return checkEach(program, e.AsList().Elements(), t.Elem())
		}
	case ast.MapKind:
		return checkEntries(program, e.AsMap(), t)
	case ast.CallKind:
		call := e.AsCall()
		switch call.FunctionName() {
		case operators.Conditional:
			return checkEach(program, call.Args()[1:], t)
		case operators.Add, "optional.of", "optional.ofNonZeroValue":
			return checkEach(program, call.Args(), t)
		case "orValue", "or", "value":
			return checkEach(program, append([]ast.Expr{call.Target()}, call.Args()...), t)
		}
	}
	return nil
}

// suggestConversion returns the end of a message about a part of an expression that is none of the Go type t: how to convert it, or "".
func suggestConversion(program *cel.Expression, part ast.Expr, t reflect.Type) string {
	source, err := diagnostics.Suggest(part, program.AST().SourceInfo())
	if err != nil {
		return ""
	}
	hint := diagnostics.TypeHint(t, program.AST().GetType(part.ID()), source)
	if before, inner, ok := strings.Cut(hint, "write ${"); ok {
		return before + "write " + strings.TrimSuffix(inner, "}") // the part is within ${...} already
	}
	return hint
}

func checkEach(program *cel.Expression, all []ast.Expr, t reflect.Type) error {
	for _, e := range all {
		if err := checkLiterals(program, e, t); err != nil {
			return err
		}
	}
	return nil
}

// checkEntries checks the entries of a map literal with constant keys.
func checkEntries(program *cel.Expression, m ast.MapExpr, t reflect.Type) error {
	for _, entry := range m.Entries() {
		e := entry.AsMapEntry()
		key, constant := cel.StringLiteral(e.Key())
		var field reflect.Type
		switch {
		case t.Kind() == reflect.Map:
			field = t.Elem()
		case t.Kind() != reflect.Struct || !constant:
			continue
		default:
			var names []string
			if names, field = jsontree.FieldTypeOf(t, key); field == nil {
				return fmt.Errorf("unknown key %q%s", key, problem.DidYouMean(key, names))
			}
		}
		if out := program.AST().GetType(e.Value().ID()); !e.IsOptional() && out.Kind() != types.DynKind && !mayBecome(field, out) {
			return fmt.Errorf("%s: must be %s, not %s%s", key, describeType(field), diagnostics.TypeName(out), suggestConversion(program, e.Value(), field))
		}
		if err := checkLiterals(program, e.Value(), field); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}
