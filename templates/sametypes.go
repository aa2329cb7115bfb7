// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// sameTypes checks that the items of a list literal, and the values of a map literal, have the same
// type. Otherwise CEL does not know their type, and nothing could be checked. The maps in an argument of
// json.marshal may have values of different types. If whole is true, the expression computes an object,
// and all its maps may. Such a map can only be part of the result or of the JSON: comparing values
// whose nesting is unknown has no bound, see [nesting].
func sameTypes(env *cel.Env, checked *cel.Ast, whole bool) error {
	native := checked.NativeRep()
	validate := func(exempt ...string) *cel.Issues {
		issues := cel.NewIssuesWithSourceInfo(common.NewErrors(checked.Source()), native.SourceInfo())
		cel.ValidateHomogeneousAggregateLiterals().Validate(env, sameTypesConfig(exempt), native, issues)
		return issues
	}
	issues := validate("format")
	if issues.Err() == nil || (whole || validate("format", marshalFunction).Err() == nil) && onlyResults(native) {
		return nil
	}
	first := issues.Errors()[0]
	text, hint := unusual(first.Message)
	return fmt.Errorf("CEL: %s (%s)%s", text, located(checked.Source().Content(), first.Location), hint)
}

// sameTypesConfig contains the functions whose arguments are not checked.
type sameTypesConfig []string

// GetOrDefault implements cel.ValidatorConfig.
func (c sameTypesConfig) GetOrDefault(name string, value any) any {
	if name == cel.HomogeneousAggregateLiteralExemptFunctions {
		return []string(c)
	}
	return value
}

// onlyResults reports whether all literals with values of different types are maps, and no function
// but json.marshal reads them.
func onlyResults(checked *ast.AST) bool {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		switch e.Kind() {
		case ast.ListKind:
			notMap := func(item ast.Expr) bool { return item.Kind() != ast.MapKind }
			if mixed(checked.GetType(e.ID())) && slices.ContainsFunc(e.AsList().Elements(), notMap) {
				return false
			}
		case ast.SelectKind:
			if mixed(checked.GetType(e.AsSelect().Operand().ID())) {
				return false
			}
		case ast.CallKind:
			call := e.AsCall()
			if slices.Contains([]string{operators.Conditional, operators.Add, "optional.of", "optional.ofNonZeroValue", marshalFunction}, call.FunctionName()) {
				continue
			}
			args := call.Args()
			if call.IsMemberFunction() {
				args = append(slices.Clone(args), call.Target())
			}
			if slices.ContainsFunc(args, func(arg ast.Expr) bool { return mixed(checked.GetType(arg.ID())) }) {
				return false
			}
		}
	}
	return true
}

// mixed reports whether the type contains a map or a list with values of unknown types.
func mixed(t *types.Type) bool {
	params := t.Parameters()
	return (t.Kind() == types.MapKind || t.Kind() == types.ListKind) && params[len(params)-1].Kind() == types.DynKind || slices.ContainsFunc(params, mixed)
}
