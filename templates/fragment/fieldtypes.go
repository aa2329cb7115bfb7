// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"reflect"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// isScalars reports whether the type is one of scalars, or of lists of them.
func isScalars(t reflect.Type) bool {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if values.IsScalar(t) {
		return true
	}
	return t.Kind() == reflect.Slice && isScalars(t.Elem())
}

func describeWhole(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice:
		return "a list of objects of type " + t.Elem().Name()
	case reflect.Map:
		return "a map of strings"
	}
	return "an object of type " + t.Name()
}
