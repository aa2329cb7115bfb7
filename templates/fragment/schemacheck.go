// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/validation"
)

// schemaCheck checks a computed value against a type of the API, with the rules for written ones. It writes
// the fields of objects in the order of the API, and the keys of maps sorted.
type schemaCheck struct {
	typ     reflect.Type
	copied  bool // the value comes from the pod, so it may have fields that this program does not know
	rules   []validation.ValueRule
	objects []validation.ObjectRule
	shape   validation.Shape
	fields  []schemaField // of an object
	names   []string      // of the fields
	elem    *schemaCheck  // of a list or a map
	mounts  bool          // it is a container's volumeMounts
}

type schemaField struct {
	name   string
	needed bool
	schema *schemaCheck
}

// schemaKey is what a schemaCheck depends on.
type schemaKey struct {
	typ    reflect.Type
	field  string
	inApps bool // it is in forEachContainer
	os     v1alpha1.OS
	copied bool
}

// schemaChecks are shared by all templates: the one of a volume takes more memory than a template, and there are few of them.
var schemaChecks sync.Map

// newSchemaCheck returns the check for values of type t in a field, at a path of a template.
func newSchemaCheck(t reflect.Type, field, path string, os v1alpha1.OS, copied bool) *schemaCheck {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	key := schemaKey{t, field, strings.HasPrefix(path, "spec.forEachContainer"), os, copied}
	if known, ok := schemaChecks.Load(key); ok {
		return known.(*schemaCheck)
	}
	known, _ := schemaChecks.LoadOrStore(key, makeSchemaCheck(t, field, path, os, copied))
	return known.(*schemaCheck)
}

func makeSchemaCheck(t reflect.Type, field, path string, os v1alpha1.OS, copied bool) *schemaCheck {
	f := &schemaCheck{typ: t, copied: copied, mounts: field == "Container.volumeMounts"}
	switch {
	case isScalars(t) && t.Kind() != reflect.Slice || t == reflect.TypeFor[[]byte]():
		f.rules = validation.ValueRules(t, field, path)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Map:
		f.elem, f.rules = newSchemaCheck(t.Elem(), field, path, os, copied), validation.ListRules(field)
	default:
		f.shape, f.objects = validation.ShapeOf(t, field), validation.ObjectRules(t, field)
		f.shape.Never = slices.Concat(f.shape.Never, f.shape.Dropped, f.shape.Unrun, validation.NeverOn(os, t, path))
		for _, member := range jsontree.StructFields(t) {
			f.names = append(f.names, member.JSON)
			f.fields = append(f.fields, schemaField{member.JSON, validation.NeedsValue(t, field, member.JSON), newSchemaCheck(member.Type, t.Name()+"."+member.JSON, path, os, copied)})
		}
	}
	return f
}

// ofItems returns the check without the rules for the list as a whole.
func (f *schemaCheck) ofItems() *schemaCheck {
	items := *f
	items.rules = nil
	return &items
}

// setCanonical implements canonicalizer.
func (f *schemaCheck) setCanonical(in *cel.Input, n *jsontree.Node) (path string, err error) {
	made, err := f.buildValue(in, n)
	if at, ok := err.(*schemaError); ok { //nolint:errorlint // only this file makes it
		return at.path, at.err
	}
	*n = made
	return "", err
}

// schemaError is an error with its place in a computed value.
type schemaError struct {
	path string
	err  error
}

// Error implements error.
func (e *schemaError) Error() string { return e.path + ": " + e.err.Error() }

// prependStep returns an error of a field or an item as one of the value around it.
func prependStep(step string, err error) error {
	if at, ok := err.(*schemaError); ok { //nolint:errorlint // only this file makes it
		return &schemaError{step + at.path, at.err}
	}
	return &schemaError{step, err}
}

func (f *schemaCheck) buildValue(in *cel.Input, n *jsontree.Node) (made jsontree.Node, err error) {
	if in.Spend(1); in.SpentTooMuch() {
		return made, fmt.Errorf("the template's expressions for this pod cost more than %d", cel.MaxTemplateCost)
	}
	switch {
	case f.fields != nil:
		made, err = f.buildObject(in, n)
	case f.elem != nil && f.typ.Kind() == reflect.Slice:
		made, err = f.buildList(in, n)
	case f.elem != nil:
		made, err = f.buildMapping(in, n)
	default:
		if made = *n; !decodesAs(f.typ, n) {
			return made, fmt.Errorf("must be %s, not %s", values.DescribeType(f.typ), cutValue(n))
		}
	}
	if err == nil {
		err = validation.CheckValue(f.rules, &made)
	}
	return made, err
}

func (f *schemaCheck) buildObject(in *cel.Input, n *jsontree.Node) (made jsontree.Node, err error) {
	if n.Kind() != jsontree.Object {
		return made, fmt.Errorf("must be an object, not %s", cutValue(n))
	}
	if err := f.checkFields(n); err != nil {
		return made, err
	}
	kids := in.Nodes.Nodes(len(f.fields))
	for i := range f.fields {
		field := &f.fields[i]
		value := n.Get(field.name)
		if value == nil && field.needed {
			return made, fmt.Errorf("%s is missing", field.name)
		}
		if value == nil {
			continue
		}
		kid, err := field.schema.buildValue(in, value)
		if err != nil {
			return made, prependStep("."+field.name, err)
		}
		kid.Rename(field.name)
		kids = append(kids, kid)
	}
	made = jsontree.Members(kids...)
	return made, validation.CheckObject(f.objects, &made)
}

// checkFields checks which fields an object has.
func (f *schemaCheck) checkFields(n *jsontree.Node) error {
	alternatives := len(f.shape.One) + len(f.shape.Some)
	if f.copied && alternatives+len(f.shape.Never)+len(f.shape.Most) == 0 {
		return nil
	}
	var there, most []string
	members := n.Members()
	for i := range members {
		name := members[i].Name()
		switch {
		case members[i].Kind() == jsontree.Null:
		case slices.Contains(f.shape.Never, name):
			return fmt.Errorf("it has %s, which a template may not set", name)
		case slices.Contains(f.shape.One, name) || slices.Contains(f.shape.Some, name):
			there = append(there, name)
		case slices.Contains(f.shape.Most, name):
			most = append(most, name)
		case !f.copied && !slices.Contains(f.names, name):
			return fmt.Errorf("unknown key %q%s", name, problem.DidYouMean(name, f.names))
		}
	}
	switch {
	case len(there) == 0 && alternatives > 0:
		return fmt.Errorf("must have one of %s", strings.Join(slices.Concat(f.shape.One, f.shape.Some), ", "))
	case len(there) > 1 && len(f.shape.One) > 0, len(most) > 1:
		return fmt.Errorf("has %s; only one of them is allowed", strings.Join(append(there, most...), " and "))
	}
	return nil
}

func (f *schemaCheck) buildList(in *cel.Input, n *jsontree.Node) (made jsontree.Node, err error) {
	items := n.Items()
	switch {
	case n.Kind() != jsontree.Array:
		return made, fmt.Errorf("must be a list, not %s", cutValue(n))
	case len(items) > values.MaxItems:
		return made, fmt.Errorf("has %d items, and at most %d are allowed", len(items), values.MaxItems)
	}
	kids := in.Nodes.Nodes(len(items))
	for i := range items {
		if f.mounts && isTokenMount(&items[i]) {
			continue // serviceAccountToken decides about the token
		}
		kid, err := f.elem.buildValue(in, &items[i])
		if err != nil {
			return made, prependStep(fmt.Sprintf("[%d]", i), err)
		}
		kids = append(kids, kid)
	}
	return jsontree.Items(kids...), nil
}

// isTokenMount reports whether the ServiceAccount admission plugin made a mount.
func isTokenMount(mount *jsontree.Node) bool {
	return mount.Get("mountPath").IsText(validation.TokenPath) && strings.HasPrefix(mount.Get("name").Text(), validation.TokenVolumePrefix)
}

func (f *schemaCheck) buildMapping(in *cel.Input, n *jsontree.Node) (made jsontree.Node, err error) {
	if n.Kind() != jsontree.Object {
		return made, fmt.Errorf("must be an object, not %s", cutValue(n))
	}
	if size := len(n.Members()); size > values.MaxItems {
		return made, fmt.Errorf("has %d keys, and at most %d are allowed", size, values.MaxItems)
	}
	entries := values.SortedMembers(n)
	kids := in.Nodes.Nodes(len(entries))
	for _, e := range entries {
		kid, err := f.elem.buildValue(in, e)
		if err != nil {
			return made, prependStep(fmt.Sprintf("[%q]", e.Name()), err)
		}
		kid.Rename(e.Name())
		kids = append(kids, kid)
	}
	return jsontree.Members(kids...), nil
}

// decodesAs reports whether the API server decodes a scalar as a value of type t.
func decodesAs(t reflect.Type, n *jsontree.Node) bool {
	isText := n.Kind() == jsontree.String
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return isText || n.Kind() == jsontree.Number
	case reflect.TypeFor[intstr.IntOrString]():
		return isText || isInt(n)
	}
	switch t.Kind() {
	case reflect.Bool:
		return n.Kind() == jsontree.True || n.Kind() == jsontree.False
	case reflect.Int, reflect.Int32, reflect.Int64:
		return isInt(n)
	}
	return isText
}

func isInt(n *jsontree.Node) bool {
	_, err := strconv.ParseInt(n.String(), 10, 64)
	return n.Kind() == jsontree.Number && err == nil
}

// MaxValue is the maximum length of a template's value in a problem, in bytes.
const MaxValue = 40

func cutValue(n *jsontree.Node) string { return problem.Cut(n.String(), MaxValue) }
