// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pillion-dev/pillion/templates/tree"
)

// checker walks a YAML document along a Go type and finds unknown keys, wrong
// types and doubled keys, each with its line. Where expressions are allowed
// (env is set) it compiles them; what it returns renders to the value.
type checker struct {
	file     string
	problems Problems
	compiler *compiler
	env      *cel.Env        // nil: no expressions here
	os       corev1.OSName   // that the template is for; "" is Linux
	meant    map[string]bool // paths of keys that are missing because they are misspelled
}

func (c *checker) problem(y *yaml.Node, path, format string, args ...any) {
	if c.meant[path] {
		return // the misspelled key is problem enough
	}
	c.problems = append(c.problems, Problem{File: c.file, Line: y.Line, Path: path, Message: fmt.Sprintf(format, args...)})
}

// walk checks y against t. The part is nil where there was a problem.
// Place is where it is in the API, such as Container.image.
func (c *checker) walk(y *yaml.Node, t reflect.Type, place, path string) *part {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[podFragment]() || t == reflect.TypeFor[containerFragment]() {
		return nil // another walk, once the parameters are known
	}
	if y.ShortTag() == "!!null" {
		c.problem(y, path, "has no value; leave the key out or give it one")
		return nil
	}
	if y.Kind == yaml.ScalarNode || isScalar(t) {
		return c.scalar(y, t, place, path)
	}
	switch t.Kind() {
	case reflect.Struct:
		return c.object(y, t, place, path)
	case reflect.Map:
		return c.mapping(y, t, place, path)
	case reflect.Slice:
		return c.list(y, t, place, path)
	}
	c.problem(y, path, "is not allowed in a template")
	return nil
}

func isScalar(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[Scalar]():
		return true
	}
	return t.Kind() != reflect.Struct && t.Kind() != reflect.Map && t.Kind() != reflect.Slice || t == reflect.TypeFor[[]byte]()
}

// whenKey in an object that is a list item leaves the item out where the
// expression is false.
const whenKey = "${when}"

func (c *checker) object(y *yaml.Node, t reflect.Type, place, path string) *part {
	if y.Kind != yaml.MappingNode {
		c.problem(y, path, "must be an object")
		return nil
	}
	fields := map[string]reflect.Type{}
	var names []string
	for _, f := range jsonFields(t) {
		fields[f.name] = f.Type
		names = append(names, f.name)
	}
	o := &part{kind: objectPart, path: path}
	c.pairs(y, path, func(key, value *yaml.Node, sub string) {
		if key.Value == whenKey {
			c.when(o, value, path)
			return
		}
		ft, ok := fields[key.Value]
		if !ok {
			c.problem(key, sub, "unknown key%s", didYouMean(key.Value, c.keysOf(names)))
			if meant := Closest(key.Value, names); meant != "" && child(y, meant) == nil {
				c.meant[join(path, meant)] = true
			}
			return
		}
		o.add(key.Value, c.walk(value, ft, t.Name()+"."+key.Value, sub))
	})
	if c.env != nil {
		c.hasShape(y, shapeOf(t, place), path)
		c.objectRules(y, o, objectRulesOf(t, place), path)
	}
	return o.folded()
}

// keysOf are the keys of an object with those fields.
func (c *checker) keysOf(fields []string) []string {
	if c.env == nil {
		return fields
	}
	return append([]string{whenKey}, fields...)
}

func (c *checker) when(o *part, value *yaml.Node, path string) {
	if c.env == nil || !strings.HasSuffix(path, "]") {
		c.problem(value, path, "%s", whenHint)
		return
	}
	p, err := c.compiler.compileBool(c.env, value.Value)
	if err != nil {
		c.problem(value, path, "%s: %v", whenKey, err)
		return
	}
	o.when = p
}

// pairs calls visit for each key and value, and finds doubled keys.
func (c *checker) pairs(y *yaml.Node, path string, visit func(key, value *yaml.Node, path string)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		sub := join(path, key.Value)
		switch {
		case key.ShortTag() == "!!merge":
			c.problem(key, path, "YAML merge keys (<<) are not supported; write the keys out")
		case key.Kind != yaml.ScalarNode:
			c.problem(key, path, "a key must be a string")
		case seen[key.Value]:
			c.problem(key, sub, "the key appears twice")
		default:
			seen[key.Value] = true
			visit(key, y.Content[i+1], sub)
		}
	}
}

func join(path, key string) string {
	switch {
	case path == "":
		return key
	case strings.ContainsAny(key, "./[]"):
		return fmt.Sprintf("%s[%q]", path, key)
	}
	return path + "." + key
}

func (c *checker) mapping(y *yaml.Node, t reflect.Type, place, path string) *part {
	if y.Kind != yaml.MappingNode {
		c.problem(y, path, "must be an object")
		return nil
	}
	o := &part{kind: objectPart}
	c.pairs(y, path, func(key, value *yaml.Node, sub string) {
		if strings.Contains(key.Value, "${") {
			c.problem(key, sub, "a key cannot have expressions; only values can")
			return
		}
		o.add(key.Value, c.walk(value, t.Elem(), place, sub))
	})
	return o.folded()
}

func (c *checker) list(y *yaml.Node, t reflect.Type, place, path string) *part {
	if y.Kind != yaml.SequenceNode {
		c.problem(y, path, "must be a list")
		return nil
	}
	l := &part{kind: listPart}
	for i, item := range y.Content {
		l.add("", c.walk(item, t.Elem(), place, fmt.Sprintf("%s[%d]", path, i)))
	}
	return l.folded()
}

func (c *checker) scalar(y *yaml.Node, t reflect.Type, place, path string) *part {
	if y.Kind != yaml.ScalarNode {
		c.problem(y, path, "must be %s%s", describe(t), c.notWhen(y))
		return nil
	}
	if c.env != nil && strings.Contains(y.Value, "${") {
		return c.leaf(y, t, place, path)
	}
	if t == reflect.TypeFor[Scalar]() {
		return &part{static: tree.Text(y.Value)}
	}
	if !fits(y, t) {
		c.problem(y, path, "must be %s%s", describe(t), quoteHint(y, t))
		return nil
	}
	if allowed := choices(t); allowed != nil && !slices.Contains(allowed, y.Value) {
		c.problem(y, path, "must be one of %s%s", strings.Join(allowed, ", "), didYouMean(y.Value, allowed))
		return nil
	}
	n, err := tree.Text(y.Value), error(nil)
	if y.ShortTag() != "!!str" { // which is a text here, whatever older YAML took it for
		n, err = tree.FromYAML(y)
	}
	if err == nil && c.env != nil {
		err = checkValue(rulesFor(t, place, path), &n)
	}
	if err != nil {
		c.problem(y, path, "%v", err)
		return nil
	}
	return &part{static: n}
}

// fits says whether a scalar's YAML type is what the API server takes for t.
func fits(y *yaml.Node, t reflect.Type) bool {
	tag := y.ShortTag()
	text := tag == "!!str" || tag == "!!timestamp"
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return text || tag == "!!int" || tag == "!!float"
	case reflect.TypeFor[intstr.IntOrString]():
		return text || tag == "!!int"
	case reflect.TypeFor[metav1.Time]():
		return text
	}
	switch t.Kind() {
	case reflect.Bool:
		return tag == "!!bool"
	case reflect.Int, reflect.Int32, reflect.Int64:
		var i int64
		return tag == "!!int" && y.Decode(&i) == nil && !reflect.Zero(t).OverflowInt(i)
	case reflect.String:
		return text
	}
	return t == reflect.TypeFor[[]byte]() && text
}

// choices are the texts that a type allows; nil where any will do.
func choices(t reflect.Type) []string {
	switch t {
	case reflect.TypeFor[Place]():
		return []string{string(First), string(Last)}
	case reflect.TypeFor[TokenMode]():
		return []string{string(Inherit), string(None)}
	case reflect.TypeFor[ValidateMode]():
		return []string{string(Deny), string(Warn)}
	case reflect.TypeFor[Overrider]():
		return []string{string(ByPod), string(ByNamespace)}
	case reflect.TypeFor[ParamType]():
		return ParamTypes()
	case reflect.TypeFor[corev1.OSName]():
		return []string{string(corev1.Linux), string(corev1.Windows)}
	}
	return enumerations()[t]
}

func describe(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[resource.Quantity]():
		return aQuantity
	case reflect.TypeFor[intstr.IntOrString]():
		return "an integer or a string"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	}
	return "a string"
}

func quoteHint(y *yaml.Node, t reflect.Type) string {
	if t.Kind() == reflect.String && y.Kind == yaml.ScalarNode {
		return fmt.Sprintf("; put it in quotes: %q", y.Value)
	}
	return ""
}
