// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

var (
	errNoKey   = regexp.MustCompile(`(?:^|: )no such key: (.*)$`)
	errNoIndex = regexp.MustCompile(`(?:^|: )index out of bounds: (-?\d+)$`)
)

const adviceForPods = "for pods without it, write "

// MissingValueHint returns the end of an error of an evaluation, if the expression read a field, a key or an item that the pod
// lacks: an expression that does not fail. It returns "" for other errors. Omittable reports that the expression may have no value.
func MissingValueHint(err error, checked *ast.AST, omittable bool) string {
	message := err.Error()
	key, index := errNoKey.FindStringSubmatch(message), errNoIndex.FindStringSubmatch(message)
	if key == nil && index == nil || strings.Contains(message, adviceForPods) {
		return ""
	}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.AllMatcher()) {
		if isOptionalRead(e) {
			continue // it does not fail
		}
		step, of := optionalStep(e, checked)
		if step == "" {
			continue
		}
		if isItem(e, checked) && index != nil && readsItem(e, index[1]) || !isItem(e, checked) && key != nil && readsKey(e, key[1], checked) {
			return "; " + adviceForPods + optionalChain(e, checked, omittable, of+step)
		}
	}
	return ""
}

// optionalChain returns an expression that reads the same as the parents of e, given what replaces e.
func optionalChain(e ast.NavigableExpr, checked *ast.AST, leaf bool, text string) string {
	for {
		parent, ok := e.Parent()
		if !ok {
			break
		}
		if isHas(parent) {
			return text + ".?" + parent.AsSelect().FieldName() + ".hasValue()"
		}
		step, _ := optionalStep(parent, checked)
		if target := operandOf(parent); step == "" || target.ID() != e.ID() {
			break
		}
		e, text = parent, text+step
	}
	parent, inside := e.Parent()
	if !inside && leaf {
		return text
	}
	if inside && parent.Kind() == ast.CallKind && parent.AsCall().FunctionName() == "orValue" && parent.AsCall().Target().ID() == e.ID() {
		if value, err := Unparse(parent.AsCall().Args()[0], checked.SourceInfo()); err == nil {
			return text + ".orValue(" + strings.ReplaceAll(value, `"`, "'") + ")"
		}
	}
	return text + OrZeroValue(checked.GetType(e.ID()))
}

// isHas reports whether an expression is has(...).
func isHas(e ast.Expr) bool { return e.Kind() == ast.SelectKind && e.AsSelect().IsTestOnly() }

// OrZeroValue returns .orValue() with an empty value of a type, or "" if there is no such value.
func OrZeroValue(t *cel.Type) string {
	name, _, _ := strings.Cut(t.String(), "(")
	return orZeroValueNamed(name)
}

// orZeroValueNamed returns .orValue() with a value of a type, given CEL's name without parameters.
func orZeroValueNamed(name string) string {
	value := map[string]string{"bool": "false", "int": "0", "double": "0.0", "string": "''", "list": "[]", "map": "{}", "dyn": "''"}[name]
	if value == "" {
		return ""
	}
	return ".orValue(" + value + ")"
}

// operandOf returns x in x.field, x.?field, x[key], x[?key] and x[0], or nil.
func operandOf(e ast.Expr) ast.Expr {
	switch e.Kind() {
	case ast.SelectKind:
		if s := e.AsSelect(); !s.IsTestOnly() {
			return s.Operand()
		}
	case ast.CallKind:
		if call := e.AsCall(); call.FunctionName() == operators.Index || isOptionalRead(e) {
			return call.Args()[0]
		}
	}
	return nil
}

// isOptionalRead reports whether an expression is x.?field or x[?key].
func isOptionalRead(e ast.Expr) bool {
	return e.Kind() == ast.CallKind && (e.AsCall().FunctionName() == operators.OptSelect || e.AsCall().FunctionName() == operators.OptIndex)
}

// optionalStep returns .?field, [?key] or [?0], and the expression before it, in which the objects of the pod that may be missing are
// optional too. It returns "" for expressions that read no field, key or item.
func optionalStep(e ast.Expr, checked *ast.AST) (step, of string) {
	target := operandOf(e)
	if target == nil {
		return "", ""
	}
	of, err := optionalOperand(target, checked)
	if err != nil {
		return "", ""
	}
	if e.Kind() == ast.SelectKind {
		return ".?" + e.AsSelect().FieldName(), of
	}
	if field, ok := e.AsCall().Args()[1].AsLiteral().(types.String); ok && e.AsCall().FunctionName() == operators.OptSelect {
		return ".?" + string(field), of
	}
	key := e.AsCall().Args()[1]
	text, err := Unparse(key, checked.SourceInfo())
	if err != nil {
		return "", ""
	}
	if literal, ok := key.AsLiteral().(types.String); ok && !strings.ContainsAny(string(literal), `'\"`) {
		text = "'" + string(literal) + "'" // quotes that need no escapes in YAML
	}
	return "[?" + text + "]", of
}

// optionalOperand returns an expression with .? before the fields that are objects of the pod, because pods may lack them.
func optionalOperand(e ast.Expr, checked *ast.AST) (string, error) {
	if e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() && mayLackObject(checked.GetType(e.ID())) && !strings.HasPrefix(checked.GetType(e.AsSelect().Operand().ID()).TypeName(), "pillion.") {
		of, err := optionalOperand(e.AsSelect().Operand(), checked)
		return of + ".?" + e.AsSelect().FieldName(), err
	}
	return Unparse(e, checked.SourceInfo())
}

// mayLackObject reports whether pods may lack an object of that type.
func mayLackObject(t *cel.Type) bool {
	return t.Kind() == types.StructKind && t.TypeName() != "ObjectMeta" && t.TypeName() != "PodSpec"
}

// isItem reports whether an expression reads an item of a list.
func isItem(e ast.Expr, checked *ast.AST) bool {
	return e.Kind() == ast.CallKind && checked.GetType(operandOf(e).ID()).Kind() == types.ListKind
}

// readsKey reports whether an expression may read a key.
func readsKey(e ast.Expr, key string, checked *ast.AST) bool {
	if e.Kind() == ast.SelectKind {
		return e.AsSelect().FieldName() == key
	}
	index := e.AsCall().Args()[1]
	literal, ok := index.AsLiteral().(types.String)
	return ok && string(literal) == key || !ok && checked.GetType(index.ID()).Kind() != types.IntKind
}

// readsItem reports whether an expression, which reads an item of a list, may read the item with that
// index.
func readsItem(e ast.Expr, index string) bool {
	literal, ok := e.AsCall().Args()[1].AsLiteral().(types.Int)
	return !ok || fmt.Sprint(int64(literal)) == index
}
