// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/values"
)

// rewritten is an expression in the form that the API server accepts.
type rewritten struct {
	text string
	typ  *types.Type // its type in the template
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

// rewriteExpression rewrites an expression. It returns an error if the API server lacks something that the expression needs.
func rewriteExpression(e *cel.Expression, optionalParams []string) (rewritten, error) {
	r := &rewriter{ExprFactory: ast.NewExprFactory(), from: e.AST(), optional: optionalParams}
	expr := r.rewriteExpression(e.AST().Expr())
	if r.err == nil {
		r.text, r.err = parser.Unparse(expr, ast.NewSourceInfo(nil), parser.WrapOnColumn(1<<30))
	}
	if r.err != nil {
		return rewritten{}, fmt.Errorf("%w (in %q)", r.err, e.Source())
	}
	r.typ = e.Type()
	return r.rewritten, nil
}

// failRewrite records what the API server lacks.
func (r *rewriter) failRewrite(format string, args ...any) ast.Expr {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	return r.NewLiteral(r.nextID(), types.False)
}

func (r *rewriter) nextID() int64 { r.id++; return r.id }

func (r *rewriter) rewriteExpression(e ast.Expr) ast.Expr {
	if macro, ok := r.from.SourceInfo().GetMacroCall(e.ID()); ok {
		return r.rewriteMacro(macro)
	}
	if operand, name, optional, ok := splitField(e); ok && r.isSpec(operand) && slices.Contains(containerLists(), name) {
		own := r.ownContainers(name)
		if _, _, maybe, _ := splitField(operand); optional || maybe {
			own = r.NewCall(r.nextID(), "optional.ofNonZeroValue", own)
		}
		return own
	}
	if r.isPod(e) || r.isSpec(e) {
		return r.failRewrite("it uses pod or pod.spec as a whole, which includes containers of templates here; a policy can express only fields")
	}
	switch e.Kind() {
	case ast.LiteralKind:
		return r.NewLiteral(r.nextID(), e.AsLiteral())
	case ast.IdentKind:
		return r.rewriteIdent(e.AsIdent())
	case ast.SelectKind:
		return r.rewriteSelect(e.AsSelect())
	case ast.CallKind:
		return r.rewriteCall(e.AsCall())
	case ast.ListKind:
		return r.NewList(r.nextID(), r.rewriteTyped(e.AsList().Elements()...), e.AsList().OptionalIndices())
	case ast.MapKind:
		if t := r.from.GetType(e.ID()); e.AsMap().Size() > 0 && t.Parameters()[1].Kind() == types.DynKind {
			return r.failRewrite("its map has values of different types, which the API server rejects")
		}
		return r.rewriteMap(e.AsMap())
	}
	return r.failRewrite("it creates an object of a type that the API server does not know")
}

// splitField splits an expression that reads a field: operand.name or operand.?name.
func splitField(e ast.Expr) (operand ast.Expr, name string, optional, ok bool) {
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
	operand, name, _, ok := splitField(e)
	return ok && name == "spec" && r.isPod(operand)
}

// ownContainers returns a list of the pod's containers without those that templates brought.
func (r *rewriter) ownContainers(list string) ast.Expr {
	r.variables, r.ownLists = true, append(r.ownLists, list)
	return r.selectPath("variables", ownVariable(list))
}

// rewriteOperand rewrites the operand of an expression that reads a field. It may be the pod or its spec.
func (r *rewriter) rewriteOperand(e ast.Expr) ast.Expr {
	switch _, name, optional, _ := splitField(e); {
	case r.isPod(e):
		return r.selectPath("object")
	case r.isSpec(e) && optional:
		return r.NewCall(r.nextID(), operators.OptSelect, r.selectPath("object"), r.NewLiteral(r.nextID(), types.String(name)))
	case r.isSpec(e):
		return r.selectPath("object", name)
	}
	return r.rewriteExpression(e)
}

func (r *rewriter) visitAll(all []ast.Expr) []ast.Expr {
	out := make([]ast.Expr, len(all))
	for i, e := range all {
		out[i] = r.rewriteExpression(e)
	}
	return out
}

// rewriteTyped rewrites the items of a list or a map and converts them to their types in the template. All
// items must have the same type, and values that are read from a pod have none.
func (r *rewriter) rewriteTyped(from ...ast.Expr) []ast.Expr {
	items := r.visitAll(from)
	for i := range items {
		if name := r.from.GetType(from[i].ID()).TypeName(); from[i].Kind() != ast.LiteralKind && slices.Contains(scalarTypes(), name) {
			items[i] = r.NewCall(r.nextID(), name, items[i])
		}
	}
	return items
}

// scalarTypes returns the types to which an expression can convert.
func scalarTypes() []string { return []string{"string", "int", "bool", "double", "uint"} }

func (r *rewriter) rewriteMap(m ast.MapExpr) ast.Expr {
	var entries []ast.EntryExpr
	for _, entry := range m.Entries() {
		both := r.rewriteTyped(entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		entries = append(entries, r.NewMapEntry(r.nextID(), both[0], both[1], entry.AsMapEntry().IsOptional()))
	}
	return r.NewMap(r.nextID(), entries)
}

func (r *rewriter) rewriteIdent(name string) ast.Expr {
	if slices.Contains(r.bound, name) {
		return r.NewIdent(r.nextID(), name)
	}
	switch name {
	case "container":
		name, r.container = appVariable, true
	case "serviceAccount":
		return r.failRewrite(noAccount)
	case "params", "ns", "request", "variables":
		return r.failRewrite("it uses %s as a whole; a policy can express only its fields", name)
	}
	return r.NewIdent(r.nextID(), name)
}

// noAccount is the reason why a policy cannot express what reads the ServiceAccount.
const noAccount = "a policy cannot read the ServiceAccount of a pod; the API server gives it only the pod and the namespace"

// outsideName reports whether e is one of the variables that are not the pod or a container.
func (r *rewriter) outsideName(e ast.Expr) (name string, ok bool) {
	if e.Kind() != ast.IdentKind || slices.Contains(r.bound, e.AsIdent()) {
		return "", false
	}
	switch name = e.AsIdent(); name {
	case "params", "ns", "serviceAccount", "request", "variables":
		return name, true
	}
	return "", false
}

func (r *rewriter) selectPath(names ...string) ast.Expr {
	e := r.NewIdent(r.nextID(), names[0])
	for _, name := range names[1:] {
		e = r.NewSelect(r.nextID(), e, name)
	}
	return e
}

// outsideField returns a field of params, ns, request or variables. It fails for serviceAccount.
func (r *rewriter) outsideField(name, field string) ast.Expr {
	if name == "serviceAccount" {
		return r.failRewrite(noAccount)
	}
	switch name + "." + field {
	case "ns.name":
		return r.selectPath("request", "namespace")
	case "ns.labels", "ns.annotations":
		r.variables = true
		return r.orEmpty(r.selectPath("namespaceObject", "metadata"), field, r.NewMap(r.nextID(), nil))
	case "request.username":
		return r.selectPath("request", "userInfo", "username")
	case "request.dryRun":
		return r.orEmpty(r.selectPath("request"), field, r.NewLiteral(r.nextID(), types.False))
	case "request.operation":
		return r.selectPath("request", "operation")
	}
	r.variables = true
	if name == "variables" {
		return r.selectPath("variables", namedVariable(field))
	}
	return r.selectPath("variables", paramVariable(field))
}

// orEmpty returns operand.?field.orValue(empty).
func (r *rewriter) orEmpty(operand ast.Expr, field string, empty ast.Expr) ast.Expr {
	optional := r.NewCall(r.nextID(), operators.OptSelect, operand, r.NewLiteral(r.nextID(), types.String(field)))
	return r.NewMemberCall(r.nextID(), "orValue", optional, empty)
}

func (r *rewriter) rewriteSelect(s ast.SelectExpr) ast.Expr {
	if name, ok := r.outsideName(s.Operand()); ok {
		return r.outsideField(name, s.FieldName())
	}
	operand := r.rewriteOperand(s.Operand())
	if empty := r.emptyValue(s); empty != nil {
		return r.orEmpty(operand, s.FieldName(), empty)
	}
	return r.NewSelect(r.nextID(), operand, s.FieldName())
}

// emptyValue returns the value that an absent field reads as. It returns nil if reading the field is an
// error in a template too. Every pod has metadata and spec.
func (r *rewriter) emptyValue(s ast.SelectExpr) ast.Expr {
	of := r.from.GetType(s.Operand().ID())
	optional := of.Kind() == types.OpaqueKind && of.TypeName() == "optional_type"
	if optional {
		of = of.Parameters()[0]
	}
	f, ok := values.Field(of.TypeName(), s.FieldName())
	if of.Kind() != types.StructKind || !ok || of.TypeName() == "Pod" {
		return nil
	}
	var empty ast.Expr
	switch f.Type.Kind() {
	case reflect.Map, reflect.Struct:
		empty = r.NewMap(r.nextID(), nil)
	case reflect.Slice:
		empty = r.NewList(r.nextID(), nil, nil)
	}
	if optional && empty != nil {
		return r.failRewrite("it reads %s of an object that may be absent; write .?%s", s.FieldName(), s.FieldName())
	}
	return empty
}

func (r *rewriter) rewriteCall(c ast.CallExpr) ast.Expr {
	name, library := c.FunctionName(), false
	if c.IsMemberFunction() && c.Target().Kind() == ast.IdentKind {
		if first := c.Target().AsIdent(); slices.Contains(libraryNames(), first) && !slices.Contains(r.bound, first) {
			name = first + "." + name // as the type checker writes it, but not inside of macros
			library = true
		}
	}
	if lacks := r.missingFunction(name, c); lacks != "" {
		return r.failRewrite("the API server has no function %s, or a different one", lacks)
	}
	if library {
		return r.NewCall(r.nextID(), name, r.visitAll(c.Args())...)
	}
	if name == operators.OptSelect {
		if of, ok := r.outsideName(c.Args()[0]); ok {
			return r.rewriteOptional(of, c.Args()[1])
		}
		return r.NewCall(r.nextID(), name, r.rewriteOperand(c.Args()[0]), r.NewLiteral(r.nextID(), c.Args()[1].AsLiteral()))
	}
	args := r.visitAll(c.Args())
	if !c.IsMemberFunction() {
		return r.NewCall(r.nextID(), name, args...)
	}
	return r.NewMemberCall(r.nextID(), name, r.rewriteExpression(c.Target()), args...)
}

// rewriteOptional rewrites params.?x. Only an optional parameter may have no value.
func (r *rewriter) rewriteOptional(of string, field ast.Expr) ast.Expr {
	name, _ := field.AsLiteral().Value().(string)
	value := r.outsideField(of, name)
	if of == "params" && slices.Contains(r.optional, name) {
		return value
	}
	return r.NewCall(r.nextID(), "optional.of", value)
}

// missingFunction returns a function that the API server lacks, or "".
func (r *rewriter) missingFunction(name string, c ast.CallExpr) string {
	switch {
	case strings.ContainsAny(name[:1], "abcdefghijklmnopqrstuvwxyz") && !slices.Contains(sharedFunctions(), name):
		return name
	case name == "string" && r.from.GetType(c.Args()[0].ID()).TypeName() == "kubernetes.Quantity":
		return "string of a quantity"
	}
	return ""
}

// libraryNames returns the first parts of functions' names.
func libraryNames() []string {
	return []string{"sets", "optional", "strings", "lists", "ip", "base64", "hash", "json", "math", "regex"}
}

// sharedFunctions returns the functions that are the same in templates and in the API server. The API
// server has version 2 of the strings library, and templates have the latest. Their format and
// reverse differ.
func sharedFunctions() []string {
	return []string{
		"size", "contains", "startsWith", "endsWith", "matches", "string", "int", "uint", "double", "bool", "bytes",
		"type", "dyn", "duration", "timestamp", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear",
		"getFullYear", "getHours", "getMilliseconds", "getMinutes", "getMonth", "getSeconds",
		"charAt", "indexOf", "lastIndexOf", "sum", "min", "max", "isSorted", "lowerAscii", "upperAscii", "replace", "split", "join", "substring", "trim",
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

// rewriteMacro rewrites a macro in its unexpanded form.
func (r *rewriter) rewriteMacro(e ast.Expr) ast.Expr {
	c := e.AsCall()
	switch name := c.FunctionName(); name {
	case operators.Has:
		return r.rewriteHas(c.Args()[0].AsSelect())
	case "when": // the API server lacks it
		value := r.NewCall(r.nextID(), "optional.of", r.rewriteExpression(c.Args()[1]))
		return r.NewCall(r.nextID(), operators.Conditional, r.rewriteExpression(c.Args()[0]), value, r.NewCall(r.nextID(), "optional.none"))
	case "bind", "greatest", "least":
		return r.failRewrite("the API server has no function %s.%s", c.Target().AsIdent(), name)
	}
	target := r.rewriteExpression(c.Target())
	if ranged := r.from.GetType(c.Target().ID()).Kind(); slices.Contains([]string{operators.Map, operators.Filter, "transformList"}, c.FunctionName()) && ranged != types.ListKind {
		return r.failRewrite("it creates a list from a map, whose keys have no fixed order in the API server")
	}
	bound := len(r.bound)
	defer func() { r.bound = r.bound[:bound] }()
	for _, e := range c.Args()[:macroVariables(c)] {
		variable := e.AsIdent()
		if slices.Contains(reservedNames(), variable) {
			return r.failRewrite("it has a variable named %q, which means something else in a policy; rename it", variable)
		}
		r.bound = append(r.bound, variable)
	}
	return r.NewMemberCall(r.nextID(), c.FunctionName(), target, r.visitAll(c.Args())...)
}

// macroVariables returns the number of variables of a macro, which are its first arguments.
func macroVariables(c ast.CallExpr) int {
	if name := c.FunctionName(); strings.HasPrefix(name, "transform") || name != operators.Map && len(c.Args()) > 2 {
		return 2
	}
	return 1
}

// reservedNames returns the names that already have a meaning in the API server or in a policy.
func reservedNames() []string {
	return []string{"object", "oldObject", "request", "namespaceObject", "variables", "params", "authorizer", appVariable}
}

func (r *rewriter) rewriteHas(s ast.SelectExpr) ast.Expr {
	if of, ok := r.outsideName(s.Operand()); ok {
		if of == "params" && slices.Contains(r.optional, s.FieldName()) {
			return r.NewMemberCall(r.nextID(), "hasValue", r.outsideField(of, s.FieldName()))
		}
		return r.NewLiteral(r.nextID(), types.True) // they are always there
	}
	if r.isSpec(s.Operand()) && slices.Contains(containerLists(), s.FieldName()) {
		return r.NewCall(r.nextID(), operators.NotEquals, r.ownContainers(s.FieldName()), r.NewList(r.nextID(), nil, nil))
	}
	return r.NewCall(r.nextID(), operators.Has, r.NewSelect(r.nextID(), r.rewriteOperand(s.Operand()), s.FieldName()))
}
