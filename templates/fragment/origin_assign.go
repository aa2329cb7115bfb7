// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// fitter checks at load time which values may become objects of the API. An annotation must never add
// structure. So an object comes from a place in the pod with the same type, or from a map literal with
// constant keys. The keys of labels and of resources are data, and may be computed.
type fitter struct {
	seen  map[fitted]bool // those that fit
	atTop bool            // the error is about the value itself, not about the value of a key
}

type fitted struct {
	t reflect.Type
	o *origin
}

// These errors contain how to write an object.
var (
	errAnything = errors.New("the fields of a value of unknown type, such as a parameter of type json, are known only at run time; " + writeKeys)
	errKeys     = errors.New("the keys of this map are not constant strings, and would become fields; " + writeKeys)
)

const writeKeys = "write an object with constant keys, such as {'name': x.name, 'value': x.value}"

// checkFit returns an error if a value of that origin may be none of the Go type t.
func (f *fitter) checkFit(t reflect.Type, o *origin) (err error) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if f.seen[fitted{t, o}] {
		return nil
	}
	f.atTop = false
	switch {
	case o.kind == fromEither:
		err = f.checkEachFit(o.either, t)
	case o.kind == fromAnything && isData(t):
		// The form checks the value.
	case o.kind == fromAnything:
		err = errAnything
	case isScalars(t) && o.kind == fromType && values.AcceptsType(t, o.typ):
	case t.Kind() == reflect.Slice && o.kind == fromList, t.Kind() == reflect.Map && o.kind == fromMap:
		err = f.checkFit(t.Elem(), o.of)
	case isScalars(t):
		f.atTop, err = true, fmt.Errorf("must be %s, not %s", values.DescribeType(t), diagnostics.TypeName(o.typ))
	case o.kind == fromLiteral && (t.Kind() == reflect.Map || t.Kind() == reflect.Struct):
		err = f.checkLiteralFit(t, o)
	case t.Kind() == reflect.Struct && o.kind == fromMap:
		err = errKeys
	case o.kind != fromType || o.typ.Kind() != types.StructKind || o.typ.TypeName() != t.Name():
		f.atTop, err = true, fmt.Errorf("must be %s, not %s", describeWhole(t), diagnostics.TypeName(o.typ))
	}
	if err == nil {
		f.seen[fitted{t, o}] = true
	}
	return err
}

// isData reports whether a value has scalars only: its structure is a list, or a map with any keys.
func isData(t reflect.Type) bool {
	return isScalars(t) || t.Kind() == reflect.Map && isData(t.Elem())
}

func (f *fitter) checkEachFit(all []*origin, t reflect.Type) error {
	for _, o := range all {
		if err := f.checkFit(t, o); err != nil {
			return err
		}
	}
	return nil
}

func (f *fitter) checkLiteralFit(t reflect.Type, o *origin) error {
	for _, key := range o.keys {
		var names []string
		var field reflect.Type
		if t.Kind() == reflect.Map {
			field = t.Elem()
		} else if names, field = jsontree.FieldTypeOf(t, key.name); field == nil {
			f.atTop = false
			return fmt.Errorf("unknown key %q%s", key.name, problem.DidYouMean(key.name, names))
		}
		if err := f.checkFit(field, key.value); err != nil {
			f.atTop = false
			return fmt.Errorf("%s: %w", key.name, err)
		}
	}
	return nil
}
