// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"

	"github.com/pillion-dev/pillion/templates"
)

// rewritten is an expression in the form that the API server accepts.
type rewritten struct {
	text string
	typ  *cel.Type // its type in the template
	// variables reports whether it reads variables or namespaceObject, which a matchCondition
	// cannot read.
	variables bool
	container bool     // it reads the app container
	ownLists  []string // the lists of containers that it reads
}

// rewriter turns an expression of a template into one for the API server. The variables have other
// names. If a pod lacks a field, it reads as empty in a template, but as an error in the API
// server, so the rewriter adds a guard. The pod's containers are those that no template brought, as
// in the engine.
type rewriter struct {
	ast.ExprFactory
	rewritten
	from     *ast.AST
	optional []string // the names of optional parameters
	bound    []string // variables of macros that are in scope
	id       int64
	err      error // the first problem
}

// rewrite rewrites an expression. It returns an error if the API server lacks something that the expression needs.
func rewrite(e *templates.Expression, optionalParams []string) (rewritten, error) {
	r := &rewriter{ExprFactory: ast.NewExprFactory(), from: e.AST(), optional: optionalParams}
	expr := r.visit(e.AST().Expr())
	if r.err == nil {
		r.text, r.err = parser.Unparse(expr, ast.NewSourceInfo(nil), parser.WrapOnColumn(1<<30))
	}
	if r.err != nil {
		return rewritten{}, fmt.Errorf("%w (in %q)", r.err, e.Source())
	}
	r.typ = e.Type()
	return r.rewritten, nil
}

// fail records what the API server lacks.
func (r *rewriter) fail(format string, args ...any) ast.Expr {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	return r.NewLiteral(r.next(), types.False)
}

func (r *rewriter) next() int64 { r.id++; return r.id }

func (r *rewriter) visit(e ast.Expr) ast.Expr {
	if macro, ok := r.from.SourceInfo().GetMacroCall(e.ID()); ok {
		return r.macro(macro)
	}
	if operand, name, optional, ok := field(e); ok && r.isSpec(operand) && slices.Contains(lists(), name) {
		own := r.own(name)
		if _, _, maybe, _ := field(operand); optional || maybe {
			own = r.NewCall(r.next(), "optional.ofNonZeroValue", own)
		}
		return own
	}
	if r.isPod(e) || r.isSpec(e) {
		return r.fail("it uses pod or pod.spec as a whole, which includes containers of templates here; a policy can express only fields")
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return r.NewLiteral(r.next(), e.AsLiteral())
	case ast.IdentKind:
		return r.ident(e.AsIdent())
	case ast.SelectKind:
		return r.selection(e.AsSelect())
	case ast.CallKind:
		return r.call(e.AsCall())
	case ast.ListKind:
		return r.NewList(r.next(), r.typed(e.AsList().Elements()...), e.AsList().OptionalIndices())
	case ast.MapKind:
		if t := r.from.GetType(e.ID()); e.AsMap().Size() > 0 && t.Parameters()[1].Kind() == types.DynKind {
			return r.fail("its map has values of different types, which the API server rejects")
		}
		return r.mapping(e.AsMap())
	}
	return r.fail("it creates an object of a type that the API server does not know")
}

// field splits an expression that reads a field: operand.name or operand.?name.
func field(e ast.Expr) (operand ast.Expr, name string, optional, ok bool) {
	switch {
	case e.Kind() == ast.SelectKind:
		return e.AsSelect().Operand(), e.AsSelect().FieldName(), false, true
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.OptSelect:
		name, ok = e.AsCall().Args()[1].AsLiteral().Value().(string)
		return e.AsCall().Args()[0], name, true, ok
	}
	return nil, "", false, false
}

func (r *rewriter) isPod(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == "pod" && !slices.Contains(r.bound, "pod")
}

func (r *rewriter) isSpec(e ast.Expr) bool {
	operand, name, _, ok := field(e)
	return ok && name == "spec" && r.isPod(operand)
}

// own returns a list of the pod's containers without those that templates brought.
func (r *rewriter) own(list string) ast.Expr {
	r.variables, r.ownLists = true, append(r.ownLists, list)
	return r.path("variables", ownVariable(list))
}

// operand rewrites the operand of an expression that reads a field. It may be the pod or its spec.
func (r *rewriter) operand(e ast.Expr) ast.Expr {
	switch _, name, optional, _ := field(e); {
	case r.isPod(e):
		return r.path("object")
	case r.isSpec(e) && optional:
		return r.NewCall(r.next(), operators.OptSelect, r.path("object"), r.NewLiteral(r.next(), types.String(name)))
	case r.isSpec(e):
		return r.path("object", name)
	}
	return r.visit(e)
}

func (r *rewriter) visitAll(all []ast.Expr) []ast.Expr {
	out := make([]ast.Expr, len(all))
	for i, e := range all {
		out[i] = r.visit(e)
	}
	return out
}

// typed rewrites the items of a list or a map and converts them to their types in the template. All
// items must have the same type, and values that are read from a pod have none.
func (r *rewriter) typed(from ...ast.Expr) []ast.Expr {
	items := r.visitAll(from)
	for i := range items {
		if name := r.from.GetType(from[i].ID()).TypeName(); from[i].Kind() != ast.LiteralKind && slices.Contains(scalarTypes(), name) {
			items[i] = r.NewCall(r.next(), name, items[i])
		}
	}
	return items
}

// scalarTypes returns the types to which an expression can convert.
func scalarTypes() []string { return []string{"string", "int", "bool", "double", "uint"} }

func (r *rewriter) mapping(m ast.MapExpr) ast.Expr {
	var entries []ast.EntryExpr
	for _, entry := range m.Entries() {
		both := r.typed(entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		entries = append(entries, r.NewMapEntry(r.next(), both[0], both[1], entry.AsMapEntry().IsOptional()))
	}
	return r.NewMap(r.next(), entries)
}

func (r *rewriter) ident(name string) ast.Expr {
	if slices.Contains(r.bound, name) {
		return r.NewIdent(r.next(), name)
	}
	switch name {
	case "container":
		name, r.container = appVariable, true
	case "serviceAccount":
		return r.fail(noAccount)
	case "params", "ns", "request", "variables":
		return r.fail("it uses %s as a whole; a policy can express only its fields", name)
	}
	return r.NewIdent(r.next(), name)
}

// noAccount is the reason why a policy cannot express what reads the ServiceAccount.
const noAccount = "a policy cannot read the ServiceAccount of a pod; the API server gives it only the pod and the namespace"

// outside reports whether e is one of the variables that are not the pod or a container.
func (r *rewriter) outside(e ast.Expr) (name string, ok bool) {
	if e.Kind() != ast.IdentKind || slices.Contains(r.bound, e.AsIdent()) {
		return "", false
	}
	switch name = e.AsIdent(); name {
	case "params", "ns", "serviceAccount", "request", "variables":
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

// outsideField returns a field of params, ns, request or variables. It fails for serviceAccount.
func (r *rewriter) outsideField(name, field string) ast.Expr {
	if name == "serviceAccount" {
		return r.fail(noAccount)
	}
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
	if name == "variables" {
		return r.path("variables", namedVariable(field))
	}
	return r.path("variables", paramVariable(field))
}

// orEmpty returns operand.?field.orValue(empty).
func (r *rewriter) orEmpty(operand ast.Expr, field string, empty ast.Expr) ast.Expr {
	optional := r.NewCall(r.next(), operators.OptSelect, operand, r.NewLiteral(r.next(), types.String(field)))
	return r.NewMemberCall(r.next(), "orValue", optional, empty)
}

func (r *rewriter) selection(s ast.SelectExpr) ast.Expr {
	if name, ok := r.outside(s.Operand()); ok {
		return r.outsideField(name, s.FieldName())
	}
	operand := r.operand(s.Operand())
	if empty := r.empty(s); empty != nil {
		return r.orEmpty(operand, s.FieldName(), empty)
	}
	return r.NewSelect(r.next(), operand, s.FieldName())
}

// empty returns the value that an absent field reads as. It returns nil if reading the field is an
// error in a template too. Every pod has metadata and spec.
func (r *rewriter) empty(s ast.SelectExpr) ast.Expr {
	of := r.from.GetType(s.Operand().ID())
	optional := of.Kind() == types.OpaqueKind && of.TypeName() == "optional_type"
	if optional {
		of = of.Parameters()[0]
	}
	f, ok := templates.Field(of.TypeName(), s.FieldName())
	if of.Kind() != types.StructKind || !ok || of.TypeName() == "Pod" {
		return nil
	}
	var empty ast.Expr
	switch f.Type.Kind() {
	case reflect.Map, reflect.Struct:
		empty = r.NewMap(r.next(), nil)
	case reflect.Slice:
		empty = r.NewList(r.next(), nil, nil)
	}
	if optional && empty != nil {
		return r.fail("it reads %s of an object that may be absent; write .?%s", s.FieldName(), s.FieldName())
	}
	return empty
}

func (r *rewriter) call(c ast.CallExpr) ast.Expr {
	name, library := c.FunctionName(), false
	if c.IsMemberFunction() && c.Target().Kind() == ast.IdentKind {
		if first := c.Target().AsIdent(); slices.Contains(libraries(), first) && !slices.Contains(r.bound, first) {
			name = first + "." + name // as the type checker writes it, but not inside of macros
			library = true
		}
	}
	if lacks := r.lacks(name, c); lacks != "" {
		return r.fail("the API server has no function %s, or a different one", lacks)
	}
	if library {
		return r.NewCall(r.next(), name, r.visitAll(c.Args())...)
	}
	if name == operators.OptSelect {
		if of, ok := r.outside(c.Args()[0]); ok {
			return r.maybe(of, c.Args()[1])
		}
		return r.NewCall(r.next(), name, r.operand(c.Args()[0]), r.NewLiteral(r.next(), c.Args()[1].AsLiteral()))
	}
	args := r.visitAll(c.Args())
	if !c.IsMemberFunction() {
		return r.NewCall(r.next(), name, args...)
	}
	return r.NewMemberCall(r.next(), name, r.visit(c.Target()), args...)
}

// maybe rewrites params.?x. Only an optional parameter may have no value.
func (r *rewriter) maybe(of string, field ast.Expr) ast.Expr {
	name, _ := field.AsLiteral().Value().(string)
	value := r.outsideField(of, name)
	if of == "params" && slices.Contains(r.optional, name) {
		return value
	}
	return r.NewCall(r.next(), "optional.of", value)
}

// lacks returns a function that the API server lacks, or "".
func (r *rewriter) lacks(name string, c ast.CallExpr) string {
	switch {
	case strings.ContainsAny(name[:1], "abcdefghijklmnopqrstuvwxyz") && !slices.Contains(functions(), name):
		return name
	case name == "string" && r.from.GetType(c.Args()[0].ID()).TypeName() == "kubernetes.Quantity":
		return "string of a quantity"
	}
	return ""
}

// libraries returns the first parts of functions' names.
func libraries() []string {
	return []string{"sets", "optional", "strings", "lists", "ip", "base64", "json", "math", "regex"}
}

// functions returns the functions that are the same in templates and in the API server. The API
// server has version 2 of the strings library, and templates have the latest. Their format and
// reverse differ.
func functions() []string {
	return []string{
		"size", "contains", "startsWith", "endsWith", "matches", "string", "int", "uint", "double", "bool", "bytes",
		"type", "dyn", "duration", "timestamp", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
		"getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds",
		"charAt", "indexOf", "lastIndexOf", "lowerAscii", "upperAscii", "replace", "split", "join", "substring", "trim",
		"strings.quote", "sets.contains", "sets.equivalent", "sets.intersects",
		"or", "orValue", "hasValue", "value", "optional.of", "optional.none", "optional.ofNonZeroValue",
		"lists.range", "flatten", "distinct", "sort", "slice", "find", "findAll",
		"quantity", "isQuantity", "sign", "isInteger", "asInteger", "asApproximateFloat", "add", "sub", "compareTo", "isLessThan", "isGreaterThan",
		"url", "isURL", "getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery",
		"ip", "isIP", "ip.isCanonical", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast",
		"cidr", "isCIDR", "containsIP", "containsCIDR", "masked", "prefixLength",
		"semver", "isSemver", "major", "minor", "patch",
	}
}

// macro rewrites a macro in its unexpanded form.
func (r *rewriter) macro(e ast.Expr) ast.Expr {
	c := e.AsCall()
	switch name := c.FunctionName(); name {
	case operators.Has:
		return r.has(c.Args()[0].AsSelect())
	case "bind", "greatest", "least":
		return r.fail("the API server has no function %s.%s", c.Target().AsIdent(), name)
	}
	target := r.visit(c.Target())
	if ranged := r.from.GetType(c.Target().ID()).Kind(); (c.FunctionName() == operators.Map || c.FunctionName() == operators.Filter) && ranged != types.ListKind {
		return r.fail("it creates a list of a map's keys, which have no fixed order in the API server")
	}
	bound := len(r.bound)
	defer func() { r.bound = r.bound[:bound] }()
	variable := c.Args()[0].AsIdent()
	if slices.Contains(taken(), variable) {
		return r.fail("it has a variable named %q, which means something else in a policy; rename it", variable)
	}
	r.bound = append(r.bound, variable)
	return r.NewMemberCall(r.next(), c.FunctionName(), target, r.visitAll(c.Args())...)
}

// taken returns the names that already have a meaning in the API server or in a policy.
func taken() []string {
	return []string{"object", "oldObject", "request", "namespaceObject", "variables", "params", "authorizer", appVariable}
}

func (r *rewriter) has(s ast.SelectExpr) ast.Expr {
	if of, ok := r.outside(s.Operand()); ok {
		if of == "params" && slices.Contains(r.optional, s.FieldName()) {
			return r.NewMemberCall(r.next(), "hasValue", r.outsideField(of, s.FieldName()))
		}
		return r.NewLiteral(r.next(), types.True) // they are always there
	}
	if r.isSpec(s.Operand()) && slices.Contains(lists(), s.FieldName()) {
		return r.NewCall(r.next(), operators.NotEquals, r.own(s.FieldName()), r.NewList(r.next(), nil, nil))
	}
	return r.NewCall(r.next(), operators.Has, r.NewSelect(r.next(), r.operand(s.Operand()), s.FieldName()))
}
