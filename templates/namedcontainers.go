// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/params"
)

// A where often compares the names of containers with a parameter, for example
// container.name in params.containers. A name that no container has is then a mistake of the pod. The
// same is true for the keys of a map in which an entry looks up the name of a container.

// NamedContainer is the name of a container in a parameter that the pod sets.
type NamedContainer struct {
	Name       string
	Annotation string // that sets the parameter
}

// maxNamed is the maximum number of names that are reported for one comparison.
const maxNamed = 100

// namedIn returns the comparisons of an expression, and the maps in which it looks up the name.
func namedIn(where *cel.Expression) (all []namedContainers) {
	var meant []string
	for _, e := range ast.MatchDescendants(ast.NavigateAST(where.AST()), ast.KindMatcher(ast.LiteralKind)) {
		if text, ok := cel.StringLiteral(e); ok {
			meant = append(meant, text)
		}
	}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(where.AST()), ast.KindMatcher(ast.CallKind)) {
		call := e.AsCall()
		f := call.FunctionName()
		looksUp := f == operators.Index || f == operators.OptIndex
		if f != operators.In && f != operators.Equals && f != operators.NotEquals && !looksUp {
			continue
		}
		for i, name := range call.Args()[:2] {
			if of, field := cel.SplitSelect(name); of != "container" || field != "name" || f == operators.In && i == 1 || looksUp && i == 0 {
				continue
			}
			names := macroRange(e, call.Args()[1-i])
			params, ok := readsParams(ast.NavigateExpr(where.AST(), names), where)
			if !ok || len(params) == 0 {
				continue
			}
			if eval, err := where.Part(names); err == nil {
				all = append(all, namedContainers{params, eval, meant})
			}
		}
	}
	return all
}

// macroRange returns the list that a variable of an enclosing macro is an item of, or the expression itself.
func macroRange(at ast.NavigableExpr, e ast.Expr) ast.Expr {
	if e.Kind() != ast.IdentKind {
		return e
	}
	for parent, ok := at.Parent(); ok; parent, ok = parent.Parent() {
		if parent.Kind() == ast.ComprehensionKind && parent.AsComprehension().IterVar() == e.AsIdent() {
			return parent.AsComprehension().IterRange()
		}
	}
	return e
}

// readsParams returns the parameters that an expression reads. It returns false if it reads the
// container, or variables of macros that it does not contain.
func readsParams(e ast.NavigableExpr, of *cel.Expression) (params []string, ok bool) {
	var inner []string
	for _, loop := range ast.MatchDescendants(e, ast.KindMatcher(ast.ComprehensionKind)) {
		inner = append(inner, loop.AsComprehension().IterVar(), loop.AsComprehension().IterVar2(), loop.AsComprehension().AccuVar())
	}
	for _, ident := range ast.MatchDescendants(e, ast.KindMatcher(ast.IdentKind)) {
		parent, _ := ident.Parent()
		switch name := ident.AsIdent(); name {
		case "params", "variables":
			if parent == nil || parent.Kind() != ast.SelectKind {
				return nil, false
			}
			if name == "params" {
				params = append(params, parent.AsSelect().FieldName())
			}
			if v := of.Variable(parent); v != nil {
				params = append(params, v.Params()...)
			}
		case "pod", "ns", "request":
		default:
			if !slices.Contains(inner, name) {
				return nil, false
			}
		}
	}
	return params, true
}

// NamedContainers returns the names of containers that the pod's annotations set, and that the
// entries of forEachContainer compare with the names of containers, or in which they look these up. It evaluates expressions until they
// cost as much as those of a template may.
func (t *Template) NamedContainers(in *cel.Input, values params.Values) (all []NamedContainer) {
	var spent uint64
	for i := range t.forEach {
		for _, named := range slices.Concat(t.forEach[i].named, t.forEach[i].looksUp) {
			by := slices.IndexFunc(values, func(v params.Value) bool { return v.Source == params.FromPod && slices.Contains(named.params, v.Name) })
			if by < 0 {
				continue
			}
			out, err := named.names.ValueForMessage(in.WithValues(values, nil), &spent)
			if errors.Is(err, cel.ErrExhausted) {
				return all
			}
			if err != nil {
				continue // where may fail too
			}
			for _, name := range stringsIn(out) {
				n := NamedContainer{name, t.params.KeyOf(values[by].Name)}
				if name != "" && !slices.Contains(named.meant, name) && !slices.Contains(all, n) {
					all = append(all, n)
				}
			}
		}
	}
	return all
}

// stringsIn returns the first strings of a list, the first keys of a map, or a string.
func stringsIn(v ref.Val) (all []string) {
	if text, ok := v.(types.String); ok {
		return []string{string(text)}
	}
	switch v.(type) {
	case traits.Lister, traits.Mapper:
	default:
		return nil
	}
	for it := v.(traits.Iterable).Iterator(); len(all) < maxNamed && it.HasNext() == types.True; {
		if text, ok := it.Next().(types.String); ok {
			all = append(all, string(text))
		}
	}
	return all
}

// NamesContainers reports whether NamedContainers may return anything.
func (t *Template) NamesContainers() bool {
	return slices.ContainsFunc(t.forEach, func(f forEach) bool { return len(f.named)+len(f.looksUp) > 0 })
}

// Unmatched returns the conditions of the entries of forEachContainer that were for none of the
// containers for which [Template.ForEach] was called with this input. It leaves out those that compare
// names with parameters that are empty: the pod wants them for no container.
func (t *Template) Unmatched(in *cel.Input, values params.Values) (wheres []string) {
	var spent uint64
	for i := range t.forEach {
		if f := &t.forEach[i]; f.differs && !in.MayMatch(i) && !f.namesNone(in, values, &spent) {
			wheres = append(wheres, f.where.Source())
		}
	}
	return wheres
}

func (f *forEach) namesNone(in *cel.Input, values params.Values, spent *uint64) bool {
	for _, named := range f.named {
		out, err := named.names.ValueForMessage(in.WithValues(values, nil), spent)
		if err != nil || slices.ContainsFunc(stringsIn(out), func(name string) bool { return name != "" }) {
			return false
		}
	}
	return len(f.named) > 0
}
