// SPDX-License-Identifier: Apache-2.0

// Package schema describes the fields of a pod as the Kubernetes API defines them: how each field
// is merged, what its absence means, which default it has, and how its path is written. All data
// comes from the Go types of k8s.io/api and their tags, and from the defaults that e2e/validity
// reads from Kubernetes' own code.
package schema

import (
	"encoding/json"
	"maps"
	"math/bits"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Shape is how a value is merged.
type Shape int

// The shapes.
const (
	// Unit is merged as a whole. If the pod has no value, it gets the template's. If the pod has another
	// value, that value stays. Units are scalars, lists whose order matters, and objects whose fields
	// exclude each other (a volume's sources, an environment variable's value and valueFrom). A part
	// of such an object would make the pod invalid, or change its meaning.
	Unit    Shape = iota
	object        // a struct that is merged field by field
	mapping       // an object with free keys
	// KeyedList is a list whose items differ by a key.
	KeyedList
	// Set is a list whose order means nothing.
	Set
)

// Schema describes a place in the pod. It is immutable.
type Schema struct {
	Shape    Shape
	fields   map[string]*Field // of a struct, whether it is merged field by field or as a unit
	slots    []*Field          // the fields again, in the order that [Schema.At] needs
	Elem     *Schema           // of a list or mapping
	each     *Field            // Elem as a field, of a mapping
	Key      string            // name of the field that is the key, of a KeyedList
	Quantity bool              // whether the type is resource.Quantity
	GoType   reflect.Type      // nil if nothing is known of the place

	ownEncoding bool // see encodesItself
}

// encodesItself reports whether the type decodes and encodes its values itself.
func encodesItself(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]())
}

// Field is a place and what its absence means.
type Field struct {
	*Schema
	name string // "" for an item of a list or a value of a mapping
	// AbsentIsZero: the API server omits a zero value when it encodes a pod, so a zero value in a template means the same
	// as no value.
	AbsentIsZero bool
	Parent       reflect.Type // the struct that it is a field of, or nil
	Gated        bool         // whether the API server drops it if a feature gate is off
	AlwaysSent   bool         // whether the API server sends a zero value if there is none
}

// Pod returns the schema of a pod. It reads the fields and their types from k8s.io/api, and the keys of lists from the
// patchMergeKey tags. All callers share it.
func Pod() *Schema { return pod() }

var pod = sync.OnceValue(func() *Schema { return schemas{}.schemaOf(reflect.TypeFor[corev1.Pod]()) })

// schemas are the schemas that exist already, so that each type has one and recursive types end.
type schemas map[reflect.Type]*Schema

func (known schemas) schemaOf(t reflect.Type) *Schema {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s := known[t]; s != nil {
		return s
	}
	s := &Schema{GoType: t, ownEncoding: encodesItself(t)}
	known[t] = s
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		s.Quantity = true
	case t.Kind() == reflect.Struct:
		s.fields = map[string]*Field{}
		known.addFields(s, t)
		s.fillSlots()
		if isMergedByField(t) {
			s.Shape = object
		}
	case t.Kind() == reflect.Map:
		s.Shape, s.Elem = mapping, known.schemaOf(t.Elem())
		s.each = &Field{Schema: s.Elem}
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		s.Elem = known.schemaOf(t.Elem())
	}
	return s
}

func (known schemas) addFields(s *Schema, t reflect.Type) {
	for _, f := range jsontree.StructFields(t) {
		field := &Field{Schema: known.schemaOf(f.Type), name: f.JSON, Parent: f.Parent, Gated: values.Gated(f.Parent.Name(), f.JSON)}
		if key := f.Tag.Get("patchMergeKey"); key != "" {
			field.Schema = &Schema{Shape: KeyedList, Elem: field.Elem, Key: key, GoType: f.Type}
		} else if isSet(f.Parent, f.JSON) {
			field.Schema = &Schema{Shape: Set, Elem: field.Elem, GoType: f.Type}
		}
		field.AbsentIsZero = f.Type.Kind() != reflect.Pointer && (f.OmitEmpty || f.Type.Kind() == reflect.Struct)
		field.AlwaysSent = f.Type.Kind() != reflect.Pointer && !field.AbsentIsZero
		s.fields[f.JSON] = field
	}
}

// isMergedByField reports whether objects of a type are merged field by field, because the meaning of each
// field does not depend on the others.
func isMergedByField(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.PodSpec](), reflect.TypeFor[corev1.PodSecurityContext](),
		reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.SecurityContext](), reflect.TypeFor[corev1.Lifecycle](),
		reflect.TypeFor[corev1.ResourceRequirements]():
		return true
	}
	return t.Name() == "ObjectMeta"
}

// Droppable reports whether the API server may drop a value of this field, or everything in it, because a feature gate is off.
func (f *Field) Droppable(fragment *jsontree.Node) bool {
	if f.Gated {
		return true
	}
	members := fragment.Members()
	for i := range members {
		if !f.At(members[i].Name()).Droppable(&members[i]) {
			return false
		}
	}
	return len(members) > 0
}

// isSet reports whether a list without a key is a set, because the order of its items means
// nothing.
func isSet(parent reflect.Type, name string) bool {
	switch parent {
	case reflect.TypeFor[corev1.PodSpec]():
		return name == "tolerations"
	case reflect.TypeFor[corev1.PodSecurityContext]():
		return name == "supplementalGroups"
	}
	return false
}

// At returns the field of a struct, or the value of a mapping, with that name. For a name that the API of this
// build does not have, it returns a unit. It searches s.slots and not a map, because it is called so often that hashing
// whole names would be measurably slower.
func (s *Schema) At(name string) *Field {
	if s.Shape == mapping {
		return s.each
	}
	for i, all := firstSlot(name), s.slots; len(all) > 0; i++ {
		f := all[i&(len(all)-1)]
		if f == nil {
			break
		}
		if f.name == name {
			return f
		}
	}
	return unknown
}

// unknown is a place of which nothing is known.
var unknown = &Field{Schema: &Schema{}}

// fillSlots fills the slots, a hash table with open addressing: each field is in the first free slot from firstSlot on.
func (s *Schema) fillSlots() {
	s.slots = make([]*Field, 1<<bits.Len(uint(2*len(s.fields))))
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		i := firstSlot(name)
		for s.slots[i%len(s.slots)] != nil {
			i++
		}
		s.slots[i%len(s.slots)] = s.fields[name]
	}
}

// firstSlot returns the hash of a name. At and fillSlots reduce it to the number of slots.
func firstSlot(name string) int {
	if name == "" {
		return 0
	}
	return len(name) + int(name[0])<<1 + int(name[len(name)-1])<<3 + int(name[len(name)/2])<<2
}

// AsField returns the place as a field that may be absent.
func (s *Schema) AsField() *Field { return &Field{Schema: s} }

// ContainerType returns the [Schema.GoType] of a container.
func ContainerType() reflect.Type { return reflect.TypeFor[corev1.Container]() }

// VolumeType returns the [Schema.GoType] of a volume.
func VolumeType() reflect.Type { return reflect.TypeFor[corev1.Volume]() }

// EnvVarType returns the [Schema.GoType] of an environment variable.
func EnvVarType() reflect.Type { return reflect.TypeFor[corev1.EnvVar]() }

// VolumeMountType returns the [Schema.GoType] of a volume mount.
func VolumeMountType() reflect.Type { return reflect.TypeFor[corev1.VolumeMount]() }

// PortType returns the [Schema.GoType] of a port of a container.
func PortType() reflect.Type { return reflect.TypeFor[corev1.ContainerPort]() }

// VolumeDeviceType returns the [Schema.GoType] of a block device of a container.
func VolumeDeviceType() reflect.Type { return reflect.TypeFor[corev1.VolumeDevice]() }

// HostAliasType returns the [Schema.GoType] of the pod's entries for /etc/hosts.
func HostAliasType() reflect.Type { return reflect.TypeFor[corev1.HostAlias]() }

// ResourcesType returns the [Schema.GoType] of a container's resources.
func ResourcesType() reflect.Type { return reflect.TypeFor[corev1.ResourceRequirements]() }
