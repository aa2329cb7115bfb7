// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// reads are the parts of the pod that a template's expressions read, for example "spec.volumes".
// "*" is the whole pod, "spec.volumes[]" only the set of volumes, and "metadata.labels[app]" only
// that label. If something is added to one of them, the template must be evaluated again.
type reads map[string]bool

// Dependencies are what the result of a template depends on, as far as its expressions and parameters show.
type Dependencies struct {
	parts          reads
	params         map[string]bool
	request        bool
	gated          bool
	serviceAccount bool
}

// Parts returns the parts of the pod that the template's result depends on, sorted. A part is named
// by its first two fields, for example "spec.volumes"; "*" is the whole pod. "spec.containers[]" is
// only the set of containers, "metadata.labels[app]" only that label, and "metadata.annotations[a/b*]"
// only the annotations with that prefix.
func (d *Dependencies) Parts() []string { return slices.Sorted(maps.Keys(d.parts)) }

// ReadsPodName reports whether an expression reads the name of the pod.
func (d *Dependencies) ReadsPodName() bool { return d.parts[podName] }

// ReadsParam reports whether an expression reads a parameter.
func (d *Dependencies) ReadsParam(name string) bool { return d.params[name] }

// ReadsRequest reports whether an expression reads the user who creates a pod, or whether the request is a dry run.
func (d *Dependencies) ReadsRequest() bool { return d.request }

// ReadsGated reports whether an expression reads an object that may contain gated fields, other than
// field by field.
func (d *Dependencies) ReadsGated() bool { return d.gated }

// ReadsServiceAccount reports whether the result depends on the labels or annotations of the pod's ServiceAccount.
func (d *Dependencies) ReadsServiceAccount() bool { return d.serviceAccount }

// NamesServiceAccount reports whether the result depends on the pod's ServiceAccount, if only on its name.
func (d *Dependencies) NamesServiceAccount() bool {
	return d.serviceAccount || d.parts[request.AccountName]
}

// NoteLabels records that the result depends on all labels of the pod.
func (d *Dependencies) NoteLabels() { d.parts["metadata.labels"] = true }

// NoteParams records where the values of parameters come from, besides the template's own annotations.
func (d *Dependencies) NoteParams(declared []v1alpha1.Param, set *params.Set) {
	d.parts.noteSources(declared)
	if set.SetByServiceAccount() {
		d.serviceAccount, d.parts[request.AccountName] = true, true
	}
}

func (r reads) noteIdent(ident ast.NavigableExpr) {
	var fields []string
	last := ident
	for e, ok := ident.Parent(); ok && e.Kind() == ast.SelectKind; e, ok = e.Parent() {
		fields, last = append(fields, e.AsSelect().FieldName()), e
	}
	switch name := ident.AsIdent(); {
	case name == "container" && len(fields) > 0 && (fields[0] == "name" || fields[0] == "image"):
		// Pillion never adds to the fields that identify a container.
	case name == "container":
		r["spec.containers"], r["spec.initContainers"] = true, true
	case name == "pod" && len(fields) == 1 && fields[0] == "metadata" && readsOptionally(last, "name"):
		r[podName] = true
	case name == "pod" && len(fields) == 2 && fields[0] == "spec" && readsItems(last):
		r[fields[0]+"."+fields[1]+"[]"] = true
	case name == "pod" && len(fields) == 2 && fields[0] == "metadata" && keyOf(last) != "":
		r[fields[0]+"."+fields[1]+"["+keyOf(last)+"]"] = true
	case name == "pod" && len(fields) >= 2:
		r[fields[0]+"."+fields[1]] = true
	case name == "pod":
		r["*"] = true
	case name == request.AccountVariable:
		r[request.AccountName] = true
	}
}

// readsItems reports whether an expression uses only the size of a list, or loops over the names of
// its items. Names identify items, so Pillion never adds one to an existing item.
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

// readsOptionally reports whether an expression uses an object only as in object.?field.
func readsOptionally(object ast.NavigableExpr, field string) bool {
	parent, ok := object.Parent()
	if !ok || parent.Kind() != ast.CallKind || parent.AsCall().FunctionName() != operators.OptSelect {
		return false
	}
	name, _ := StringLiteral(parent.AsCall().Args()[1])
	return name == field
}

// keyOf returns the only key that an expression looks up in labels or annotations, or "".
func keyOf(texts ast.NavigableExpr) (key string) {
	parent, ok := texts.Parent()
	if !ok || texts.Type().Kind() != types.MapKind || parent.Kind() != ast.CallKind || len(parent.AsCall().Args()) != 2 {
		return ""
	}
	switch call := parent.AsCall(); call.FunctionName() {
	case operators.Index, operators.OptIndex:
		key, _ = StringLiteral(call.Args()[1])
	case operators.In:
		key, _ = StringLiteral(call.Args()[0])
	}
	return key
}

// requestOf reports whether an expression reads the user who creates a pod, or whether the request
// is a dry run.
func requestOf(ident ast.NavigableExpr) bool {
	if ident.AsIdent() != "request" {
		return false
	}
	parent, ok := ident.Parent()
	return !ok || parent.Kind() != ast.SelectKind || parent.AsSelect().FieldName() != "operation"
}

// readsAccount reports whether an identifier is the ServiceAccount, and more than its name is read.
func readsAccount(ident ast.NavigableExpr) bool {
	if ident.AsIdent() != request.AccountVariable {
		return false
	}
	parent, ok := ident.Parent()
	return !ok || parent.Kind() != ast.SelectKind || parent.AsSelect().FieldName() != "name"
}

// noteSources records the annotations of other products as parts of the pod that the template
// reads: a template may add them. Its own annotations are not read here, because no template may
// add those.
func (r reads) noteSources(declared []v1alpha1.Param) {
	for i := range declared {
		switch p := &declared[i]; {
		case p.Prefix != "":
			r["metadata.annotations["+p.Prefix+"*]"] = true
		case p.Annotation != "":
			r["metadata.annotations["+p.Annotation+"]"] = true
		}
	}
}
