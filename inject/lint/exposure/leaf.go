// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// exploreLeaf returns the alternatives of a value with expressions.
func (x *explorer) exploreLeaf(v fragment.View, t reflect.Type, field, path string) []alternative {
	pieces, whole := v.Pieces()
	var all []*cel.Expression
	for _, piece := range pieces {
		if piece.Expression != nil {
			all = append(all, piece.Expression)
		}
	}
	leaf := &leaf{explorer: x, field: field, path: path, names: x.settableOf(all...)}
	guarded := x.settableOf(append(slices.Clone(all), x.guards...)...)
	if whole {
		leaf.expression = pieces[0].Expression
	}
	if made, ok := leaf.enumerateValues(pieces, whole, guarded, x.guards); ok {
		return made
	}
	if made, ok := leaf.enumerateValues(pieces, whole, leaf.names, nil); ok {
		return made
	}
	if !whole {
		return append(leaf.currentValue(pieces, whole), leaf.riskyAlternatives(t, nil)...)
	}
	made := append(leaf.currentValue(pieces, whole), leaf.exploreExpr(leaf.expression, leaf.expression.AST().Expr(), t)...)
	for i := range made {
		if made[i].params == nil {
			made[i].params = leaf.names
		}
	}
	return made
}

// enumerateValues returns the values with all settings of parameters with which the guards are true. It returns false if there are too
// many.
func (l *leaf) enumerateValues(pieces []cel.Piece, whole bool, names []string, guards []*cel.Expression) (all []alternative, complete bool) {
	seen := map[string]bool{}
	complete = l.visitSettings(names, func(settings sample.Settings) {
		for _, variables := range l.loopVariables(settings) {
			if slices.ContainsFunc(guards, func(guard *cel.Expression) bool {
				return l.evaluateExpression(guard, settings, variables) != types.True
			}) {
				continue
			}
			a, ok := l.valueWith(pieces, whole, settings, variables)
			key, _ := json.Marshal([]any{a.value, a.absent})
			if ok && !seen[string(key)] {
				seen[string(key)] = true
				all = append(all, a)
			}
		}
	})
	if complete && len(all) == 0 {
		all = []alternative{{absent: true, path: l.path}} // the piece never exists
	}
	return all, complete
}

// valueWith returns the value with some settings, and false if an expression fails.
func (l *leaf) valueWith(pieces []cel.Piece, whole bool, settings sample.Settings, variables map[string]ref.Val) (alternative, bool) {
	a := alternative{settings: settings, params: l.names, path: l.path}
	if whole {
		value := l.evaluateExpression(pieces[0].Expression, settings, variables)
		if value == nil {
			return a, false
		}
		var exists bool
		a.value, exists = asJSON(value)
		a.absent = !exists
		return a, true
	}
	var text strings.Builder
	for _, piece := range pieces {
		text.WriteString(piece.Literal)
		if piece.Expression == nil {
			continue
		}
		value := l.evaluateExpression(piece.Expression, settings, variables)
		if value == nil {
			return a, false
		}
		fmt.Fprint(&text, value.Value())
	}
	a.value = text.String()
	return a, true
}

// currentValue returns the value with the current parameters, if it is known.
func (l *leaf) currentValue(pieces []cel.Piece, whole bool) []alternative {
	for _, variables := range l.loopVariables(nil) {
		if a, ok := l.valueWith(pieces, whole, nil, variables); ok {
			return []alternative{a}
		}
	}
	return []alternative{{absent: true, path: l.path, params: l.names}}
}

// exploreExpr returns the values of an expression that depends on parameters with too many values to try all. It looks into the
// expression, as far as its form shows which values it may have.
func (l *leaf) exploreExpr(e *cel.Expression, part ast.Expr, t reflect.Type) []alternative {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v := e.Variable(part); v != nil {
		return l.exploreExpr(v, v.AST().Expr(), t)
	}
	if name, at, ok := l.readsParam(part); ok {
		return l.exploreParam(name, at, t)
	}
	switch part.Kind() {
	case ast.IdentKind:
		if bound := l.bound[part.AsIdent()]; bound != nil {
			return l.exploreExpr(e, bound, t)
		}
		for _, loop := range l.loops {
			if name, at, ok := l.readsParam(loop.List().AST().Expr()); ok && loop.IsValue(part.AsIdent()) && t.Kind() != reflect.Struct {
				return l.exploreParam(name, at, t)
			}
		}
	case ast.LiteralKind:
		if value, ok := asJSON(part.AsLiteral()); ok {
			return []alternative{{value: value, params: l.names, path: l.path}}
		}
	case ast.ListKind:
		if t.Kind() == reflect.Slice {
			var items [][]alternative
			for _, item := range part.AsList().Elements() {
				items = append(items, repeatFirst(l.exploreExpr(e, item, t.Elem())))
			}
			return combineItems(items, l.path, false)
		}
	case ast.MapKind:
		if t.Kind() == reflect.Struct {
			return l.exploreMap(e, part.AsMap(), t)
		}
	case ast.CallKind:
		if all, ok := l.exploreCall(e, part.AsCall(), t); ok {
			return all
		}
	case ast.ComprehensionKind:
		if all, ok := l.exploreMacro(e, part.AsComprehension(), t); ok {
			return all
		}
	}
	all := l.riskyAlternatives(t, nil)
	if _, optional := cel.ValueType(e.AST().GetType(part.ID())); optional {
		all = append(all, l.absentAlternative())
	}
	return all
}

// exploreCall explores a call of a function that returns one of its arguments. It returns false for other functions.
func (l *leaf) exploreCall(e *cel.Expression, call ast.CallExpr, t reflect.Type) ([]alternative, bool) {
	args := call.Args()
	if call.IsMemberFunction() {
		args = append([]ast.Expr{call.Target()}, args...)
	}
	switch call.FunctionName() {
	case operators.Conditional:
		return append(l.exploreExpr(e, args[1], t), l.exploreExpr(e, args[2], t)...), true
	case "optional.of", "value", "dyn", "bool", "int", "string":
		return l.exploreExpr(e, args[0], t), true
	case "optional.ofNonZeroValue":
		return append(l.exploreExpr(e, args[0], t), l.absentAlternative()), true
	case "optional.none":
		return []alternative{l.absentAlternative()}, true
	case "or", "orValue":
		return append(l.exploreExpr(e, args[0], t), l.exploreExpr(e, args[1], t)...), true
	case operators.Add:
		if t.Kind() == reflect.Slice {
			return l.exploreSum(e, args, t), true
		}
	}
	return nil, false
}

// exploreMacro explores a variable that optMap or cel.bind sets, and list.map() over a parameter. It returns false for other macros.
func (l *leaf) exploreMacro(e *cel.Expression, c ast.ComprehensionExpr, t reflect.Type) ([]alternative, bool) {
	inner := *l
	inner.bound = maps.Clone(l.bound)
	if inner.bound == nil {
		inner.bound = map[string]ast.Expr{}
	}
	if c.IterRange().Kind() == ast.ListKind && c.IterRange().AsList().Size() == 0 {
		inner.bound[c.AccuVar()] = c.AccuInit()
		return inner.exploreExpr(e, c.Result(), t), true
	}
	step := c.LoopStep()
	if t.Kind() != reflect.Slice || step.Kind() != ast.CallKind || step.AsCall().FunctionName() != operators.Add || len(step.AsCall().Args()) != 2 {
		return nil, false
	}
	item := step.AsCall().Args()[1]
	if item.Kind() != ast.ListKind || item.AsList().Size() != 1 {
		return nil, false
	}
	inner.bound[c.IterVar()], inner.inList = c.IterRange(), true
	return combineItems([][]alternative{repeatFirst(inner.exploreExpr(e, item.AsList().Elements()[0], t.Elem()))}, l.path, false), true
}

// repeatFirst returns the alternatives with the first one twice. combineItems uses the first one for the current list, without its
// settings, so only the second one keeps the settings that lead to it.
func repeatFirst(all []alternative) []alternative {
	return append(slices.Clone(all[:min(1, len(all))]), all...)
}

// exploreSum explores a + b for lists.
func (l *leaf) exploreSum(e *cel.Expression, args []ast.Expr, t reflect.Type) (all []alternative) {
	a, b := l.exploreExpr(e, args[0], t), l.exploreExpr(e, args[1], t)
	for i := range max(len(a), len(b)) {
		one, other := a[min(i, len(a)-1)], b[min(i, len(b)-1)]
		left, _ := one.value.([]any)
		right, _ := other.value.([]any)
		one.value, one.absent = slices.Concat(left, right), false
		one.settings, _ = one.settings.Merge(other.settings)
		all = append(all, one)
	}
	if len(a) > 1 && len(b) > 1 { // the worst of one side with the best of the other
		for i := range a {
			one := a[i]
			left, _ := one.value.([]any)
			right, _ := b[0].value.([]any)
			one.value, one.absent = slices.Concat(left, right), false
			all = append(all, one)
		}
	}
	return all
}

// exploreMap explores an object with constant keys.
func (l *leaf) exploreMap(e *cel.Expression, m ast.MapExpr, t reflect.Type) []alternative {
	base := map[string]any{}
	type change struct {
		name string
		alternative
	}
	var changes []change
	for _, entry := range m.Entries() {
		name, ok := cel.StringLiteral(entry.AsMapEntry().Key())
		f, known := jsontree.StructFieldOf(t, name)
		if !ok || !known {
			return l.riskyAlternatives(t, nil)
		}
		field := f.Parent.Name() + "." + name
		if !isChecked(f.Type, field) {
			continue
		}
		inner := *l
		inner.field, inner.path = field, l.path+"."+name
		all := inner.exploreExpr(e, entry.AsMapEntry().Value(), f.Type)
		if entry.AsMapEntry().IsOptional() {
			all = append(all, alternative{absent: true, params: l.names, path: inner.path})
		}
		for i := range all {
			if i == 0 && !all[i].absent {
				base[name] = all[i].value
			}
			if i > 0 || len(all[i].settings) > 0 {
				changes = append(changes, change{name, all[i]})
			}
		}
	}
	made := []alternative{{value: base, params: l.names, path: l.path}}
	for _, c := range changes {
		object := maps.Clone(base)
		if delete(object, c.name); !c.absent {
			object[c.name] = c.value
		}
		c.value, c.absent = object, false
		made = append(made, c.alternative)
	}
	return made
}
