// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"reflect"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/validation"
)

// A string that is one ${...} may compute an object of the API, a list of them or a map. Its type is
// checked here, as far as this is possible without a pod. A form checks the value.

// wholeLeaf checks the type of a leaf that is a single expression.
func (c *Checker) wholeLeaf(y *yaml.Node, p *Node, t reflect.Type) {
	program := p.pieces[0].Expression
	out, optional := cel.ValueType(program.Type())
	p.maybe = optional
	if p.text {
		out = types.StringType
	}
	made := c.tracer.originOf(program, c.scope)
	if isScalars(t) {
		if p.rules = validation.ValueRules(t, p.field, p.path); p.spread {
			p.rules = validation.ItemRules(t, p.field, p.path)
		}
		if !p.text && !made.isCertain() {
			p.schema = newSchemaCheck(t, p.field, p.path, c.os, false)
		}
		if !values.AcceptsType(t, out) {
			hint := ""
			if !optional {
				hint = diagnostics.TypeHint(t, out, program.Source())
			}
			c.ReportProblem(y, p.path, "must be %s, but ${%s} gives %s%s", values.DescribeType(t), program.Source(), diagnostics.TypeName(out), hint)
		}
		return
	}
	if why := notWhole(t, p.field); why != "" {
		c.ReportProblem(y, p.path, "%s", why)
		return
	}
	if optional {
		made = made.elementOrigin(out)
	}
	f := fitter{seen: map[fitted]bool{}}
	switch err := f.checkFit(t, made); {
	case err == nil && out.Kind() != types.DynKind:
		check := newSchemaCheck(t, p.field, p.path, c.os, isFromPod(out))
		if p.spread {
			check.rules = nil // the list around it has them
		}
		p.schema = check
	case err == nil || f.atTop && !isLiteral(program.Resolve().AST().Expr()):
		c.ReportProblem(y, p.path, "must be %s, but ${%s} gives %s", describeWhole(t), program.Source(), diagnostics.TypeName(out))
	default:
		c.ReportProblem(y, p.path, "${%s}: %v", program.Source(), err)
	}
}

func isLiteral(e ast.Expr) bool { return e.Kind() == ast.MapKind || e.Kind() == ast.ListKind }

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

// isFromPod reports whether a value of that type comes from the pod unchanged.
func isFromPod(out *types.Type) bool {
	return out.Kind() == types.StructKind || slices.ContainsFunc(out.Parameters(), isFromPod)
}
