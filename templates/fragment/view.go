// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"iter"
	"slices"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// The types in this file expose a compiled template for translation into other languages. They are
// read-only, like the [Template] that they come from.

// View is a piece of what a template adds: an object, a list, or a value.
type View struct{ p *Node }

// View returns the part for readers.
func (p *Node) View() View { return View{p} }

// Static returns the value if it is the same for every pod, and otherwise nil. It may be an object
// or a list.
func (f View) Static() *jsontree.Node {
	return f.p.Static()
}

// Has reports whether the fragment is an object with a member of that name.
func (f View) Has(name string) bool {
	return f.p.static.Get(name) != nil || f.IsObject() && slices.Contains(f.p.names, name)
}

// When returns the condition of a list item, or nil if the item is always present.
func (f View) When() *cel.Expression { return f.p.when }

// IsSpread reports whether the fragment gives a list whose items become items of the list around it.
func (f View) IsSpread() bool { return f.p.spread }

// Expressions returns all expressions in the fragment.
func (f View) Expressions() []*cel.Expression { return f.p.Expressions() }

// Loop returns the ${forEach} of a list item, whose expressions read the variables of the loop, or nil.
func (f View) Loop() *cel.Loop { return f.p.loop }

// MayLack reports whether the fragment is left out for some pods: it has a ${when}, or an expression
// of an optional type.
func (f View) MayLack() bool { return f.p.mayLack() }

// Whole reports whether an expression computes an object, a map, or a list of objects.
func (f View) Whole() bool { return f.p.schema != nil }

// Field returns the field in the API of a value with expressions, for example Container.image.
func (f View) Field() string { return f.p.field }

// Rules returns conditions for a value with expressions. They are CEL expressions in which VALUE is
// the value. They imply the rules for the value. If a rule cannot be expressed in CEL, complete is
// false.
func (f View) Rules() (conditions []string, complete bool) {
	complete = true
	for _, rule := range f.p.rules {
		conditions, complete = append(conditions, rule.CEL()), complete && rule.CEL() != ""
	}
	return conditions, complete
}

// Ruled reports whether an object or a list has rules about computed values, besides those for which policies have
// conditions.
func (f View) Ruled() bool {
	return (f.p.kind == objectPart || f.p.kind == listPart) && slices.ContainsFunc(f.p.rules, func(r validation.ValueRule) bool { return !r.IsPoliced() })
}

// IsObject reports whether the fragment is an object.
func (f View) IsObject() bool {
	return f.p.kind == objectPart || f.p.kind == staticPart && f.p.static.Kind() == jsontree.Object
}

// IsList reports whether the fragment is a list.
func (f View) IsList() bool {
	return f.p.kind == listPart || f.p.kind == staticPart && f.p.static.Kind() == jsontree.Array
}

// Children returns an object's members, or a list's items, which have no names.
func (f View) Children() iter.Seq2[string, View] {
	return func(yield func(string, View) bool) {
		for i, child := range f.p.parts {
			if !yield(f.p.names[i], View{child}) {
				return
			}
		}
		for _, child := range slices.Concat(f.p.static.Members(), f.p.static.Items()) {
			if !yield(child.Name(), View{&Node{static: child}}) {
				return
			}
		}
	}
}

// Pieces returns the parts of a value with expressions. If whole is true, the value is a single
// expression and has its type.
func (f View) Pieces() (pieces []cel.Piece, whole bool) { return f.p.pieces, f.p.whole }
