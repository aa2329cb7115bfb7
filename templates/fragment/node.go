// SPDX-License-Identifier: Apache-2.0

// Package fragment has the partial Pods and containers of templates: it checks YAML along Go types, compiles the expressions in it,
// renders in advance what is the same for all pods, and the rest for each pod.
package fragment

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/validation"
)

type partKind int

const (
	staticPart partKind = iota // the same for every pod
	objectPart
	listPart
	leafPart
)

// Node is a compiled piece of a fragment: an object, a list or a value. Its structure is fixed when the template is loaded. Values
// come only from the expressions of leaves. The fields of objects that leaves compute are known when the template is loaded, too: see
// fitter.
type Node struct {
	kind   partKind
	static jsontree.Node
	names  []string
	parts  []*Node
	when   *cel.Expression
	loop   *cel.Loop // makes several items of this one
	pieces []cel.Piece
	whole  bool           // the leaf is a single expression and has its type
	text   bool           // the value of a whole leaf becomes a string
	spread bool           // the value of a whole leaf is a list, and its items become items of the list around it
	maybe  bool           // the leaf is left out if its expression, of an optional type, has no value
	schema canonicalizer  // checks an object, or a list of objects, that the leaf computes
	preset *jsontree.Node // its value if the pod sets none of params; nil if it also depends on other data
	params params.Indexes
	pure   bool   // depends only on params, and on the variables of loops
	free   uint32 // the variables of loops that it reads, see [cel.Loop.Variables]
	rules  []validation.ValueRule
	path   string // path of a leaf or a ${when}, for errors
	line   int    // its line in the file
	field  string // a leaf's field in the API, for example Container.image
}

// canonicalizer checks a computed value and sets it to its canonical form. If there is an error, path is
// the place in the value, for example [0].name.
type canonicalizer interface {
	setCanonical(in *cel.Input, n *jsontree.Node) (path string, err error)
}

// NewObject returns an object without members.
func NewObject() *Node { return &Node{static: jsontree.Members()} }

// Static returns the value if it is the same for every pod, and otherwise nil.
func (p *Node) Static() *jsontree.Node {
	if p == nil || p.kind != staticPart {
		return nil
	}
	return &p.static
}

// IsPreset reports whether the value was rendered when the template was loaded, for pods that set none of the parameters that it
// depends on.
func (p *Node) IsPreset() bool { return p.preset != nil }

// Expressions returns the expressions of the part.
func (p *Node) Expressions() (all []*cel.Expression) {
	if p == nil {
		return nil
	}
	if p.when != nil {
		all = append(all, p.when)
	}
	if p.loop != nil {
		all = append(all, p.loop.List())
	}
	for _, piece := range p.pieces {
		if piece.Expression != nil {
			all = append(all, piece.Expression)
		}
	}
	for _, child := range p.parts {
		all = append(all, child.Expressions()...)
	}
	return all
}

// addChild adds a child. It ignores nil, which is a child with a problem.
func (p *Node) addChild(name string, child *Node) {
	if child == nil {
		return
	}
	p.names = append(p.names, name)
	p.parts = append(p.parts, child)
}

// foldStatic converts an object or list without expressions into a static part.
func (p *Node) foldStatic() *Node {
	n := jsontree.Items()
	if p.kind == objectPart {
		n = jsontree.Members()
	}
	for i, child := range p.parts {
		if child.kind != staticPart || child.when != nil || child.loop != nil {
			return p
		}
		if p.kind == objectPart {
			n.Set(p.names[i], child.static)
		} else {
			n.Append(child.static)
		}
	}
	n.Seal()
	return &Node{static: n, when: p.when, loop: p.loop, path: p.path, line: p.line}
}

// RenderInto sets n to the part's value for one pod. It returns keep false if a ${when} omits the item.
func (p *Node) RenderInto(in *cel.Input, n *jsontree.Node) (keep bool, err error) {
	if p.when != nil {
		if keep, err = p.when.EvalBool(in); err != nil {
			return false, p.when.Fault(p.path+"."+WhenKey, err)
		} else if !keep {
			return false, nil
		}
	}
	switch {
	case p.kind == staticPart:
		*n = p.static
	case p.preset != nil && !in.IsGiven(p.params):
		*n = *p.preset
	default:
		err = p.renderAs(in, n)
	}
	return err == nil && (!p.maybe || n.Kind() != 0), err
}

func (p *Node) renderAs(in *cel.Input, n *jsontree.Node) error {
	if p.kind == leafPart {
		err := p.renderValue(in, n)
		if err == nil && n.Kind() == 0 {
			return nil // left out
		}
		if err == nil {
			err = in.ChargeOutput(n)
		}
		sub := ""
		if err == nil && p.schema != nil {
			isList := n.Kind() == jsontree.Array
			sub, err = p.schema.setCanonical(in, n)
			if err != nil && sub == "" && isList && !p.spread && strings.HasSuffix(p.path, "]") {
				err = fmt.Errorf("%w; to insert the items of a list, write ${%s.map(x, x)}", err, diagnostics.Operand(p.pieces[0].Expression.Source()))
			}
		}
		if err != nil {
			return p.faultAt(sub, err)
		}
		return p.checkRules(n)
	}
	kids := in.Nodes.Nodes(len(p.parts))
	for i, child := range p.parts {
		if child.makesItems() {
			var err error
			if kids, err = child.renderItems(in, kids); err != nil {
				return err
			}
			kids = slices.Grow(kids, len(p.parts)-i)
			continue
		}
		kids = kids[:len(kids)+1]
		kid := &kids[len(kids)-1]
		keep, err := child.RenderInto(in, kid)
		switch {
		case err != nil:
			return err
		case !keep:
			kids = kids[:len(kids)-1]
		default:
			kid.Rename(p.names[i])
		}
	}
	if p.kind == objectPart {
		*n = jsontree.Members(kids...)
	} else {
		*n = jsontree.Items(kids...)
	}
	return p.checkRules(n)
}

// checkRules applies the part's rules.
func (p *Node) checkRules(n *jsontree.Node) error {
	if err := validation.CheckValue(p.rules, n); err != nil {
		return p.faultAt("", err)
	}
	return nil
}

// faultAt returns an error of the part, or of a place in its value.
func (p *Node) faultAt(inside string, err error) error {
	var read []string
	for _, e := range p.Expressions() {
		read = append(read, e.Params()...)
	}
	return cel.NewFault(p.path+inside, p.line, read, err)
}

// renderItems appends the items of the part's list, or one item for each value of its loop.
func (p *Node) renderItems(in *cel.Input, kids []jsontree.Node) ([]jsontree.Node, error) {
	if p.spread {
		list := &in.Nodes.Nodes(1)[:1][0]
		keep, err := p.RenderInto(in, list)
		if err != nil || !keep {
			return kids, err
		}
		return append(kids, list.Items()...), nil
	}
	err := p.loop.Each(in, p.path+"."+cel.ForEachKey, func(n int) { kids = slices.Grow(kids, n) }, func() error {
		kids = kids[:len(kids)+1]
		kid := &kids[len(kids)-1]
		keep, err := p.RenderInto(in, kid)
		if kid.Rename(""); !keep {
			kids = kids[:len(kids)-1]
		}
		return err
	})
	return kids, err
}

// MayHave implements Partial.
func (p *Node) MayHave(field string) bool { return slices.Contains(p.names, field) }

// MayHaveTwo implements Partial.
func (p *Node) MayHaveTwo(list string) bool {
	i := slices.Index(p.names, list)
	return i >= 0 && (p.parts[i].kind == leafPart || len(p.parts[i].parts) > 1 || p.parts[i].hasMadeItems() || len(p.parts[i].static.Items()) > 1)
}

// ComputesNames implements Partial.
func (p *Node) ComputesNames(list string) bool {
	return slices.ContainsFunc(p.Member(list).Items(), func(item *Node) bool { return item.makesItems() || item.Member("name").Static() == nil })
}

// KnownValue implements Partial.
func (p *Node) KnownValue() *jsontree.Node {
	known := p.knownValue()
	known.Seal()
	return &known
}

// makesItems reports whether the part of a list makes any number of items: it has ${forEach}, or gives a list.
func (p *Node) makesItems() bool { return p.loop != nil || p.spread }

// hasMadeItems reports whether a part of a list makes any number of items.
func (p *Node) hasMadeItems() bool {
	return p != nil && slices.ContainsFunc(p.parts, (*Node).makesItems)
}

func (p *Node) renderValue(in *cel.Input, n *jsontree.Node) error {
	switch {
	case p.text:
		return p.pieces[0].Expression.RenderStringInto(in, n)
	case p.whole:
		return p.pieces[0].Expression.RenderInto(in, n)
	}
	texts, size := make([]string, 0, 8), 0
	for _, piece := range p.pieces {
		text := piece.Literal
		if piece.Expression != nil {
			var err error
			if text, err = piece.Expression.EvalString(in); err != nil {
				return err
			}
		}
		if texts, size = append(texts, text), size+len(text); size > values.MaxOutput {
			return values.ErrTooLong
		}
	}
	*n = in.Nodes.Text(texts...)
	return nil
}

// WhenKey in an object omits the object if the expression is false.
const WhenKey = "${when}"

// knownValue returns the part without computed values.
func (p *Node) knownValue() jsontree.Node {
	switch p.kind {
	case staticPart:
		return p.static
	case objectPart:
		n := jsontree.Members()
		for i, child := range p.parts {
			if child.kind != leafPart {
				n.Set(p.names[i], child.knownValue())
			}
		}
		return n
	case listPart:
		n := jsontree.Items()
		for _, child := range p.parts {
			if child.kind != leafPart && child.loop == nil {
				n.Append(child.knownValue())
			}
		}
		return n
	}
	return jsontree.Node{}
}

// mayLack reports whether the part is left out for some pods.
func (p *Node) mayLack() bool { return p.when != nil || p.maybe }

// IsComputed reports whether the value at a path depends on the pod. Conditional list items count only
// if when is true.
func (p *Node) IsComputed(path string, when bool) bool {
	switch p.kind {
	case staticPart:
		return false
	case leafPart:
		return true
	case listPart:
		return slices.ContainsFunc(p.parts, func(item *Node) bool {
			return item.loop != nil || when && item.when != nil || item.IsComputed(path, when)
		})
	}
	if path == "" {
		return slices.ContainsFunc(p.parts, func(child *Node) bool { return child.mayLack() || child.IsComputed("", when) })
	}
	for i, child := range p.parts {
		if rest, ok := strings.CutPrefix(path, p.names[i]); ok && (rest == "" || rest[0] == '.') && (child.mayLack() || child.IsComputed(strings.TrimPrefix(rest, "."), when)) {
			return true
		}
	}
	return false
}

// Member returns the member of an object, or nil.
func (p *Node) Member(name string) *Node {
	switch {
	case p == nil:
	case p.kind == staticPart:
		if n := p.static.Get(name); n != nil {
			return &Node{kind: staticPart, static: *n}
		}
	default:
		if i := slices.Index(p.names, name); i >= 0 && p.kind == objectPart {
			return p.parts[i]
		}
	}
	return nil
}

// Items returns the items of a list.
func (p *Node) Items() []*Node {
	switch {
	case p == nil:
		return nil
	case p.kind == listPart:
		return p.parts
	}
	var all []*Node
	for _, n := range p.static.Items() {
		all = append(all, &Node{kind: staticPart, static: n})
	}
	return all
}
