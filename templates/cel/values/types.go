// SPDX-License-Identifier: Apache-2.0

package values

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
)

// The names of the types of the variables params, ns, serviceAccount, request and variables.
const (
	ParamsType         = "pillion.Params"
	NamespaceType      = "pillion.Namespace"
	ServiceAccountType = "pillion.ServiceAccount"
	RequestType        = "pillion.Request"
	VariablesType      = "pillion.Variables"
)

// structs has the fields of types by name.
type structs map[string]map[string]*structField

// structField is a field. If it is a Go struct's, json is set.
type structField struct {
	*types.FieldType
	json jsontree.StructField
}

// sharedStructs are the types that are the same for every template. They take more memory than a
// template.
var sharedStructs = sync.OnceValue(func() structs {
	s := structs{
		NamespaceType:      metaFields(),
		ServiceAccountType: metaFields(),
		RequestType: {
			"operation": {FieldType: NewField(types.StringType, func(r *request.Info) any { return r.Operation })},
			"username":  {FieldType: NewField(types.StringType, func(r *request.Info) any { return ofText(r.Username) })},
			"dryRun":    {FieldType: NewField(types.BoolType, func(r *request.Info) any { return r.DryRun })},
		},
	}
	s.addStruct(reflect.TypeFor[corev1.Pod]())
	return s
})

// metaFields are the fields of a namespace and of a ServiceAccount.
func metaFields() map[string]*structField {
	return map[string]*structField{
		"name":        {FieldType: NewField(types.StringType, func(m *metaView) any { return m.name })},
		"labels":      {FieldType: NewField(stringMap(), func(m *metaView) any { return m.labels.convertOnce() })},
		"annotations": {FieldType: NewField(stringMap(), func(m *metaView) any { return m.annotations.convertOnce() })},
	}
}

func stringMap() *types.Type { return types.NewMapType(types.StringType, types.StringType) }

// NewField returns a field of type t that all objects of a type have, if these are a T in Go.
func NewField[T any](t *types.Type, get func(T) any) *types.FieldType {
	return &types.FieldType{
		Type:    t,
		IsSet:   func(any) bool { return true },
		GetFrom: func(obj any) (any, error) { return get(obj.(T)), nil },
	}
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
			fields[f.JSON] = &structField{json: f, FieldType: &types.FieldType{
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
			return Of(value), nil
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
	if ReadsAsEmpty(f.Type.Kind()) {
		return ofStrings(nil), nil
	}
	return nil, fmt.Errorf("no such key: %s", f.JSON)
}

// ReadsAsEmpty reports whether an absent field of that kind can be read. A struct is not a pointer
// in Kubernetes and therefore always exists: metadata and resources, for example.
func ReadsAsEmpty(k reflect.Kind) bool {
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
		return types.NewObjectType(t.Name())
	}
	return types.DynType
}

// IsStruct reports whether a type of that name is an object whose fields expressions can read, for example Container.
func IsStruct(name string) bool { return sharedStructs()[name] != nil }

// Field returns the field of a struct of the pod's API, by its name in JSON. It returns false if expressions cannot read it.
func Field(structName, name string) (jsontree.StructField, bool) {
	f, ok := sharedStructs()[structName][name]
	if !ok {
		return jsontree.StructField{}, false
	}
	return f.json, true
}

// structProvider defines the fields of pod, container, ns, serviceAccount and request for the CEL type checker. It reads
// them when an expression is evaluated.
type structProvider struct{ types.Provider }

// NewProvider returns a provider that knows these objects and, from base, all other types.
func NewProvider(base types.Provider) types.Provider { return structProvider{base} }

// FindStructType implements types.Provider.
func (p structProvider) FindStructType(name string) (*types.Type, bool) {
	if IsStruct(name) {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (p structProvider) FindStructFieldNames(name string) ([]string, bool) {
	if fields := sharedStructs()[name]; fields != nil {
		return slices.Collect(maps.Keys(fields)), true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider.
func (p structProvider) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields := sharedStructs()[name]; fields != nil {
		if f := fields[field]; f != nil {
			return f.FieldType, true
		}
		return nil, false
	}
	return p.Provider.FindStructFieldType(name, field)
}

// metaView is a namespace or a ServiceAccount as the fields of its CEL value read it. All expressions of a template share its
// maps.
type metaView struct {
	name                string
	labels, annotations onceMap
}

// onceMap is a map that is converted at most once.
type onceMap struct {
	of   map[string]string
	made ref.Val
}

func (m *onceMap) convertOnce() ref.Val {
	if m.made == nil {
		m.made = ofStrings(m.of)
	}
	return m.made
}
