// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"testing"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// TestChainedOptionals checks that fields and items of an optional value can be read wherever it comes from: a variable, a list, a map,
// a JSON parameter, or the result of a function.
func TestChainedOptionals(t *testing.T) {
	t.Parallel()
	json := v1alpha1.Param{Name: "json", Type: "json"}
	c, err := NewCompiler([]v1alpha1.Param{json})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []v1alpha1.Variable{
		{Name: "there", Expression: "when(true, {'a': {'x': 'y'}})"},
		{Name: "missing", Expression: "when(false, {'a': {'x': 'y'}})"},
		{Name: "list", Expression: "[when(true, {'a': {'x': 'y'}})]"},
		{Name: "map", Expression: "{'m': when(true, {'a': {'x': 'y'}})}"},
		{Name: "unknown", Expression: "params.json[?'a']"},
		{Name: "whole", Expression: "when(true, params.json)"},
	} {
		if err := c.DeclareVariable(v, nil); err != nil {
			t.Fatal(err)
		}
	}
	annotations := jsontree.Members()
	annotations.Set("json", jsontree.Text(`{"a": {"x": "y"}, "n": 5}`))
	compiled := params.Compile(&json, json.Name, func(field, format string, args ...any) { t.Fatalf(field+" "+format, args...) })
	set, err := params.NewSet([]*params.Param{compiled}).Find(&annotations, nil, &request.Namespace{})
	if err != nil {
		t.Fatal(err)
	}
	in := (&Input{}).WithValues(set, nil)
	for source, want := range map[string]string{
		`variables.there.?a.?x.orValue('-')`:                               `"y"`,
		`variables.there.a.x.orValue('-')`:                                 `"y"`,
		`variables.there[?'a'][?'x'].orValue('-')`:                         `"y"`,
		`variables.there['a'].x.orValue('-')`:                              `"y"`,
		`variables.there.?b.?x.orValue('-')`:                               `"-"`,
		`variables.missing.?a.?x.orValue('-')`:                             `"-"`,
		`has(variables.there.a)`:                                           `true`,
		`has(variables.there.b)`:                                           `false`,
		`variables.list[0].?a.?x.orValue('-')`:                             `"y"`,
		`variables.list[0][?'a'].?x.orValue('-')`:                          `"y"`,
		`variables.map.m.?a.?x.orValue('-')`:                               `"y"`,
		`variables.map['m'].?a.?x.orValue('-')`:                            `"y"`,
		`[when(true, {'a': 'x'})][0].?a.orValue('-')`:                      `"x"`,
		`['a', 'b'].map(k, variables.there[?k].?x.orValue('-'))`:           `["y","-"]`,
		`cel.bind(v, variables.there, v.?a.?x.orValue('-'))`:               `"y"`,
		`variables.there.optMap(v, v.a.x).orValue('-')`:                    `"y"`,
		`variables.list.map(v, v.?a.?x.orValue('-'))`:                      `["y"]`,
		`variables.there.?a.?x.orValue(variables.list[0].a.x.orValue(''))`: `"y"`,
		`variables.unknown.?x.orValue('-')`:                                `"y"`,
		`variables.unknown[?'x'].orValue('-')`:                             `"y"`,
		`variables.unknown.x.orValue('-')`:                                 `"y"`,
		`variables.unknown.?z.orValue('-')`:                                `"-"`,
		`has(variables.unknown.x)`:                                         `true`,
		`[variables.unknown][0].?x.orValue('-')`:                           `"y"`,
		`string(params.json[?'n'].orValue(''))`:                            `"5"`,
		`params.json[?'n'].optMap(n, string(n)).orValue('')`:               `"5"`,
		`string(variables.whole[?'n'].orValue(''))`:                        `"5"`,
		`params.json[?'a'][?'x'].orValue('-')`:                             `"y"`,
		`params.json[?'b'][?'x'].orValue('-')`:                             `"-"`,
		`params.json.?a[?'x'].orValue('-')`:                                `"y"`,
	} {
		p, err := c.compileExpression(c.pod, source, false)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		v, err := p.evalCEL(in)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		if got, err := values.AppendJSON(nil, v); err != nil || string(got) != want {
			t.Errorf("%s gives %s (%v), not %s", source, got, err, want)
		}
	}
}
