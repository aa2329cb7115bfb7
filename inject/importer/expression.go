// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/problem"
)

// policyExpression is an expression of a policy, in the syntax of CEL. Macros stay calls.
type policyExpression struct {
	from *field // the string
	root ast.Expr
	info *ast.SourceInfo
	// workload is true if the policy changes workloads, whose pods are in spec.template.
	workload bool
}

// parseExpression parses an expression of a policy.
func parseExpression(f *field, workload bool) (*policyExpression, error) {
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true))
	if err != nil {
		return nil, err
	}
	tree, problems := p.Parse(common.NewTextSource(f.node.Value))
	if len(problems.GetErrors()) > 0 {
		first := problems.GetErrors()[0]
		return nil, fmt.Errorf("this is not CEL: line %d: %s", f.firstLine()+first.Location.Line()-1, problem.OneLine(first.Message))
	}
	return &policyExpression{f, tree.Expr(), tree.SourceInfo(), workload}, nil
}

// lineOf returns the line of an expression in the file.
func (p *policyExpression) lineOf(e ast.Expr) int {
	first := p.from.firstLine()
	if p.from.node.Style&yaml.LiteralStyle == 0 {
		return first // the lines of a folded string are not those of its value
	}
	return first + max(p.info.GetStartLocation(e.ID()).Line(), 1) - 1
}

// formatExpr returns an expression as text.
func formatExpr(e ast.Expr) string {
	text, err := parser.Unparse(e, ast.NewSourceInfo(nil), parser.WrapOnColumn(1<<30))
	if err != nil {
		return "" // an expression that a parser made can be written
	}
	return text
}

// translateExpr returns an expression of a policy as one of a template. The error names what a template cannot read.
func (p *policyExpression) translateExpr(e ast.Expr) (string, error) {
	t := &translation{ExprFactory: ast.NewExprFactory(), workload: p.workload}
	out := t.translateExpression(e)
	return formatExpr(out), t.err
}

// translation replaces the variables of a policy by those of a template.
type translation struct {
	ast.ExprFactory
	workload bool
	id       int64
	err      error
}

func (t *translation) nextID() int64 { t.id++; return t.id }

// listReadable returns what a policy can read, with how a template reads it. A longer path comes before its beginning.
func (t *translation) listReadable() [][2]string {
	all := [][2]string{
		{"namespaceObject.metadata.name", "ns.name"},
		{"namespaceObject.metadata.labels", "ns.labels"},
		{"namespaceObject.metadata.annotations", "ns.annotations"},
		{"request.namespace", "ns.name"},
		{"request.userInfo.username", "request.username"},
		{"request.operation", "request.operation"},
		{"request.dryRun", "request.dryRun"},
		{"variables", "variables"},
	}
	if t.workload {
		return append(all, [2]string{"object.spec.template", "pod"}, [2]string{"object.metadata.namespace", "ns.name"})
	}
	return append(all, [2]string{"object.metadata.namespace", "ns.name"}, [2]string{"object", "pod"})
}

// unreadable are the variables of policies.
var unreadable = []string{"object", "oldObject", "request", "params", "namespaceObject", "authorizer", "resource", "http", "images", "globalContext", "generator", "image"}

// translateExpression returns the translation of an expression.
func (t *translation) translateExpression(e ast.Expr) ast.Expr {
	if path := pathOf(e); path != "" {
		for _, pair := range t.listReadable() {
			if path == pair[0] {
				return t.fromPath(pair[1])
			}
		}
	}
	switch e.Kind() {
	case ast.IdentKind:
		switch name := e.AsIdent(); {
		case t.err != nil || !slices.Contains(unreadable, name):
		case name == "object":
			t.err = errors.New("a template reads pods, and not their workloads")
		default:
			t.err = fmt.Errorf("a template cannot read %s", name)
		}
	case ast.SelectKind:
		s := e.AsSelect()
		return t.NewSelect(t.nextID(), t.translateExpression(s.Operand()), s.FieldName())
	case ast.CallKind:
		call := e.AsCall()
		if path := pathOf(targetOf(call)); path != "" && t.err == nil && slices.Contains(unreadable, path) && path != "object" {
			t.err = fmt.Errorf("a template cannot read %s", path)
		}
		var args []ast.Expr
		for _, a := range call.Args() {
			args = append(args, t.translateExpression(a))
		}
		if call.IsMemberFunction() {
			return t.NewMemberCall(t.nextID(), call.FunctionName(), t.translateExpression(call.Target()), args...)
		}
		return t.NewCall(t.nextID(), call.FunctionName(), args...)
	case ast.ListKind:
		var items []ast.Expr
		for _, item := range e.AsList().Elements() {
			items = append(items, t.translateExpression(item))
		}
		return t.NewList(t.nextID(), items, e.AsList().OptionalIndices())
	case ast.MapKind:
		var entries []ast.EntryExpr
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			entries = append(entries, t.NewMapEntry(t.nextID(), t.translateExpression(m.Key()), t.translateExpression(m.Value()), m.IsOptional()))
		}
		return t.NewMap(t.nextID(), entries)
	case ast.StructKind:
		if t.err == nil {
			t.err = fmt.Errorf("an object %s can only be a field or an item of a list", e.AsStruct().TypeName())
		}
	}
	return t.CopyExpr(e)
}

// fromPath returns the expression for a path of names.
func (t *translation) fromPath(path string) ast.Expr {
	names := strings.Split(path, ".")
	e := t.NewIdent(t.nextID(), names[0])
	for _, name := range names[1:] {
		e = t.NewSelect(t.nextID(), e, name)
	}
	return e
}

// pathOf returns a path of names such as object.spec.containers, or "".
func pathOf(e ast.Expr) string {
	switch {
	case e == nil:
	case e.Kind() == ast.IdentKind:
		return e.AsIdent()
	case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly():
		if outer := pathOf(e.AsSelect().Operand()); outer != "" {
			return outer + "." + e.AsSelect().FieldName()
		}
	}
	return ""
}

// buildField returns an expression that makes a value as a tree of fields.
func (p *policyExpression) buildField(e ast.Expr, parent *field, name, path string) *field {
	f := &field{name: name, path: path, line: p.lineOf(e), parent: parent, kind: yaml.ScalarNode, node: textNode(formatExpr(e))}
	switch e.Kind() {
	case ast.StructKind:
		if name := e.AsStruct().TypeName(); name != "JSONPatch" && name != "Object" && !strings.HasPrefix(name, "Object.") {
			f.impossible = "there is no type " + name
			return f
		}
		f.kind = yaml.MappingNode
		for _, entry := range e.AsStruct().Fields() {
			s := entry.AsStructField()
			f.children = append(f.children, p.buildMember(s.Value(), f, s.Name(), s.IsOptional()))
		}
	case ast.MapKind:
		f.kind = yaml.MappingNode
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			key, ok := constantText(m.Key())
			if !ok {
				f.kind, f.children, f.impossible = yaml.ScalarNode, nil, "the keys of an object in a template are constant"
				return f
			}
			f.children = append(f.children, p.buildMember(m.Value(), f, key, m.IsOptional()))
		}
	case ast.ListKind:
		p.addElements(e, f)
	case ast.LiteralKind:
		f.node = literalOf(e.AsLiteral())
		f.node.Line = f.line
	case ast.CallKind:
		if !p.addLoop(e, f) && !p.addElements(e, f) {
			p.setExpression(e, f)
		}
	default:
		p.setExpression(e, f)
	}
	return f
}

// buildMember returns a field of an object. An optional one exists if its value does.
func (p *policyExpression) buildMember(e ast.Expr, parent *field, name string, optional bool) *field {
	path := joinPath(parent.path, name)
	if !optional {
		return p.buildField(e, parent, name, path)
	}
	f := &field{name: name, path: path, line: p.lineOf(e), parent: parent, kind: yaml.ScalarNode, node: textNode(formatExpr(e))}
	p.setExpression(e, f)
	return f
}

// addElements adds the elements of a list, also if it is added to the list that the pod has. It returns false for another expression.
func (p *policyExpression) addElements(e ast.Expr, f *field) bool {
	lists := []ast.Expr{e}
	if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Add {
		lists = e.AsCall().Args()
	}
	own := slices.IndexFunc(lists, func(list ast.Expr) bool { return p.podPath(list) == "spec."+f.name })
	if slices.ContainsFunc(lists, func(list ast.Expr) bool { return list.Kind() != ast.ListKind && p.podPath(list) != "spec."+f.name }) || len(lists) == 1 && own >= 0 {
		return false
	}
	f.kind, f.before = yaml.SequenceNode, own == 1
	for _, list := range lists {
		if list.Kind() == ast.ListKind {
			p.addItems(list, f)
		}
	}
	return true
}

// podPath returns the path of an expression that is a field of the pod, or "".
func (p *policyExpression) podPath(e ast.Expr) string {
	begin := "object."
	if p.workload {
		begin += "spec.template."
	}
	path, _ := strings.CutPrefix(pathOf(e), begin)
	return path
}

// addItems adds the elements of a list.
func (p *policyExpression) addItems(e ast.Expr, f *field) {
	for i, item := range e.AsList().Elements() {
		child := p.buildField(item, f, "", fmt.Sprintf("%s[%d]", f.path, len(f.children)))
		if e.AsList().IsOptional(int32(i)) {
			child.kind, child.children, child.impossible = yaml.ScalarNode, nil, "an item of a list exists under a condition in \"${when}\""
		}
		f.children = append(f.children, child)
	}
}

// setExpression makes the value of a field an expression of the template.
func (p *policyExpression) setExpression(e ast.Expr, f *field) {
	text, err := p.translateExpr(e)
	if err != nil {
		f.impossible = err.Error()
		return
	}
	f.expression = text
}

// addLoop recognizes object.spec.containers.map(c, Object.spec.containers{name: c.name, ...}), with or without a filter
// before it: a list of changes to the containers of the pod.
func (p *policyExpression) addLoop(e ast.Expr, f *field) bool {
	call := e.AsCall()
	if call.FunctionName() != "map" || !call.IsMemberFunction() || len(call.Args()) < 2 || call.Args()[0].Kind() != ast.IdentKind {
		return false
	}
	variable, value, from := call.Args()[0].AsIdent(), call.Args()[len(call.Args())-1], call.Target()
	var filters []ast.Expr
	if len(call.Args()) == 3 {
		filters = append(filters, renameVariable(call.Args()[1], variable))
	}
	if from.Kind() == ast.CallKind && from.AsCall().FunctionName() == "filter" && from.AsCall().IsMemberFunction() && len(from.AsCall().Args()) == 2 {
		filter := from.AsCall()
		filters = append([]ast.Expr{renameVariable(filter.Args()[1], filter.Args()[0].AsIdent())}, filters...)
		from = filter.Target()
	}
	if p.podPath(from) != "spec."+f.name || !isContainerName(f.name) || value.Kind() != ast.StructKind {
		return false
	}
	var where []condition
	for _, filter := range filters {
		text, err := p.translateExpr(filter)
		if err != nil {
			f.impossible = err.Error()
			return true
		}
		where = append(where, condition{expression: text})
	}
	f.kind = yaml.SequenceNode
	item := p.buildField(renameVariable(value, variable), f, "", f.path+"[*]")
	item.loop = newLoop(f.name, where...)
	item.get("name").markAs("container.name")
	f.children = []*field{item}
	return true
}

// renameVariable returns an expression with container in place of a variable.
func renameVariable(e ast.Expr, variable string) ast.Expr {
	out := ast.NewExprFactory().CopyExpr(e)
	ast.PostOrderVisit(out, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.IdentKind && e.AsIdent() == variable {
			e.SetKindCase(ast.NewExprFactory().NewIdent(e.ID(), "container"))
		}
	}))
	return out
}

// constantText returns the value of an expression that is a constant string.
func constantText(e ast.Expr) (string, bool) {
	switch e.Kind() {
	case ast.LiteralKind:
		text, ok := e.AsLiteral().(types.String)
		return string(text), ok
	case ast.CallKind:
		call := e.AsCall()
		switch {
		case call.FunctionName() == operators.Add && len(call.Args()) == 2:
			a, ok := constantText(call.Args()[0])
			b, also := constantText(call.Args()[1])
			return a + b, ok && also
		case call.FunctionName() == "escapeKey" && len(call.Args()) == 1 && pathOf(targetOf(call)) == "jsonpatch":
			key, ok := constantText(call.Args()[0])
			return strings.NewReplacer("~", "~0", "/", "~1").Replace(key), ok
		}
	}
	return "", false
}

// literalOf returns a constant as a node.
func literalOf(value any) *yaml.Node {
	switch v := value.(type) {
	case types.String:
		return textNode(string(v))
	case types.Int:
		return literalNode("!!int", strconv.FormatInt(int64(v), 10))
	case types.Uint:
		return literalNode("!!int", strconv.FormatUint(uint64(v), 10))
	case types.Double:
		return literalNode("!!float", strconv.FormatFloat(float64(v), 'f', -1, 64))
	case types.Bool:
		return literalNode("!!bool", strconv.FormatBool(bool(v)))
	case types.Null:
		return literalNode("!!null", "null")
	}
	return literalNode("!!binary", "")
}

// targetOf returns what a member function is called on, or nil.
func targetOf(call ast.CallExpr) ast.Expr {
	if !call.IsMemberFunction() {
		return nil
	}
	return call.Target()
}
