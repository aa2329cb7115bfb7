// SPDX-License-Identifier: Apache-2.0

package jsontree

import (
	"reflect"
	"strings"
)

// StructField is a field of a Go struct in JSON.
type StructField struct {
	reflect.StructField
	JSON      string       // the name in JSON
	OmitEmpty bool         // zero values are left out
	Parent    reflect.Type // the struct that declares the field
}

// StructFields returns the fields of a struct in JSON, including those of embedded structs.
func StructFields(t reflect.Type) []StructField {
	var all []StructField
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			all = append(all, StructFields(f.Type)...)
		default:
			all = append(all, StructField{f, name, strings.Contains(options, "omitempty"), t})
		}
	}
	return all
}

// StructFieldOf returns the field of a struct with this name in JSON. It returns false if
// there is none.
func StructFieldOf(t reflect.Type, name string) (StructField, bool) {
	for _, f := range StructFields(t) {
		if f.JSON == name {
			return f, true
		}
	}
	return StructField{}, false
}

// FieldTypeOf returns the names of a struct's fields and the type of the field with that name, or nil
// if it has none.
func FieldTypeOf(t reflect.Type, name string) (names []string, field reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, nil
	}
	for _, f := range StructFields(t) {
		names = append(names, f.JSON)
		if f.JSON == name {
			field = f.Type
		}
	}
	return names, field
}
