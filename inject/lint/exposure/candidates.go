// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// maxCandidates limits the settings that are tried for parameters with too many values to try all.
const maxCandidates = 48

// CandidateSettings returns settings of parameters that are likely to matter, those of one parameter first, then those of two. These
// are all values of a parameter with few values. Of others, these are the bounds, samples, and what the template's expressions
// compare with.
func CandidateSettings(t *templates.Template, names []string, most int) (all []sample.Settings) {
	one := map[string][]sample.Setting{}
	for i := range t.Spec.Params {
		if p := &t.Spec.Params[i]; slices.Contains(names, p.Name) && sample.IsSettable(p) {
			one[p.Name] = Candidates(t, p)
		}
	}
	add := func(settings sample.Settings) {
		if len(all) < most {
			all = append(all, settings)
		}
	}
	sorted := slices.Sorted(maps.Keys(one))
	for _, name := range sorted {
		for _, setting := range one[name] {
			add(sample.Settings{name: setting})
		}
	}
	for i, name := range sorted {
		for _, other := range sorted[i+1:] {
			for _, setting := range one[name] {
				for _, second := range one[other] {
					add(sample.Settings{name: setting, other: second})
				}
			}
		}
	}
	return all
}

// Candidates returns settings of a parameter that are likely to matter.
func Candidates(t *templates.Template, p *v1alpha1.Param) (all []sample.Setting) {
	if d := domainOf(t, p); d.finite {
		return d.settings
	}
	var texts []string
	for _, text := range slices.Concat(literalsFor(t, p), usualValues(p), sample.Candidates(t, p)) {
		if t.Takes(p.Name, text) == nil && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	const most = 24
	for _, text := range texts[:min(len(texts), most)] {
		all = append(all, sample.Setting{Value: text})
	}
	if !p.Needed() {
		all = append(all, sample.Setting{Unset: true})
	}
	return all
}

// usualValues returns the limits of a parameter, and values that are special in many templates.
func usualValues(p *v1alpha1.Param) (all []string) {
	for _, bound := range []*v1alpha1.Scalar{p.Minimum, p.Maximum} {
		if bound != nil {
			all = append(all, string(*bound))
		}
	}
	return append(all, "0", "a,b", "a,b,c", "sample0=sample,sample1=sample")
}

// literalsFor returns constants in the expressions that read a parameter, as values of it.
func literalsFor(t *templates.Template, p *v1alpha1.Param) (all []string) {
	for _, e := range expressionsOf(t) {
		if !slices.Contains(e.Params(), p.Name) {
			continue
		}
		var strings []string
		for _, literal := range ast.MatchDescendants(ast.NavigateAST(e.AST()), ast.KindMatcher(ast.LiteralKind)) {
			switch value := literal.AsLiteral().(type) {
			case types.String:
				strings = append(strings, string(value))
			case types.Int:
				for _, near := range []types.Int{value, value - 1, value + 1} {
					all = append(all, fmt.Sprint(int64(near)))
				}
			}
		}
		all = append(all, strings...)
		all = append(all, pairsOf(p, strings)...)
	}
	return all
}

// pairsOf returns pairs of a key and a value with the strings: in maps, and in strings that expressions split into pairs.
func pairsOf(p *v1alpha1.Param, all []string) (pairs []string) {
	isString := p.Type == "" || p.Type == "string"
	if p.Type != "map" && !isString {
		return nil
	}
	separator := p.Separator
	if separator == "" {
		separator = "="
	}
	for _, key := range all {
		if strings.ContainsAny(key, ",=: \n") || key == "" {
			continue
		}
		pairs = append(pairs, key+separator+"sample")
		if isString || len(all) > 4 {
			continue
		}
		for _, value := range all {
			if key != value && !strings.Contains(value, ",") {
				pairs = append(pairs, key+separator+value)
			}
		}
	}
	return pairs
}

// expressionsOf returns the expressions of a template, those of variables first.
func expressionsOf(t *templates.Template) (all []*cel.Expression) {
	for _, v := range t.UsedVariables() {
		all = append(all, v.Expression())
	}
	if e := t.ConditionExpression(); e != nil {
		all = append(all, e)
	}
	all = append(all, t.PodFragment().Expressions()...)
	for _, each := range t.EachFragments() {
		if each.Where != nil {
			all = append(all, each.Where)
		}
		all = append(all, each.Add.Expressions()...)
	}
	return all
}
