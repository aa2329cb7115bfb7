// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"slices"

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

// parseAndCheck parses and checks an expression. The issues say what is wrong with it. The nodes with the IDs of chained are values that
// [separateOptionals] takes out of the chains that they are in.
func parseAndCheck(env *cel.Env, source string, chained []int64) (*cel.Ast, *cel.Issues, error) {
	expression, issues := env.Parse(source)
	if issues.Err() == nil {
		if err := unescapeLiterals(expression.NativeRep()); err != nil {
			return nil, nil, err
		}
		separateOptionals(expression.NativeRep(), chained)
		expression, issues = env.Check(expression)
	}
	return expression, issues, nil
}

// chainedOptionals returns the IDs of the optional values in a chain of fields and indexes whose fields or items are read: variables.a
// in variables.a.?b, and list[0] in list[0].?b. The interpreter of CEL reads a field of an optional value only at the
// beginning of a chain. Within a chain, it answers that there is no such field. It also returns the IDs of x[?i] for a value x of
// unknown type: the checker of CEL does not know that it is optional, or takes what follows for its type.
func chainedOptionals(checked *ast.AST) (ids []int64) {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		if isOptionalIndex(e) {
			if of, _ := ValueType(checked.GetType(e.AsCall().Args()[0].ID())); of.Kind() == types.DynKind {
				ids = append(ids, e.ID())
			}
		}
		if operand := readOperand(e); operand != nil && isPlainRead(operand) {
			if _, optional := ValueType(checked.GetType(operand.ID())); optional {
				ids = append(ids, operand.ID())
			}
		}
	}
	return ids
}

// isOptionalIndex reports whether an expression is x[?i].
func isOptionalIndex(e ast.Expr) bool {
	return e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.OptIndex
}

// readOperand returns x for x.f, x.?f, has(x.f), x[i] and x[?i], or nil.
func readOperand(e ast.Expr) ast.Expr {
	switch {
	case e.Kind() == ast.SelectKind:
		return e.AsSelect().Operand()
	case e.Kind() == ast.CallKind && slices.Contains([]string{operators.Index, operators.OptIndex, operators.OptSelect}, e.AsCall().FunctionName()):
		return e.AsCall().Args()[0]
	}
	return nil
}

// isPlainRead reports whether an expression is x.f or x[i].
func isPlainRead(e ast.Expr) bool {
	return e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() || e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index
}

// separateOptionals writes x.or(optional.none()) for the nodes x with these IDs. It is the same value, and the chain begins with it. For
// x[?i], it writes .or(optional.ofNonZeroValue(dyn(""))), which has no value either, but makes it an optional value of unknown type.
func separateOptionals(parsed *ast.AST, ids []int64) {
	if len(ids) == 0 {
		return
	}
	f, next := ast.NewExprFactory(), ast.MaxID(parsed)
	for _, e := range ast.MatchDescendants(ast.NavigateAST(parsed), ast.AllMatcher()) {
		if !slices.Contains(ids, e.ID()) {
			continue
		}
		at, _ := parsed.SourceInfo().GetOffsetRange(e.ID())
		newID := func() int64 {
			next++
			parsed.SourceInfo().SetOffsetRange(next, at)
			return next
		}
		nothing := f.NewMemberCall(newID(), "none", f.NewIdent(newID(), "optional"))
		if isOptionalIndex(e) {
			unknown := f.NewCall(newID(), "dyn", f.NewLiteral(newID(), types.String("")))
			nothing = f.NewMemberCall(newID(), "ofNonZeroValue", f.NewIdent(newID(), "optional"), unknown)
		}
		e.SetKindCase(f.NewMemberCall(e.ID(), "or", copyRead(f, newID(), e), nothing))
	}
}

// copyRead returns x.f, x[i] or x[?i] with another ID.
func copyRead(f ast.ExprFactory, id int64, e ast.Expr) ast.Expr {
	if e.Kind() == ast.SelectKind {
		return f.NewSelect(id, e.AsSelect().Operand(), e.AsSelect().FieldName())
	}
	return f.NewCall(id, e.AsCall().FunctionName(), e.AsCall().Args()...)
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
