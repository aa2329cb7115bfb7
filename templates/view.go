// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"iter"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

	"github.com/pillion-dev/pillion/templates/tree"
)

// The types of this file show a compiled template to those who say the same in
// another language. They are to be read only, like the [Template] they are of.

// Expression is a compiled CEL expression.
type Expression struct{ p *program }

// Source is the expression as it was written.
func (e *Expression) Source() string { return e.p.source }

// AST is the type-checked expression. It remembers its macros as they were
// written, by [ast.SourceInfo.GetMacroCall].
func (e *Expression) AST() *ast.AST { return e.p.checked }

// Type is what the expression gives.
func (e *Expression) Type() *cel.Type { return e.p.out }

// Params are the parameters that a condition reads.
func (e *Expression) Params() []string { return e.p.params }

func expression(p *program) *Expression {
	if p == nil {
		return nil
	}
	return &Expression{p}
}

// Fragment is a piece of what a template adds: an object, a list, or a value.
type Fragment struct{ p *part }

// Static is the value where it is the same for every pod, else nil. It may be an
// object or a list too.
func (f Fragment) Static() *tree.Node {
	if f.p.kind != staticPart {
		return nil
	}
	return &f.p.static
}

// Has says whether it is an object with a member of that name.
func (f Fragment) Has(name string) bool {
	return f.p.static.Get(name) != nil || f.IsObject() && slices.Contains(f.p.names, name)
}

// When says whether this item of a list is there; nil is always.
func (f Fragment) When() *Expression { return expression(f.p.when) }

// Place is where a value with expressions is in the API, such as Container.image, and
// whether it has to keep to rules of that place, beside those of its type.
func (f Fragment) Place() (place string, ruled bool) {
	return f.p.place, len(placeRules()[f.p.place]) > 0
}

// Ruled says whether an object has to keep to rules over values that are computed.
func (f Fragment) Ruled() bool { return f.p.kind == objectPart && len(f.p.rules) > 0 }

// IsObject says that the fragment is an object.
func (f Fragment) IsObject() bool { return f.p.kind == objectPart }

// IsList says that the fragment is a list.
func (f Fragment) IsList() bool { return f.p.kind == listPart }

// Children are an object's members, or a list's items, which have no names.
func (f Fragment) Children() iter.Seq2[string, Fragment] {
	return func(yield func(string, Fragment) bool) {
		for i, child := range f.p.parts {
			if !yield(f.p.names[i], Fragment{child}) {
				return
			}
		}
	}
}

// Piece is literal text, or an expression where that is not nil.
type Piece struct {
	Literal    string
	Expression *Expression
}

// Pieces are what a value with expressions is put together from; whole says that
// it is one expression, whose type it takes.
func (f Fragment) Pieces() (pieces []Piece, whole bool) {
	for _, p := range f.p.pieces {
		pieces = append(pieces, Piece{p.literal, expression(p.program)})
	}
	return pieces, f.p.whole
}

// ConditionExpression is that of spec.match.condition, or nil.
func (t *Template) ConditionExpression() *Expression { return expression(t.condition) }

// PodFragment is the partial Pod of spec.pod.
func (t *Template) PodFragment() Fragment { return Fragment{t.pod} }

// EachFragment is one entry of spec.forEachContainer.
type EachFragment struct {
	Where          *Expression // nil: every app container
	InitContainers bool
	Add            Fragment // a partial Container
}

// EachFragments are the entries of spec.forEachContainer.
func (t *Template) EachFragments() []EachFragment {
	var all []EachFragment
	for _, f := range t.forEach {
		all = append(all, EachFragment{expression(f.where), f.initContainers, Fragment{f.add}})
	}
	return all
}
