// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// reads are the parts of the pod that a template's expressions read, as
// "spec.volumes"; "*" is all of it, "spec.volumes[]" no more than which volumes there
// are, and "metadata.labels[app]" no more than that one. Whoever adds to one of them must look at the template again.
type reads map[string]bool

func (r reads) note(ident ast.NavigableExpr) {
	var fields []string
	last := ident
	for e, ok := ident.Parent(); ok && e.Kind() == ast.SelectKind; e, ok = e.Parent() {
		fields, last = append(fields, e.AsSelect().FieldName()), e
	}
	switch name := ident.AsIdent(); {
	case name == "container" && len(fields) > 0 && (fields[0] == "name" || fields[0] == "image"):
		// what identifies a container is never added to it
	case name == "container":
		r["spec.containers"], r["spec.initContainers"] = true, true
	case name == "pod" && len(fields) == 2 && fields[0] == "spec" && readsItems(last):
		r[fields[0]+"."+fields[1]+"[]"] = true
	case name == "pod" && len(fields) == 2 && fields[0] == "metadata" && keyOf(last) != "":
		r[fields[0]+"."+fields[1]+"["+keyOf(last)+"]"] = true
	case name == "pod" && len(fields) >= 2:
		r[fields[0]+"."+fields[1]] = true
	case name == "pod":
		r["*"] = true
	}
}

// readsItems says whether all that becomes of a list is its size, or a loop that reads the names of its items: these
// are what tells the items apart, so nothing is ever added to them.
func readsItems(list ast.NavigableExpr) bool {
	parent, ok := list.Parent()
	switch {
	case !ok || list.Type().Kind() != types.ListKind:
		return false
	case parent.Kind() == ast.CallKind:
		return parent.AsCall().FunctionName() == overloads.Size
	case parent.Kind() != ast.ComprehensionKind:
		return false
	}
	loop := parent.AsComprehension()
	if loop.IterRange().ID() != list.ID() || loop.HasIterVar2() {
		return false
	}
	return !slices.ContainsFunc(ast.MatchDescendants(parent, ast.KindMatcher(ast.IdentKind)), func(e ast.NavigableExpr) bool {
		item, ok := e.Parent()
		return e.AsIdent() == loop.IterVar() && (!ok || item.Kind() != ast.SelectKind || item.AsSelect().FieldName() != "name")
	})
}

// keyOf is the one key that is looked for in labels or annotations, or "".
func keyOf(texts ast.NavigableExpr) (key string) {
	parent, ok := texts.Parent()
	if !ok || texts.Type().Kind() != types.MapKind || parent.Kind() != ast.CallKind || len(parent.AsCall().Args()) != 2 {
		return ""
	}
	switch call := parent.AsCall(); call.FunctionName() {
	case operators.Index, operators.OptIndex:
		key, _ = literal(call.Args()[1])
	case operators.In:
		key, _ = literal(call.Args()[0])
	}
	return key
}

// requestOf says whether an expression reads who makes a pod, or whether in a dry run.
func requestOf(ident ast.NavigableExpr) bool {
	if ident.AsIdent() != "request" {
		return false
	}
	parent, ok := ident.Parent()
	return !ok || parent.Kind() != ast.SelectKind || parent.AsSelect().FieldName() != "operation"
}

// readsPod reports whether an expression reads the pod.
func readsPod(checked *ast.AST) bool {
	return len(ast.MatchDescendants(ast.NavigateAST(checked), func(e ast.NavigableExpr) bool {
		return e.Kind() == ast.IdentKind && e.AsIdent() == "pod"
	})) > 0
}
