// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A string that is one ${...} may compute an object of the API, a list of them or a map. Its type is
// checked here, as far as this is possible without a pod. A form checks the value.

// wholeLeaf checks the type of a leaf that is a single expression.
func (c *checker) wholeLeaf(y *yaml.Node, p *part, t reflect.Type) {
	program := p.pieces[0].program
	out, optional := valueType(program.out)
	p.maybe = optional
	if p.text {
		out = cel.StringType
	}
	if isScalars(t) {
		p.rules = rulesFor(t, p.field, p.path)
		if !takes(t, out) {
			hint := ""
			if !optional {
				hint = toType(t, out, program.source)
			}
			c.problem(y, p.path, "must be %s, but ${%s} gives %s%s", describe(t), program.source, celName(out), hint)
		}
		return
	}
	if why := notWhole(t, p.field); why != "" {
		c.problem(y, p.path, "%s", why)
		return
	}
	err := errors.New("")
	written := program.written()
	if e := written.Expr(); !optional && (e.Kind() == ast.MapKind || e.Kind() == ast.ListKind) {
		err = fitsExpr(t, written, e)
	} else if out.Kind() != types.DynKind && fitsType(t, out) && (!isStruct(t) || !isMapField(written, written.Expr())) {
		err = nil
	}
	switch {
	case err == nil:
		p.form = newForm(t, p.field, p.path, c.os, copies(out))
	case err.Error() == "":
		c.problem(y, p.path, "must be %s, but ${%s} gives %s", describeWhole(t), program.source, celName(out))
	default:
		c.problem(y, p.path, "${%s}: %v", program.source, err)
	}
}

// written returns the expression, or that of the variable that it consists of.
func (p *program) written() *ast.AST {
	if of, name := selected(p.checked.Expr()); of == "variables" {
		for _, v := range p.variables {
			if v.name == name {
				return v.program.written()
			}
		}
	}
	return p.checked
}

func isStruct(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() == reflect.Struct
}

// isMapField reports whether an expression is a map of an object of the API, such as resources.limits. Its keys
// are not the fields of any object.
func isMapField(checked *ast.AST, e ast.Expr) bool {
	var of ast.Expr
	switch {
	case e.Kind() == ast.SelectKind:
		of = e.AsSelect().Operand()
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.OptSelect:
		of = e.AsCall().Args()[0]
	default:
		return false
	}
	owner, _ := valueType(checked.GetType(of.ID()))
	field, _ := valueType(checked.GetType(e.ID()))
	return field.Kind() == types.MapKind && owner.Kind() == types.StructKind && !slices.Contains([]string{variablesType, paramsType}, owner.TypeName())
}

// isScalars reports whether the type is one of scalars, or of lists of them.
func isScalars(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if _, ok := scalarTypeOf(t); ok {
		return true
	}
	return t.Kind() == reflect.Slice && isScalars(t.Elem())
}

// notWhole returns why a field must be written out, or "".
func notWhole(t reflect.Type, field string) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.Volume]():
		return `the names of containers and volumes identify them, so they cannot be computed as a whole; write the items out, with "${when}" or "${forEach}", and compute their fields`
	case reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[corev1.PodSecurityContext]():
		return "a template may set only some of its fields, so it cannot be computed as a whole; write its fields out"
	}
	if field == "ObjectMeta.labels" || field == "ObjectMeta.annotations" {
		return "its keys are checked when the template is loaded, so it cannot be computed as a whole; write the keys out"
	}
	return ""
}

func describeWhole(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice:
		return "a list of objects of type " + t.Elem().Name()
	case reflect.Map:
		return "a map of strings"
	}
	return "an object of type " + t.Name()
}

// fitsType reports whether a value of type out may be one of the Go type t. The keys of a map are
// known only at run time.
func fitsType(t reflect.Type, out *cel.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch kind := out.Kind(); {
	case kind == types.DynKind:
		return true
	case isScalars(t):
		return takes(t, out)
	case t.Kind() == reflect.Slice:
		return kind == types.ListKind && fitsType(t.Elem(), out.Parameters()[0])
	case kind == types.StructKind:
		return t.Kind() == reflect.Struct && out.TypeName() == t.Name()
	case kind != types.MapKind || out.Parameters()[0].Kind() != types.StringKind:
		return false
	case t.Kind() == reflect.Map:
		return fitsType(t.Elem(), out.Parameters()[1])
	}
	return t.Kind() == reflect.Struct
}

// fitsExpr is fitsType for the literals of maps and lists. It returns the first error.
func fitsExpr(t reflect.Type, checked *ast.AST, e ast.Expr) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	out := checked.GetType(e.ID())
	switch {
	case e.Kind() == ast.ListKind && t.Kind() == reflect.Slice:
		for _, item := range e.AsList().Elements() {
			if err := fitsExpr(t.Elem(), checked, item); err != nil {
				return err
			}
		}
		return nil
	case e.Kind() == ast.MapKind && t.Kind() == reflect.Struct && !isScalars(t):
		return fitsMap(t, checked, e.AsMap())
	}
	if value, optional := valueType(out); optional {
		out = value // of ?key: or [?item]
	}
	if !fitsType(t, out) {
		return fmt.Errorf("must be %s, not %s", describeWhole(t), celName(out))
	}
	return nil
}

func fitsMap(t reflect.Type, checked *ast.AST, m ast.MapExpr) error {
	for _, entry := range m.Entries() {
		key, ok := entry.AsMapEntry().Key().AsLiteral().(types.String)
		if !ok {
			continue // known only at run time
		}
		names, field := fieldOf(t, string(key))
		if field == nil {
			return fmt.Errorf("unknown key %q%s", string(key), DidYouMean(string(key), names))
		}
		value, out := entry.AsMapEntry().Value(), checked.GetType(entry.AsMapEntry().Value().ID())
		if inner, optional := valueType(out); isScalars(field) && (optional && !entry.AsMapEntry().IsOptional() || !fitsType(field, inner)) {
			return fmt.Errorf("%s: must be %s, not %s", string(key), describe(field), celName(out))
		} else if isScalars(field) {
			continue
		}
		if err := fitsExpr(field, checked, value); err != nil {
			return fmt.Errorf("%s: %w", string(key), err)
		}
	}
	return nil
}

// copies reports whether a value of that type comes from the pod unchanged.
func copies(out *cel.Type) bool {
	return out.Kind() == types.StructKind || slices.ContainsFunc(out.Parameters(), copies)
}
