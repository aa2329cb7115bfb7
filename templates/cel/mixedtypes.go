// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/library"
)

// sameTypes checks that the items of a list literal, and the values of a map literal, have the same
// type. Otherwise CEL does not know their type, and nothing could be checked. Values of different types
// may be an argument of json.marshal, which has a bound for any value. If whole is true, the expression
// computes an object, and its maps may have values of different types, too. No other function reads such
// a value: comparing values whose nesting is unknown has no bound, see [nestingLevels].
// The expression reads a variable with such a value, or variable is "". A map with such values can also come from merging one whose
// values have an unknown type with another one. SameTypes reports whether the result is such a value.
func sameTypes(env *cel.Env, checked *cel.Ast, variable string, whole bool) (isMixed bool, err error) {
	native := checked.NativeRep()
	issues := cel.NewIssuesWithSourceInfo(common.NewErrors(checked.Source()), native.SourceInfo())
	cel.ValidateHomogeneousAggregateLiterals().Validate(env, sameTypesConfig{}, native, issues)
	merges := mergesTypes(native)
	if issues.Err() == nil && variable == "" && !merges {
		return false, nil
	}
	isMixed = hasMixedTypes(checked.OutputType())
	if (whole || !isMixed) && onlyResults(native) {
		return isMixed, nil
	}
	if issues.Err() == nil && variable == "" {
		return false, fmt.Errorf("CEL: %s() makes a map with values of different types, so it must be a whole field or an argument of %s() (in %q)", library.Merge, library.JSONMarshal, checked.Source().Content())
	}
	if issues.Err() == nil {
		return false, fmt.Errorf("CEL: variables.%s has values of different types, so it must be a whole field or an argument of %s(); to read parts of it, write a variable for each part, with values of one type (in %q)", variable, library.JSONMarshal, checked.Source().Content())
	}
	first := issues.Errors()[0]
	text, _ := diagnostics.ExplainMessage(checked.Source().Content(), first.Message)
	if converted := convertedValue(native); converted != "" {
		return false, fmt.Errorf("CEL: %s (%s); all values of a map or a list need one type, so write %s, whose type is not known otherwise",
			text, diagnostics.FormatLocation(checked.Source().Content(), first.Location), converted)
	}
	return false, fmt.Errorf("CEL: %s (%s); all values of a map or a list need one type%s, unless it is an argument of %s() or a whole field that is an object",
		text, diagnostics.FormatLocation(checked.Source().Content(), first.Location), textInstead(native), library.JSONMarshal)
}

// textInstead returns the part of a message that converts a scalar beside strings in a literal, or "".
func textInstead(checked *ast.AST) string {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		var other ast.Expr
		hasText := false
		for _, value := range literalValues(e) {
			switch checked.GetType(value.ID()).Kind() {
			case types.StringKind:
				hasText = true
			case types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind:
				other = value
			}
		}
		if !hasText || other == nil {
			continue
		}
		text, err := diagnostics.Suggest(other, checked.SourceInfo())
		switch {
		case err != nil:
		case other.Kind() == ast.LiteralKind:
			return ", so write '" + text + "'"
		default:
			return ", so write string(" + text + ")"
		}
	}
	return ""
}

// convertedValue returns the first value of unknown type beside values of one scalar type in a literal, converted to this type, or "".
func convertedValue(checked *ast.AST) string {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		var unknown ast.Expr
		known := map[string]bool{}
		for _, value := range literalValues(e) {
			if t := checked.GetType(value.ID()); t.Kind() == types.DynKind && unknown == nil {
				unknown = value
			} else if t.Kind() != types.DynKind {
				known[t.TypeName()] = true
			}
		}
		for name := range known {
			text, err := "", error(nil)
			if unknown != nil {
				text, err = diagnostics.Suggest(unknown, checked.SourceInfo())
			}
			if unknown != nil && err == nil && len(known) == 1 && slices.Contains([]string{"string", "int", "double", "bool"}, name) {
				return name + "(" + text + ")"
			}
		}
	}
	return ""
}

// literalValues returns the items of a list literal or the values of a map literal.
func literalValues(e ast.Expr) (values []ast.Expr) {
	switch e.Kind() {
	case ast.ListKind:
		values = e.AsList().Elements()
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			values = append(values, entry.AsMapEntry().Value())
		}
	}
	return values
}

// mergesTypes reports whether an expression merges maps into one whose type does not show how deep their values are.
func mergesTypes(checked *ast.AST) bool {
	return slices.ContainsFunc(ast.MatchDescendants(ast.NavigateAST(checked), ast.FunctionMatcher(library.Merge)), func(e ast.NavigableExpr) bool {
		levels := nestingLevels(checked.GetType(e.ID()))
		return slices.ContainsFunc(append(slices.Clone(e.AsCall().Args()), e.AsCall().Target()), func(part ast.Expr) bool {
			return !isEmpty(part) && nestingLevels(checked.GetType(part.ID())) > levels
		})
	})
}

type sameTypesConfig struct{}

// GetOrDefault implements cel.ValidatorConfig.
func (sameTypesConfig) GetOrDefault(name string, value any) any {
	if name == cel.HomogeneousAggregateLiteralExemptFunctions {
		return []string{"format"}
	}
	return value
}

// onlyResults reports whether no function other than json.marshal reads values of different types, and
// all literals of them outside its arguments are maps.
func onlyResults(checked *ast.AST) bool {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		switch e.Kind() {
		case ast.ListKind:
			notMap := func(item ast.Expr) bool { return item.Kind() != ast.MapKind }
			if checked.GetType(e.ID()).Parameters()[0].Kind() == types.DynKind && slices.ContainsFunc(e.AsList().Elements(), notMap) && !isMarshaled(e) {
				return false
			}
		case ast.SelectKind:
			if hasMixedTypes(checked.GetType(e.AsSelect().Operand().ID())) {
				return false
			}
		case ast.ComprehensionKind: // a macro with one variable reads only the keys of a map
			if of := checked.GetType(e.AsComprehension().IterRange().ID()); e.AsComprehension().HasIterVar2() && of.Kind() == types.MapKind && hasMixedTypes(of) {
				return false
			}
		case ast.CallKind:
			call := e.AsCall()
			if slices.Contains([]string{operators.Conditional, operators.Add, "optional.of", "optional.ofNonZeroValue", library.MapInsert, library.Merge, library.JSONMarshal}, call.FunctionName()) {
				continue
			}
			args := call.Args()
			if call.IsMemberFunction() {
				args = append(slices.Clone(args), call.Target())
			}
			if slices.ContainsFunc(args, func(arg ast.Expr) bool { return !isEmpty(arg) && hasMixedTypes(checked.GetType(arg.ID())) }) {
				return false
			}
		}
	}
	return true
}

// isMarshaled reports whether a literal is in an argument of json.marshal, and no other function is between
// them.
func isMarshaled(e ast.NavigableExpr) bool {
	for parent, ok := e.Parent(); ok; parent, ok = parent.Parent() {
		switch parent.Kind() {
		case ast.MapKind, ast.ListKind:
		case ast.CallKind:
			return parent.AsCall().FunctionName() == library.JSONMarshal
		default:
			return false
		}
	}
	return false
}

// unsetObject returns what of a type has fields that are not set yet, or "".
func unsetObject(t *types.Type) string {
	switch t.TypeName() {
	case "Pod":
		return "the pod as a whole"
	case "PodSpec":
		return "pod.spec as a whole"
	case "ObjectMeta":
		return "metadata as a whole"
	}
	for _, of := range t.Parameters() {
		if found := unsetObject(of); found != "" {
			return found
		}
	}
	return ""
}

// hidesUnset returns an error for a literal with values of different types that contains an object with such
// fields, because its type does not show that object.
func hidesUnset(checked *ast.AST, e ast.Expr) error {
	for _, v := range literalValues(e) {
		if found := unsetObject(checked.GetType(v.ID())); found != "" && hasMixedTypes(checked.GetType(e.ID())) {
			return fmt.Errorf("%s has fields that are not set yet; read a field of it instead", found)
		}
	}
	return nil
}

// hasMixedTypes reports whether the type contains a map or a list with values of unknown types.
func hasMixedTypes(t *types.Type) bool {
	params := t.Parameters()
	return (t.Kind() == types.MapKind || t.Kind() == types.ListKind) && params[len(params)-1].Kind() == types.DynKind || slices.ContainsFunc(params, hasMixedTypes)
}
