// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/library"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// An optional parameter may have no value. Expressions read it as params.?x, which has an optional
// type, so that none of them fails for a pod that does not set it.

// plainRead returns an error if params.x reads an optional parameter x.
func plainRead(params []v1alpha1.Param, ident ast.NavigableExpr) error {
	parent, ok := ident.Parent()
	if !ok || parent.Kind() != ast.SelectKind || parent.AsSelect().IsTestOnly() || ident.Type().TypeName() != values.ParamsType {
		return nil
	}
	name := parent.AsSelect().FieldName()
	for i := range params {
		if params[i].Name == name && params[i].Optional {
			return fmt.Errorf("the parameter %s is optional; write params.?%[1]s for a value that may be missing, or params.?%[1]s%s", name, otherwiseOf(&params[i]))
		}
	}
	return nil
}

// otherwiseOf returns .orValue() with a value of the parameter's type.
func otherwiseOf(p *v1alpha1.Param) string {
	if params.IsJSON(p) {
		return ".orValue({})"
	}
	return diagnostics.OrZeroValue(params.CELType(p))
}

// ValueType returns T for the type optional(T), and true. It returns other types and false.
func ValueType(out *cel.Type) (t *cel.Type, optional bool) {
	if out.Kind() == types.OpaqueKind && out.TypeName() == cel.OptionalType(cel.DynType).TypeName() && len(out.Parameters()) == 1 {
		return out.Parameters()[0], true
	}
	return out, false
}

// isWhen reports whether a call was written as when(condition, value).
func isWhen(checked *ast.AST, e ast.Expr) bool {
	macro, ok := checked.SourceInfo().GetMacroCall(e.ID())
	return ok && macro.AsCall().FunctionName() == library.When
}

func isTwiceOptional(t *cel.Type) bool {
	value, once := ValueType(t)
	_, twice := ValueType(value)
	return once && twice
}

// fieldRead returns the field in x.field, x.?field and has(x.field), or "".
func fieldRead(x ast.NavigableExpr) string {
	parent, ok := x.Parent()
	switch {
	case ok && parent.Kind() == ast.SelectKind:
		return parent.AsSelect().FieldName()
	case ok && parent.Kind() == ast.CallKind && parent.AsCall().FunctionName() == operators.OptSelect && parent.AsCall().Args()[0].ID() == x.ID():
		field, _ := parent.AsCall().Args()[1].AsLiteral().(types.String)
		return string(field)
	}
	return ""
}
