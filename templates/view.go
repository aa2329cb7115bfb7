// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"iter"
	"reflect"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"

	"github.com/pillion-dev/pillion/templates/tree"
)

// The types of this file show a compiled template to those who say the same in
// another language. They are to be read only, like the [Template] they are of.

// Field returns the field of a struct of the pod's API by its name in JSON, if expressions can read it.
func Field(structName, name string) (reflect.StructField, bool) {
	f, ok := sharedStructs()[structName][name]
	if !ok {
		return reflect.StructField{}, false
	}
	return f.json.StructField, true
}

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

// Static is the value if it is the same for every pod, else nil. It may be an
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

// Place is where a value with expressions is in the API, such as Container.image.
func (f Fragment) Place() string { return f.p.place }

// Rules are conditions for a value with expressions: CEL in which VALUE is the value. They imply the rules that the
// value has to keep to. If a rule cannot be expressed, complete is false.
func (f Fragment) Rules() (conditions []string, complete bool) {
	complete = true
	for _, rule := range f.p.rules {
		conditions, complete = append(conditions, rule.cel), complete && rule.cel != ""
	}
	return conditions, complete
}

// Ruled says whether an object has to keep to rules over values that are computed.
func (f Fragment) Ruled() bool { return f.p.kind == objectPart && len(f.p.rules) > 0 }

// IsObject reports whether the fragment is an object.
func (f Fragment) IsObject() bool {
	return f.p.kind == objectPart || f.p.kind == staticPart && f.p.static.Kind() == tree.Object
}

// IsList reports whether the fragment is a list.
func (f Fragment) IsList() bool {
	return f.p.kind == listPart || f.p.kind == staticPart && f.p.static.Kind() == tree.Array
}

// Children are an object's members, or a list's items, which have no names.
func (f Fragment) Children() iter.Seq2[string, Fragment] {
	return func(yield func(string, Fragment) bool) {
		for i, child := range f.p.parts {
			if !yield(f.p.names[i], Fragment{child}) {
				return
			}
		}
		for _, child := range slices.Concat(f.p.static.Members(), f.p.static.Items()) {
			if !yield(child.Name(), Fragment{&part{static: child}}) {
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
