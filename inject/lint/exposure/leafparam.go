// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// readsParam returns the parameter that an expression reads, and the fields inside it: params.x, params.?x or params.x.a.b.
func (l *leaf) readsParam(e ast.Expr) (name string, at []string, ok bool) {
	var of ast.Expr
	var field string
	switch {
	case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly():
		of, field = e.AsSelect().Operand(), e.AsSelect().FieldName()
	case e.Kind() == ast.CallKind && slices.Contains([]string{operators.OptSelect, operators.Index, operators.OptIndex}, e.AsCall().FunctionName()):
		var constant bool
		if field, constant = cel.StringLiteral(e.AsCall().Args()[1]); !constant {
			return "", nil, false
		}
		of = e.AsCall().Args()[0]
	default:
		return "", nil, false
	}
	if of.Kind() == ast.IdentKind && l.bound[of.AsIdent()] == nil {
		return field, nil, of.AsIdent() == "params"
	}
	if of.Kind() == ast.IdentKind {
		of = l.bound[of.AsIdent()]
	}
	if of.Kind() == ast.CallKind && of.AsCall().FunctionName() == "value" {
		of = of.AsCall().Target()
	}
	name, at, ok = l.readsParam(of)
	return name, append(at, field), ok
}

// exploreParam explores a field that has the value of a parameter, or of a field inside it.
func (l *leaf) exploreParam(name string, at []string, t reflect.Type) []alternative {
	p := l.settable[name]
	if p == nil { // nothing sets it
		if value := l.evaluateParam(name, at); value != nil {
			return []alternative{{value: value, path: l.path}}
		}
		return []alternative{{absent: true, path: l.path}}
	}
	all := l.riskyAlternatives(t, func(text string) (sample.Settings, bool) { return l.settingFor(p, at, text) })
	if !hasFewValues(l.field) && !l.excludesRisky(p, at) && len(all) == 0 {
		all = l.riskyAlternatives(t, nil) // it may have values that no check accepts, although none is known
	}
	if p.Optional || len(at) > 0 {
		none := l.absentAlternative()
		none.settings = sample.Settings{name: {Unset: true}}
		if l.template.Takes(name, "{}") == nil && len(at) > 0 {
			none.settings = sample.Settings{name: {Value: "{}"}}
		}
		all = append(all, none)
	}
	return all
}

func (l *leaf) evaluateParam(name string, at []string) any {
	with := l.inputFor(nil)
	if !with.ok || !with.values.IsSet(name) {
		return nil
	}
	value, ok := asJSON(with.values.CEL(name))
	for _, field := range at {
		m, _ := value.(map[string]any)
		value = m[field]
	}
	if !ok {
		return nil
	}
	return value
}

// settingFor returns the setting with which a parameter, or a field inside it, has a value.
func (l *leaf) settingFor(p *v1alpha1.Param, at []string, text string) (sample.Settings, bool) {
	texts := []string{text}
	if len(at) > 0 {
		var nested any = json.RawMessage(text)
		if !json.Valid([]byte(text)) || !slices.Contains([]string{"true", "false", "0"}, text) {
			nested = text
		}
		if l.inList {
			nested = []any{nested}
		}
		for _, field := range slices.Backward(at) {
			nested = map[string]any{field: nested}
		}
		object, err := json.Marshal(nested)
		if err != nil {
			return nil, false
		}
		texts = []string{string(object)}
		if len(at) == 1 {
			texts = append(texts, at[0]+"="+text, at[0]+":"+text)
		}
	}
	if text == "0" && len(at) == 0 {
		texts = append(texts, formsOfZero(64)...)
	}
	for _, text := range texts {
		if l.template.Takes(p.Name, text) == nil {
			return sample.Settings{p.Name: {Value: text}}, true
		}
	}
	return nil, false
}

// excludesRisky reports whether the values of riskyValues are all that a check rejects, for a field with the value of this parameter. Then
// a parameter that takes none of them is harmless: 0 is the only integer that is root.
func (l *leaf) excludesRisky(p *v1alpha1.Param, at []string) bool {
	return len(at) == 0 && l.field == "SecurityContext.runAsUser" && p.Type == "integer"
}

// leaf is a value with expressions that is explored.
type leaf struct {
	*explorer

	expression  *cel.Expression // of a whole value
	field, path string
	names       []string // the parameters that it reads
	bound       map[string]ast.Expr
	inList      bool // whether the value is an item of a list inside of a parameter
}

// riskyAlternatives returns the values of the leaf that a check rejects. If settingFor is nil, it is not known which settings lead to
// them. Otherwise, settingFor returns the settings that lead to a value, and false if none do; such a value is left out.
func (l *leaf) riskyAlternatives(t reflect.Type, settingFor func(text string) (sample.Settings, bool)) (all []alternative) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	texts, ok := riskyValues(l.field)
	if !ok {
		return []alternative{{value: worstValue(t, l.field), params: l.names, path: l.path}}
	}
	for _, text := range texts {
		var settings sample.Settings
		if settingFor != nil {
			var possible bool
			if settings, possible = settingFor(text); !possible {
				continue
			}
		}
		value := scalarOf(elementType(t), text)
		if t.Kind() == reflect.Slice {
			value = []any{value}
		}
		all = append(all, alternative{value: value, settings: settings, params: l.names, path: l.path})
	}
	return all
}

// absentAlternative is the alternative that there is none.
func (l *leaf) absentAlternative() alternative {
	return alternative{absent: true, params: l.names, path: l.path}
}
