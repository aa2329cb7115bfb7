// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// maxSettings is the maximum number of settings that are tried for the parameters of one expression.
const maxSettings = 256

// alternative is one of the values of a part. The first one of a list is the value with the current parameters, if that is known.
type alternative struct {
	value    any // JSON
	absent   bool
	settings sample.Settings
	params   []string
	path     string
}

// explorer is one exploration of a template.
type explorer struct {
	template *templates.Template
	from     sample.Situation
	settable map[string]*v1alpha1.Param
	domains  map[string]domain
	programs map[*cel.Expression]*cel.Evaluation
	inputs   map[string]*evaluationInput
	left     int    // how many evaluations are left; negative if there are none
	budget   uint64 // what all evaluations together may cost
	spent    uint64 // what they have cost so far
	cut      bool   // whether something was not tried because of these limits

	loops  []*cel.Loop       // the loops around the part that is explored, the innermost last
	guards []*cel.Expression // the conditions around it
}

// evaluationInput is what expressions read with some settings. Ok is false if the parameters do not accept them.
type evaluationInput struct {
	in     *cel.Input
	values params.Values
	ok     bool
}

// settableOf returns the parameters that annotations may set and that expressions or the loops around them read, sorted.
func (x *explorer) settableOf(all ...*cel.Expression) (names []string) {
	for _, l := range x.loops {
		all = append(all, l.List())
	}
	for _, e := range all {
		for _, name := range e.Params() {
			if x.settable[name] != nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// inputFor returns what expressions read with other settings.
func (x *explorer) inputFor(settings sample.Settings) *evaluationInput {
	key, _ := json.Marshal(settings)
	if made := x.inputs[string(key)]; made != nil {
		return made
	}
	made := &evaluationInput{}
	if to, ok := sample.SetParams(x.template, x.from, settings); ok {
		made.in, made.values, made.ok = sample.InputOf(x.template, to)
	}
	x.inputs[string(key)] = made
	return made
}

// evaluateExpression returns the value of an expression with settings, given the values of loops' variables. It returns nil if the
// expression fails, because the template is then not injected.
func (x *explorer) evaluateExpression(e *cel.Expression, settings sample.Settings, variables map[string]ref.Val) ref.Val {
	if x.left--; x.left < 0 || x.spent > x.budget {
		x.cut, x.left = true, -1
		return nil
	}
	with := x.inputFor(settings)
	if !with.ok {
		return nil
	}
	program := x.programs[e]
	if program == nil {
		var err error
		if program, err = e.Part(e.AST().Expr()); err != nil {
			return nil
		}
		x.programs[e] = program
	}
	value, err := program.ValueWithCost(with.in, with.values, variables, &x.spent)
	if err != nil || types.IsUnknownOrError(value) {
		return nil
	}
	return value
}

// asJSON returns a value as JSON, and false if it is none or absent.
func asJSON(value ref.Val) (made any, ok bool) {
	if optional, is := value.(*types.Optional); is {
		if !optional.HasValue() {
			return nil, false
		}
		value = optional.GetValue()
	}
	n, err := values.ToJSON(value)
	if err != nil {
		return nil, false
	}
	return decodeNode(&n), true
}

func decodeNode(n *jsontree.Node) (made any) {
	if json.Unmarshal(n.AppendTo(nil), &made) != nil {
		return nil
	}
	return made
}

// visitSettings calls visit for all combinations of settings of parameters, first without any. If there are too many, it returns false,
// and may have called visit for some of them.
func (x *explorer) visitSettings(names []string, visit func(sample.Settings)) bool {
	complete := eachSetting(x.domains, names, maxSettings, visit)
	return complete && x.left >= 0
}

// loopVariables returns the values of the variables of all loops around the part that is explored, once for each item.
func (x *explorer) loopVariables(settings sample.Settings) []map[string]ref.Val {
	const most = 64
	all := []map[string]ref.Val{{}}
	for _, l := range x.loops {
		var more []map[string]ref.Val
		for _, outer := range all {
			for variables := range l.Bindings(x.evaluateExpression(l.List(), settings, outer)) {
				if len(more) == most {
					x.cut, x.left = true, -1 // the rest is unknown
					break
				}
				maps.Copy(variables, outer)
				more = append(more, variables)
			}
		}
		all = more
	}
	return all
}

func firstVariables(all []map[string]ref.Val) map[string]ref.Val {
	if len(all) == 0 {
		return nil
	}
	return all[0]
}

func jsonOrNone(value ref.Val) (any, bool) {
	if value == nil {
		return nil, false
	}
	return asJSON(value)
}
