// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"fmt"
	"reflect"
	"slices"

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
// checked here, as far as CEL knows it, and the keys of literals. A schemaCheck checks the value of each pod.

// wholeLeaf checks the type of a leaf that is a single expression.
func (c *Checker) wholeLeaf(y *yaml.Node, p *Node, t reflect.Type) {
	program := p.pieces[0].Expression
	out, optional := cel.ValueType(program.Type())
	p.maybe = optional
	if p.text {
		out = types.StringType
	}
	if isScalars(t) {
		if p.rules = validation.ValueRules(t, p.field, p.path); p.spread {
			p.rules = validation.ItemRules(t, p.field, p.path)
		}
		if !p.text && program.ReadsUnknown() {
			p.schema = c.schemaOf(p, t, false)
		}
		if !values.AcceptsType(t, out) {
			hint := diagnostics.TypeHint(t, out, program.Source())
			if optional {
				hint = diagnostics.OptionalTypeHint(t, out, program.Source())
			}
			c.ReportProblem(y, p.path, "must be %s, but ${%s} gives %s%s", values.DescribeType(t), program.Source(), diagnostics.TypeName(out), hint)
		}
		return
	}
	if why := notWhole(t, p.field); why != "" {
		c.ReportProblem(y, p.path, "%s", why)
		return
	}
	if !mayBecome(t, out) {
		c.ReportProblem(y, p.path, "must be %s, but ${%s} gives %s%s", describeWhole(t), program.Source(), diagnostics.TypeName(out), variablesHint(t, out, program.Source()))
		return
	}
	if err := checkLiterals(program, program.AST().Expr(), t); err != nil {
		c.ReportProblem(y, p.path, "${%s}: %v", program.Source(), err)
		return
	}
	p.schema = c.schemaOf(p, t, isFromPod(out))
}

// variablesHint returns how environment variables are made from a map, or "".
func variablesHint(t reflect.Type, out *types.Type, source string) string {
	if t != reflect.TypeFor[[]corev1.EnvVar]() || out.Kind() != types.MapKind {
		return ""
	}
	return fmt.Sprintf("; write ${%s.transformList(k, v, {'name': k, 'value': v})}", diagnostics.Operand(source))
}

// schemaOf returns the check of a leaf's values.
func (c *Checker) schemaOf(p *Node, t reflect.Type, copied bool) *schemaCheck {
	check := newSchemaCheck(t, p.field, p.path, c.os, copied)
	if p.spread {
		check = check.ofItems() // the list around it has the rules for the whole
	}
	return check
}

// notWhole returns why a field must be written out, or "".
func notWhole(t reflect.Type, field string) string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[corev1.Container]():
		return `the names of containers identify them, so they cannot be computed as a whole; write the items out, with "${when}" or "${forEach}", and compute their fields`
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
