// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/tree"
)

// An optional parameter may have no value. Expressions read it as params.?x, which has an optional
// type, so that none of them fails for a pod that does not set it.

// plainRead returns an error if params.x reads an optional parameter x.
func plainRead(params []Param, ident ast.NavigableExpr) error {
	parent, ok := ident.Parent()
	if !ok || parent.Kind() != ast.SelectKind || parent.AsSelect().IsTestOnly() || ident.Type().TypeName() != paramsType {
		return nil
	}
	name := parent.AsSelect().FieldName()
	for i := range params {
		if params[i].Name == name && params[i].Optional {
			return fmt.Errorf("the parameter %s is optional; write params.?%[1]s for a value that may be missing, or params.?%[1]s.orValue(...)", name)
		}
	}
	return nil
}

// valueType returns T for the type optional(T), and true. It returns other types and false.
func valueType(out *cel.Type) (t *cel.Type, optional bool) {
	if out.Kind() == types.OpaqueKind && out.TypeName() == cel.OptionalType(cel.DynType).TypeName() && len(out.Parameters()) == 1 {
		return out.Parameters()[0], true
	}
	return out, false
}

// conditionOf returns the field for the condition of a whole fragment, or "" for other objects.
func conditionOf(path string) string {
	switch {
	case path == "spec.pod" || path == "spec.pod.spec":
		return "spec.match.condition"
	case strings.HasPrefix(path, "spec.forEachContainer[") && strings.HasSuffix(path, "].add"):
		return "where"
	}
	return ""
}

// certain reports fields that the API requires and that are left out for some pods.
func (c *checker) certain(y *yaml.Node, o *part, t reflect.Type, field, path string) {
	s := shapeOf(t, field)
	some := false // whether one of s.some is always there
	for i, p := range o.parts {
		some = some || slices.Contains(s.some, o.names[i]) && !p.mayLack()
	}
	for i, p := range o.parts {
		name := o.names[i]
		at, sub := child(y, name), join(path, name)
		switch {
		case !p.mayLack():
		case needed(t, s, name):
			c.problem(at, sub, "is required, so it must have a value for every pod; leave out the whole object instead")
		case slices.Contains(s.one, name), slices.Contains(s.some, name) && !some:
			c.problem(at, sub, "one of %s is required, so it must have a value for every pod; leave out the whole object instead", strings.Join(slices.Concat(s.one, s.some), ", "))
		case t == reflect.TypeFor[corev1.Volume]():
			c.problem(at, sub, `without a source, the volume would be an emptyDir; write "${when}" in the volume instead`)
		}
	}
}

// needed reports whether the API requires a field.
func needed(t reflect.Type, s shape, name string) bool {
	if slices.Contains(s.required, name) || t == reflect.TypeFor[corev1.Container]() && name == "image" {
		return true
	}
	f, ok := tree.StructFieldOf(t, name)
	return ok && f.Type.Kind() == reflect.String && !f.OmitEmpty
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
