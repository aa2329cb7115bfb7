// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"reflect"
	"strings"

	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// hasExpression reports whether a node is a scalar with expressions, and expressions are allowed.
func (c *Checker) hasExpression(y *yaml.Node) bool {
	return c.scope != nil && y.Kind == yaml.ScalarNode && strings.Contains(y.Value, "${")
}

// compileLeaf compiles a scalar with expressions in a place of type t.
func (c *Checker) compileLeaf(y *yaml.Node, t reflect.Type, field, path string) *Node {
	pieces := c.compilePieces(y, t, path)
	if pieces == nil {
		return nil
	}
	return c.leafOf(y, pieces, t, field, path)
}

// compileItem compiles a scalar with expressions that is an item of a list. If it is a single expression that gives a list, its items
// become items of the list around it.
func (c *Checker) compileItem(y *yaml.Node, t reflect.Type, field, path string) *Node {
	pieces := c.compilePieces(y, t, path)
	if len(pieces) == 1 && pieces[0].Expression != nil {
		out, _ := cel.ValueType(pieces[0].Expression.Type())
		if out.Kind() == types.ListKind && (!isScalars(t) || len(out.Parameters()[0].Parameters()) == 0) { // lists of lists are no lists of strings
			p := &Node{kind: leafPart, pieces: pieces, whole: true, spread: true, path: path, line: y.Line, field: field}
			c.wholeLeaf(y, p, reflect.SliceOf(t))
			return p
		}
	}
	if pieces == nil {
		return nil
	}
	return c.leafOf(y, pieces, t, field, path)
}

// compilePieces compiles the expressions of a scalar in a place of type t. It returns nil if there was a problem.
func (c *Checker) compilePieces(y *yaml.Node, t reflect.Type, path string) []cel.Piece {
	if y.ShortTag() != "!!str" {
		c.ReportProblem(y, path, "an expression must be a string")
		return nil
	}
	pieces, err := c.compiler.CompilePieces(c.scope, y.Value, y.Line, !isScalars(t))
	if err != nil {
		c.ReportProblem(y, path, "%v", err)
		return nil
	}
	return pieces
}

// leafOf returns the leaf of a scalar that has these pieces.
func (c *Checker) leafOf(y *yaml.Node, pieces []cel.Piece, t reflect.Type, field, path string) *Node {
	if len(pieces) == 1 && pieces[0].Expression == nil {
		return &Node{static: jsontree.Text(pieces[0].Literal)} // it contains only $${
	}
	if len(pieces) == 1 {
		out, maybe := cel.ValueType(pieces[0].Expression.Type())
		if text := becomesText(field, out); maybe || !text {
			p := &Node{kind: leafPart, pieces: pieces, whole: true, text: text, path: path, line: y.Line, field: field}
			pieces[0].Expression.SetOmittable(true)
			c.wholeLeaf(y, p, t)
			return p
		}
	}
	if !values.AcceptsType(t, types.StringType) {
		c.ReportProblem(y, path, "must be %s; text around an expression makes it a string", values.DescribeType(t))
	}
	for _, p := range pieces {
		if p.Expression == nil {
			continue
		}
		if of, maybe := cel.ValueType(p.Expression.Type()); maybe {
			c.ReportProblem(y, path, "${%s} may have no value, and is only a part of the string%s", p.Expression.Source(), toPart(of, p.Expression.Source()+diagnostics.OrZeroValue(of)))
		} else if !isJoinable(p.Expression.Type()) {
			c.ReportProblem(y, path, "${%s} gives %s, which cannot be part of a string%s", p.Expression.Source(), diagnostics.TypeName(p.Expression.Type()), diagnostics.StringHint(p.Expression.Type(), p.Expression.Source()))
		}
	}
	return &Node{kind: leafPart, pieces: pieces, rules: validation.ValueRules(t, field, path), path: path, line: y.Line, field: field}
}

// becomesText reports whether a whole expression becomes a string although it has another type. The
// values of environment variables, annotations and labels are strings in which numbers and booleans
// are usual.
func becomesText(field string, out *types.Type) bool {
	switch field {
	case "EnvVar.value", "ObjectMeta.annotations", "ObjectMeta.labels":
		return out.Kind() != types.StringKind && isJoinable(out)
	}
	return false
}

// toPart returns how to make a value a part of a string.
func toPart(out *types.Type, source string) string {
	if isJoinable(out) {
		return "; write ${" + source + "}"
	}
	return diagnostics.StringHint(out, source)
}

func isJoinable(out *types.Type) bool {
	switch out.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind:
		return true
	}
	return false
}
