// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/lint/sample"
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

func eachPath(i int) string { return fmt.Sprintf("spec.forEachContainer[%d].add", i) }

// presence is whether annotations can make a piece exist, or not exist.
type presence struct {
	now               bool            // whether the piece exists with the current parameters
	there, gone       bool            // whether it can exist, and whether it can be absent
	whenThere, unless sample.Settings // settings with which it exists, and with which it is absent
}

// presenceOf returns the presence of the innermost piece with a ${when} or a ${forEach}.
func (x *explorer) presenceOf(when *cel.Expression) presence {
	var p presence
	visit := func(settings sample.Settings) {
		exists := slices.ContainsFunc(x.loopVariables(settings), func(variables map[string]ref.Val) bool {
			return when == nil || x.evaluateExpression(when, settings, variables) == types.True
		})
		switch {
		case len(settings) == 0:
			p.now = exists
			fallthrough
		default:
			if exists && !p.there {
				p.there, p.whenThere = true, settings
			} else if !exists && !p.gone {
				p.gone, p.unless = true, settings
			}
		}
	}
	var all []*cel.Expression
	if when != nil {
		all = append(all, when)
	}
	if !x.visitSettings(x.settableOf(all...), visit) {
		p = presence{}
		visit(sample.Settings{})
		for _, settings := range CandidateSettings(x.template, x.settableOf(all...), maxCandidates) {
			visit(settings)
		}
		p.there, p.gone = true, true
	}
	return p
}

// exploreExisting returns the alternatives of a piece, one of which may be that it does not exist.
func (x *explorer) exploreExisting(v fragment.View, t reflect.Type, field, path string) []alternative {
	all := x.exploreContent(v, t, field, path)
	if v.When() == nil && v.Loop() == nil {
		return all
	}
	p := x.presenceOf(v.When())
	var conditions []*cel.Expression
	if v.When() != nil {
		conditions = append(conditions, v.When())
	}
	names := x.settableOf(conditions...)
	none := alternative{absent: true, path: path, params: names, settings: p.unless}
	if !p.there {
		return []alternative{none}
	}
	if !p.now {
		for i := range all {
			a := &all[i]
			a.settings, _ = a.settings.Merge(p.whenThere)
			a.params = unionOfNames(a.params, names)
			if i == 0 {
				a.path = path
			}
		}
		return append([]alternative{none}, all...)
	}
	if p.gone {
		all = append(all, none)
	}
	return all
}

// exploreContent returns the alternatives of a piece that exists.
func (x *explorer) exploreContent(v fragment.View, t reflect.Type, field, path string) []alternative {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case v.Static() != nil:
		return []alternative{{value: decodeNode(v.Static()), path: path}}
	case v.IsObject():
		return x.exploreObject(v, t, path)
	case v.IsList():
		return x.exploreList(v, t, field, path)
	}
	if _, checked := riskyValues(field); !checked && !isChecked(t, field) {
		return []alternative{{absent: true, path: path}}
	}
	if isSource(field) {
		return x.exploreSource(v, path)
	}
	return x.exploreLeaf(v, t, field, path)
}

// exploreSource explores a volume's source that is computed as a whole. Checks read only which one it is.
func (x *explorer) exploreSource(v fragment.View, path string) []alternative {
	there := alternative{value: map[string]any{}, path: path}
	if !v.MayLack() {
		return []alternative{there}
	}
	pieces, _ := v.Pieces()
	there.params = x.settableOf(pieces[0].Expression)
	none := alternative{absent: true, path: path, params: there.params}
	if _, ok := jsonOrNone(x.evaluateExpression(pieces[0].Expression, nil, firstVariables(x.loopVariables(nil)))); ok {
		return []alternative{there, none}
	}
	return []alternative{none, there}
}

// exploreObject returns the object with the first alternatives of its members, and then with each other one.
func (x *explorer) exploreObject(v fragment.View, t reflect.Type, path string) []alternative {
	base := map[string]any{}
	type change struct {
		name string
		alternative
	}
	var changes []change
	for name, child := range v.Children() {
		var of reflect.Type
		field := t.Name() + "." + name
		if t.Kind() == reflect.Map {
			of, field = t.Elem(), path[strings.LastIndex(path, ".")+1:]
		} else if f, ok := jsontree.StructFieldOf(t, name); ok {
			of, field = f.Type, f.Parent.Name()+"."+name
		}
		var all []alternative
		switch {
		case of == nil:
			continue
		case name == "name":
			all = []alternative{{value: x.nameOf(child), path: path}}
		case isChecked(of, field):
			all = x.exploreView(child, of, field, path+"."+name)
		}
		for i := range all {
			if i > 0 {
				changes = append(changes, change{name, all[i]})
			} else if !all[i].absent {
				base[name] = all[i].value
			}
		}
	}
	all := []alternative{{value: base, path: path}}
	for i := range changes {
		c := &changes[i]
		made := map[string]any{}
		if t != reflect.TypeFor[corev1.PodSpec]() { // a check is about each container and volume by itself
			maps.Copy(made, base)
		}
		if delete(made, c.name); !c.absent {
			made[c.name] = c.value
		}
		c.value, c.absent = made, false
		all = append(all, c.alternative)
	}
	return all
}

// nameOf returns the name of a container or a volume for messages.
func (x *explorer) nameOf(v fragment.View) any {
	if n := v.Static(); n != nil {
		return n.Text()
	}
	pieces, _ := v.Pieces()
	text, variables := "", firstVariables(x.loopVariables(nil))
	for _, piece := range pieces {
		text += piece.Literal
		if piece.Expression == nil {
			continue
		}
		if value := x.evaluateExpression(piece.Expression, nil, variables); value != nil {
			text += fmt.Sprint(value.Value())
		} else {
			text += "*"
		}
	}
	return text
}

// exploreList returns the list with the first alternatives of its items, and then with each other one.
func (x *explorer) exploreList(v fragment.View, t reflect.Type, field, path string) []alternative {
	var items [][]alternative
	for _, child := range v.Children() {
		of := t.Elem()
		if child.IsSpread() {
			of = t
		}
		items = append(items, x.exploreView(child, of, field, fmt.Sprintf("%s[%d]", path, len(items))))
	}
	return combineItems(items, path, elementType(t).Kind() == reflect.Struct)
}

// exploreView returns the alternatives of a piece of the template.
func (x *explorer) exploreView(v fragment.View, t reflect.Type, field, path string) []alternative {
	if l := v.Loop(); l != nil {
		x.loops = append(x.loops, l)
		defer func() { x.loops = x.loops[:len(x.loops)-1] }()
	}
	if when := v.When(); when != nil {
		x.guards = append(x.guards, when)
		defer func() { x.guards = x.guards[:len(x.guards)-1] }()
	}
	return x.exploreExisting(v, t, field, path)
}
