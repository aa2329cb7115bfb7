// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// The names of the variables' types in CEL.
const (
	paramsType    = "pillion.Params"
	namespaceType = "pillion.Namespace"
	accountType   = "pillion.ServiceAccount"
	requestType   = "pillion.Request"
	variablesType = "pillion.Variables"
)

// provider defines the fields of pod, container, params, ns, serviceAccount and request for the CEL type checker,
// so that loading a template finds a misspelled field. It reads these fields when an expression is
// evaluated.
type provider struct {
	types.Provider
	structs structs // shared by all templates, read-only
	params  map[string]*structField

	variables map[string]*structField
}

// structs has the fields of types by name.
type structs map[string]map[string]*structField

// structField is a field. If it is a Go struct's, json is set.
type structField struct {
	types.FieldType
	json jsontree.StructField
}

func newProvider(base types.Provider, params []v1alpha1.Param) *provider {
	p := &provider{Provider: base, structs: sharedStructs(), params: map[string]*structField{}, variables: map[string]*structField{}}
	for i := range params {
		name := params[i].Name
		f := newGetterField(celOf(&params[i]), func(v Values) any { return v.celValueOf(name) })
		if params[i].Optional {
			f.IsSet = func(obj any) bool { return obj.(Values).isSet(name) }
		}
		p.params[name] = f
	}
	return p
}

// sharedStructs are the types that are the same for every template. They take more memory than a
// template.
var sharedStructs = sync.OnceValue(func() structs {
	s := structs{
		namespaceType: metaFields(),
		accountType:   metaFields(),
		requestType: {
			"operation": newGetterField(types.StringType, func(r *request.Info) any { return r.Operation }),
			"username":  newGetterField(types.StringType, func(r *request.Info) any { return celText(r.Username) }),
			"dryRun":    newGetterField(types.BoolType, func(r *request.Info) any { return r.DryRun }),
		},
	}
	s.addStruct(reflect.TypeFor[corev1.Pod]())
	return s
})

// metaFields are the fields of a namespace and of a ServiceAccount.
func metaFields() map[string]*structField {
	return map[string]*structField{
		"name":        newGetterField(types.StringType, func(m *metaView) any { return m.name }),
		"labels":      newGetterField(stringMap(), func(m *metaView) any { return m.labels.convertOnce() }),
		"annotations": newGetterField(stringMap(), func(m *metaView) any { return m.annotations.convertOnce() }),
	}
}

func stringMap() *types.Type { return types.NewMapType(types.StringType, types.StringType) }

func newGetterField[T any](t *types.Type, get func(T) any) *structField {
	return &structField{FieldType: types.FieldType{
		Type:    t,
		IsSet:   func(any) bool { return true },
		GetFrom: func(obj any) (any, error) { return get(obj.(T)), nil },
	}}
}

// addStruct adds a Go struct of the Kubernetes API and all types that it contains.
func (s structs) addStruct(t reflect.Type) {
	if _, ok := s[t.Name()]; ok {
		return
	}
	fields := map[string]*structField{}
	s[t.Name()] = fields
	for _, f := range jsontree.StructFields(t) {
		if Gated(f.Parent.Name(), f.JSON) {
			continue
		}
		if notSetYet(t, f.JSON) == "" || t == reflect.TypeFor[metav1.ObjectMeta]() && f.JSON == "name" { // see readsPodName
			fields[f.JSON] = &structField{json: f, FieldType: types.FieldType{
				Type: s.celType(f.Type),
				IsSet: func(obj any) bool {
					n, ok := obj.(*jsontree.Node)
					return ok && n.Get(f.JSON) != nil
				},
				GetFrom: func(obj any) (any, error) { return getField(obj, f) },
			}}
		}
	}
}

// getField reads a field. Absent labels, annotations, lists and metadata read as empty, because the
// API server omits empty ones. has() still distinguishes them. Some strings and numbers that the
// API server never omits, such as a container's name, also read as empty.
func getField(obj any, f jsontree.StructField) (any, error) {
	if n, ok := obj.(*jsontree.Node); ok {
		if value := n.Get(f.JSON); value != nil {
			return celValue(value), nil
		}
	}
	switch f.Type.Kind() {
	case reflect.String:
		if !f.OmitEmpty {
			return types.String(""), nil
		}
	case reflect.Int32:
		if !f.OmitEmpty {
			return types.Int(0), nil
		}
	case reflect.Slice:
		return types.NewRefValList(types.DefaultTypeAdapter, nil), nil
	}
	if readsAsEmpty(f.Type.Kind()) {
		return textMap(nil), nil
	}
	return nil, fmt.Errorf("no such key: %s", f.JSON)
}

// readsAsEmpty reports whether an absent field of that kind can be read. A struct is not a pointer
// in Kubernetes and therefore always exists: metadata and resources, for example.
func readsAsEmpty(k reflect.Kind) bool {
	return k == reflect.Map || k == reflect.Slice || k == reflect.Struct
}

// notSetYet returns why a field cannot be read: it has no value yet when a pod is admitted. An
// example is the name of a pod with generateName.
func notSetYet(t reflect.Type, field string) string {
	switch t {
	case reflect.TypeFor[metav1.ObjectMeta]():
		switch field {
		case "name", "uid", "creationTimestamp", "resourceVersion", "selfLink", "generation", "managedFields":
			return "metadata." + field
		}
	case reflect.TypeFor[corev1.Pod]():
		if field == "status" {
			return field
		}
	case reflect.TypeFor[corev1.PodSpec]():
		if field == "nodeName" {
			return "spec.nodeName"
		}
	}
	return ""
}

func (s structs) celType(t reflect.Type) *types.Type {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.FieldsV1]():
		return types.DynType
	case reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](), reflect.TypeFor[[]byte](): // base64 in JSON
		return types.StringType
	}
	if s, ok := scalarTypeOf(t); ok && len(s.cel) == 1 {
		return s.cel[0]
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.celType(t.Elem())
	case reflect.Slice:
		return types.NewListType(s.celType(t.Elem()))
	case reflect.Map:
		return types.NewMapType(types.StringType, s.celType(t.Elem()))
	case reflect.Struct:
		s.addStruct(t)
		return cel.ObjectType(t.Name())
	}
	return types.DynType
}

// typeFields returns the fields of a type of this provider.
func (p *provider) typeFields(name string) (map[string]*structField, bool) {
	switch name {
	case paramsType:
		return p.params, true
	case variablesType:
		return p.variables, true
	}
	fields, ok := p.structs[name]
	return fields, ok
}

// FindStructType implements types.Provider.
func (p *provider) FindStructType(name string) (*types.Type, bool) {
	if _, ok := p.typeFields(name); ok {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p *provider) FindStructFieldNames(name string) ([]string, bool) {
	fields, ok := p.typeFields(name)
	if !ok {
		return p.Provider.FindStructFieldNames(name)
	}
	return slices.Collect(maps.Keys(fields)), true
}

// FindStructFieldType implements types.Provider.
func (p *provider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields, ok := p.typeFields(name); ok {
		if f := fields[field]; f != nil {
			return &f.FieldType, true
		}
		return nil, false
	}
	return p.Provider.FindStructFieldType(name, field)
}

func celName(t *cel.Type) string {
	switch t.Kind() {
	case types.DynKind:
		return "a value of unknown type"
	case types.OpaqueKind:
		if strings.HasPrefix(t.String(), "optional_type(") {
			return "an optional value (end it with .orValue(...))"
		}
	}
	return typeWords(t.String())
}

// nestingLevels returns the number of levels of nested lists and maps in the type. CEL's cost model
// charges nothing for comparing nested values. The real cost doubles with each level if a list
// contains the same value twice.
func nestingLevels(t *types.Type) (levels int) {
	for _, of := range t.Parameters() {
		levels = max(levels, nestingLevels(of))
	}
	if t.Kind() == types.ListKind || t.Kind() == types.MapKind {
		levels++
	}
	return levels
}

// checkHiddenNesting returns an error if an expression makes a value of unknown type from a list: the type then
// no longer shows how deep the list is. This happens if the arguments of a function must have a
// common type, and one of them is dyn. Literals with values of different types are checked in
// [sameTypes].
func checkHiddenNesting(checked *ast.AST, e ast.Expr) error {
	if e.Kind() != ast.CallKind {
		return nil
	}
	call, parts := e.AsCall(), []ast.Expr(nil)
	switch call.FunctionName() {
	case "dyn", operators.Conditional, operators.Add:
		parts = call.Args()
	case "or", "orValue":
		parts = append([]ast.Expr{call.Target()}, call.Args()...)
	}
	result := checked.GetType(e.ID())
	if !isListOfDyn(result) {
		return nil
	}
	for _, part := range parts {
		if !isEmpty(part) && nestingLevels(checked.GetType(part.ID())) > nestingLevels(result) {
			if call.FunctionName() == "dyn" {
				return errors.New("dyn() of a list or a map hides how deep it is; leave out dyn(): json.marshal() and computed objects take values of different types")
			}
			return errors.New("a value that may be a list or something else hides how deep the list is; use the list itself")
		}
	}
	return nil
}

// isListOfDyn reports whether the type is dyn, or a list of it at any depth.
func isListOfDyn(t *types.Type) bool {
	return t.Kind() == types.DynKind || (t.Kind() == types.ListKind || t.Kind() == types.OpaqueKind) && slices.ContainsFunc(t.Parameters(), isListOfDyn)
}

// isEmpty reports whether an expression is [] or {}.
func isEmpty(e ast.Expr) bool {
	return e.Kind() == ast.ListKind && e.AsList().Size() == 0 || e.Kind() == ast.MapKind && e.AsMap().Size() == 0
}
