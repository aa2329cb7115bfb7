// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// rewritten is an expression as the API server takes it.
type rewritten struct {
	text string
	typ  *cel.Type // what it gave in the template
	// variables: it reads variables or namespaceObject, which a matchCondition cannot.
	variables bool
	container bool // it reads the app container
}

// appVariable stands for the app container in what is rewritten.
const appVariable = "app"

// rewriter makes an expression of a template one of the API server's: other
// names for the variables, and a guard wherever something that is absent reads as
// empty in a template and is an error there.
type rewriter struct {
	ast.ExprFactory
	from      *ast.AST
	structs   map[string]reflect.Type
	bound     []string // variables of macros that are in scope
	id        int64
	variables bool
	container bool
}

// rewrite gives the expression anew. The error says what the API server does not have.
func rewrite(e *templates.Expression) (rewritten, error) {
	r := &rewriter{ExprFactory: ast.NewExprFactory(), from: e.AST(), structs: podStructs()}
	expr, err := r.visit(e.AST().Expr())
	if err != nil {
		return rewritten{}, fmt.Errorf("%w (in %q)", err, e.Source())
	}
	text, err := parser.Unparse(expr, ast.NewSourceInfo(nil), parser.WrapOnColumn(1<<30))
	if err != nil {
		return rewritten{}, fmt.Errorf("%w (in %q)", err, e.Source())
	}
	return rewritten{text, e.Type(), r.variables, r.container}, nil
}

func (r *rewriter) next() int64 { r.id++; return r.id }

func (r *rewriter) visit(e ast.Expr) (ast.Expr, error) {
	if macro, ok := r.from.SourceInfo().GetMacroCall(e.ID()); ok {
		return r.macro(macro)
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return r.NewLiteral(r.next(), e.AsLiteral()), nil
	case ast.IdentKind:
		return r.ident(e.AsIdent())
	case ast.SelectKind:
		return r.selection(e.AsSelect())
	case ast.CallKind:
		return r.call(e.AsCall())
	case ast.ListKind:
		items, err := r.visitAll(e.AsList().Elements())
		if err == nil {
			r.convert(items, e.AsList().Elements())
		}
		return r.NewList(r.next(), items, e.AsList().OptionalIndices()), err
	case ast.MapKind:
		return r.mapping(e.AsMap())
	}
	return nil, errors.New("it makes an object of a type that the API server does not know")
}

func (r *rewriter) visitAll(all []ast.Expr) ([]ast.Expr, error) {
	out := make([]ast.Expr, len(all))
	for i, e := range all {
		var err error
		if out[i], err = r.visit(e); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// convert gives what stands in a list or a map the type that it has in the
// template: there they must all be of one type, and what is read of a pod has none.
func (r *rewriter) convert(items, from []ast.Expr) {
	for i, e := range from {
		if e.Kind() == ast.LiteralKind {
			continue
		}
		switch name := r.from.GetType(e.ID()).TypeName(); name {
		case "string", "int", "bool", "double", "uint":
			items[i] = r.NewCall(r.next(), name, items[i])
		}
	}
}

func (r *rewriter) mapping(m ast.MapExpr) (ast.Expr, error) {
	var entries []ast.EntryExpr
	for _, entry := range m.Entries() {
		both, err := r.visitAll([]ast.Expr{entry.AsMapEntry().Key(), entry.AsMapEntry().Value()})
		if err != nil {
			return nil, err
		}
		r.convert(both, []ast.Expr{entry.AsMapEntry().Key(), entry.AsMapEntry().Value()})
		entries = append(entries, r.NewMapEntry(r.next(), both[0], both[1], entry.AsMapEntry().IsOptional()))
	}
	return r.NewMap(r.next(), entries), nil
}

func (r *rewriter) ident(name string) (ast.Expr, error) {
	if slices.Contains(r.bound, name) {
		return r.NewIdent(r.next(), name), nil
	}
	switch name {
	case "pod":
		name = "object"
	case "container":
		name, r.container = appVariable, true
	case "params", "ns", "request":
		return nil, fmt.Errorf("it uses %s as a whole; only its fields can be expressed", name)
	}
	return r.NewIdent(r.next(), name), nil
}

// own says whether e is one of the variables that are not the pod's or a container's.
func (r *rewriter) own(e ast.Expr) (name string, ok bool) {
	if e.Kind() != ast.IdentKind || slices.Contains(r.bound, e.AsIdent()) {
		return "", false
	}
	switch name = e.AsIdent(); name {
	case "params", "ns", "request":
		return name, true
	}
	return "", false
}

func (r *rewriter) path(names ...string) ast.Expr {
	e := r.NewIdent(r.next(), names[0])
	for _, name := range names[1:] {
		e = r.NewSelect(r.next(), e, name)
	}
	return e
}

// ownField is a field of params, ns or request.
func (r *rewriter) ownField(name, field string) ast.Expr {
	switch name + "." + field {
	case "ns.name":
		return r.path("request", "namespace")
	case "ns.labels", "ns.annotations":
		r.variables = true
		return r.orEmpty(r.path("namespaceObject", "metadata"), field, r.NewMap(r.next(), nil))
	case "request.username":
		return r.path("request", "userInfo", "username")
	case "request.dryRun":
		return r.orEmpty(r.path("request"), field, r.NewLiteral(r.next(), types.False))
	case "request.operation":
		return r.path("request", "operation")
	}
	r.variables = true
	return r.path("variables", paramVariable(field))
}

// orEmpty is operand.?field.orValue(empty).
func (r *rewriter) orEmpty(operand ast.Expr, field string, empty ast.Expr) ast.Expr {
	optional := r.NewCall(r.next(), operators.OptSelect, operand, r.NewLiteral(r.next(), types.String(field)))
	return r.NewMemberCall(r.next(), "orValue", optional, empty)
}

func (r *rewriter) selection(s ast.SelectExpr) (ast.Expr, error) {
	if name, ok := r.own(s.Operand()); ok {
		return r.ownField(name, s.FieldName()), nil
	}
	operand, err := r.visit(s.Operand())
	if err != nil {
		return nil, err
	}
	empty, err := r.empty(s)
	if empty != nil {
		return r.orEmpty(operand, s.FieldName(), empty), err
	}
	return r.NewSelect(r.next(), operand, s.FieldName()), err
}

// empty is what a field reads as where it is absent: nil where that is an error
// in a template too. Every pod has metadata and spec.
func (r *rewriter) empty(s ast.SelectExpr) (ast.Expr, error) {
	of := r.from.GetType(s.Operand().ID())
	optional := of.Kind() == types.OpaqueKind && of.TypeName() == "optional_type"
	if optional {
		of = of.Parameters()[0]
	}
	t := r.structs[of.TypeName()]
	if of.Kind() != types.StructKind || t == nil || t == reflect.TypeFor[corev1.Pod]() {
		return nil, nil
	}
	var empty ast.Expr
	switch fieldType(t, s.FieldName()).Kind() {
	case reflect.Map, reflect.Struct:
		empty = r.NewMap(r.next(), nil)
	case reflect.Slice:
		empty = r.NewList(r.next(), nil, nil)
	}
	if optional && empty != nil {
		return nil, fmt.Errorf("it reads %s of an object that may be absent; write .?%s", s.FieldName(), s.FieldName())
	}
	return empty, nil
}

func (r *rewriter) call(c ast.CallExpr) (ast.Expr, error) {
	name := c.FunctionName()
	if c.IsMemberFunction() && c.Target().Kind() == ast.IdentKind {
		if library := c.Target().AsIdent(); slices.Contains([]string{"sets", "optional", "strings"}, library) && !slices.Contains(r.bound, library) {
			name = library + "." + name // as the type checker writes it, but not inside of macros
			args, err := r.visitAll(c.Args())
			return r.NewCall(r.next(), name, args...), err
		}
	}
	if strings.ContainsAny(name[:1], "abcdefghijklmnopqrstuvwxyz") && !slices.Contains(functions(), name) {
		return nil, fmt.Errorf("the function %s is not the same, or not there, in the API server", name)
	}
	args, err := r.visitAll(c.Args())
	if err != nil {
		return nil, err
	}
	if !c.IsMemberFunction() {
		return r.NewCall(r.next(), name, args...), nil
	}
	target, err := r.visit(c.Target())
	return r.NewMemberCall(r.next(), name, target, args...), err
}

// functions are those that templates and the API server have alike. The API
// server's strings are of version 2 of the library, those of templates of the
// latest: format and reverse are not the same.
func functions() []string {
	return []string{
		"size", "contains", "startsWith", "endsWith", "matches", "string", "int", "uint", "double", "bool", "bytes",
		"type", "dyn", "duration", "timestamp", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
		"getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds",
		"charAt", "indexOf", "lastIndexOf", "lowerAscii", "upperAscii", "replace", "split", "join", "substring", "trim",
		"strings.quote", "sets.contains", "sets.equivalent", "sets.intersects",
		"or", "orValue", "hasValue", "value", "optional.of", "optional.none", "optional.ofNonZeroValue",
	}
}

// macro rewrites a macro as it was written.
func (r *rewriter) macro(e ast.Expr) (ast.Expr, error) {
	c := e.AsCall()
	if c.FunctionName() == operators.Has {
		return r.has(c.Args()[0].AsSelect())
	}
	target, err := r.visit(c.Target())
	if err != nil {
		return nil, err
	}
	if ranged := r.from.GetType(c.Target().ID()).Kind(); (c.FunctionName() == operators.Map || c.FunctionName() == operators.Filter) && ranged != types.ListKind {
		return nil, errors.New("it makes a list of a map's keys, which the API server goes through in no certain order")
	}
	bound := len(r.bound)
	defer func() { r.bound = r.bound[:bound] }()
	variable := c.Args()[0].AsIdent()
	if slices.Contains(taken(), variable) {
		return nil, fmt.Errorf("a variable of its own is named %q, which means something else here; take another name", variable)
	}
	r.bound = append(r.bound, variable)
	args, err := r.visitAll(c.Args())
	return r.NewMemberCall(r.next(), c.FunctionName(), target, args...), err
}

// taken are the names that mean something in the API server, or here.
func taken() []string {
	return []string{"object", "oldObject", "request", "namespaceObject", "variables", "params", "authorizer", appVariable}
}

func (r *rewriter) has(s ast.SelectExpr) (ast.Expr, error) {
	if _, ok := r.own(s.Operand()); ok {
		return r.NewLiteral(r.next(), types.True), nil // they are always there
	}
	operand, err := r.visit(s.Operand())
	return r.NewCall(r.next(), operators.Has, r.NewSelect(r.next(), operand, s.FieldName())), err
}

// podStructs are the structs that a pod is made of, by the names that they have
// in templates.
func podStructs() map[string]reflect.Type {
	all := map[string]reflect.Type{}
	var add func(reflect.Type)
	add = func(t reflect.Type) {
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			add(t.Elem())
		case reflect.Struct:
			if all[t.Name()] != nil {
				return
			}
			all[t.Name()] = t
			for f := range t.Fields() {
				add(f.Type)
			}
		}
	}
	add(reflect.TypeFor[corev1.Pod]())
	return all
}

// fieldType is the type of a struct's field of that name in JSON; every field of
// a checked template is there.
func fieldType(t reflect.Type, name string) reflect.Type {
	f, _ := tree.StructFieldOf(t, name)
	return f.Type
}
