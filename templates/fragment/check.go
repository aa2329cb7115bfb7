// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/validation"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// CheckNode checks y against t. It returns nil if there was a problem. Field is the field in the API,
// for example Container.image.
func (c *Checker) CheckNode(y *yaml.Node, t reflect.Type, field, path string) *Node {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[v1alpha1.PodFragment]() || t == reflect.TypeFor[v1alpha1.ContainerFragment]() {
		return nil // walked again when the parameters are known
	}
	if p, ok := c.checkSpecialType(y, t, field, path); ok {
		return p
	}
	if y.ShortTag() == "!!null" {
		c.ReportProblem(y, path, "has no value; leave the key out or give it one")
		return nil
	}
	if t == reflect.TypeFor[v1alpha1.Positions]() && y.Kind != yaml.SequenceNode {
		t = t.Elem()
	}
	if t == reflect.TypeFor[v1alpha1.Position]() && y.Kind == yaml.ScalarNode {
		if strings.Contains(y.Value, "${") {
			return &Node{static: jsontree.Text(y.Value)} // compiled when the parameters are known
		}
		if !slices.Contains(validation.EnumValues(reflect.TypeFor[v1alpha1.End]()), y.Value) {
			c.ReportProblem(y, path, "must be First, Last, {after: NAME}, {before: NAME}, or one ${...} that gives First or Last%s", meantPosition(y.Value))
			return nil
		}
		t = reflect.TypeFor[v1alpha1.End]()
	}
	if values.IsScalar(t) || y.Kind == yaml.ScalarNode {
		return c.checkScalar(y, t, field, path)
	}
	switch t.Kind() {
	case reflect.Struct:
		return c.checkObject(y, t, field, path)
	case reflect.Map:
		return c.checkMapping(y, t, field, path)
	case reflect.Slice:
		return c.checkList(y, t, field, path)
	}
	c.ReportProblem(y, path, "is not allowed in a template")
	return nil
}

func (c *Checker) checkObject(y *yaml.Node, t reflect.Type, field, path string) *Node {
	if y.Kind != yaml.MappingNode {
		c.ReportProblem(y, path, "must be an object")
		return nil
	}
	fields := map[string]jsontree.StructField{}
	var names []string
	for _, f := range jsontree.StructFields(t) {
		fields[f.JSON] = f
		names = append(names, f.JSON)
	}
	o := &Node{kind: objectPart, path: path, line: y.Line}
	leave, ok := c.forEach(o, y, path)
	if !ok {
		return nil
	}
	defer leave()
	c.visitPairs(y, path, func(key, value *yaml.Node, sub string) {
		switch key.Value {
		case WhenKey:
			c.compileWhen(o, value, path)
			return
		case cel.ForEachKey:
			return
		case IfSetKey:
			c.ifSet(o, y, value, t, path)
			return
		}
		f, ok := fields[key.Value]
		if !ok {
			word := key.Value
			if path == "spec" {
				word = cmp.Or(otherKeys[word], word)
			}
			meantKey := problem.DidYouMean(word, c.keysOf(names))
			if place := placeOf(path, key.Value); meantKey == "" && place != "" {
				meantKey = "; write it in " + place
				defer func() { c.meant[sub] = true }()
				c.meant["spec.pod"] = c.meant["spec.pod"] || strings.HasPrefix(place, "spec.pod.")
			}
			if special := "${" + key.Value + "}"; slices.Contains(c.keysOf(nil), special) {
				meantKey = fmt.Sprintf("; did you mean %q?", special)
			}
			c.ReportProblem(key, sub, "unknown key%s", meantKey)
			c.meant[sub] = true // one problem is enough
			if meant := problem.Closest(word, names); meant != "" && yamlnode.Child(y, meant) == nil {
				c.meant[problem.JoinPath(path, meant)] = true
			}
			return
		}
		p := c.CheckNode(value, f.Type, t.Name()+"."+key.Value, sub)
		c.keepOnce(p, f)
		o.addChild(key.Value, p)
	})
	if c.scope != nil {
		c.hasShape(y, t, field, path)
		c.checkRequiredFields(y, o, t, field, path)
		c.checkObjectRules(y, o, validation.ObjectRules(t, field), path)
	}
	return o.foldStatic()
}

// keysOf returns the keys of an object with those fields.
func (c *Checker) keysOf(fields []string) []string {
	if c.scope == nil {
		return fields
	}
	return append([]string{WhenKey, cel.ForEachKey, IfSetKey}, fields...)
}

func (c *Checker) compileWhen(o *Node, value *yaml.Node, path string) {
	instead := conditionOf(path)
	if c.scope == nil && instead == "" {
		c.ReportProblem(value, path, "%s", diagnostics.WhenHint)
		return
	}
	if instead != "" {
		c.ReportProblem(value, path, `"${when}" would leave out everything; write the condition in %s`, instead)
		return
	}
	p, err := c.compiler.CompileBool(c.scope, value.Value, value.Line)
	if err != nil {
		c.ReportProblem(value, path, "%s: %v", WhenKey, err)
		return
	}
	o.when = p
}

// visitPairs calls visit for each key and value, and reports duplicate keys.
func (c *Checker) visitPairs(y *yaml.Node, path string, visit func(key, value *yaml.Node, path string)) {
	seen := map[string]bool{}
	for key, value := range yamlnode.Members(y) {
		sub := problem.JoinPath(path, key.Value)
		switch {
		case c.isFull():
			return
		case key.Kind != yaml.ScalarNode:
			c.ReportProblem(key, path, "a key must be a string")
		case seen[key.Value]:
			c.ReportProblem(key, sub, "the key appears twice")
		default:
			seen[key.Value] = true
			visit(key, value, sub)
		}
	}
}

func (c *Checker) checkMapping(y *yaml.Node, t reflect.Type, field, path string) *Node {
	if y.Kind != yaml.MappingNode {
		c.ReportProblem(y, path, "must be an object")
		return nil
	}
	o := &Node{kind: objectPart, path: path, line: y.Line}
	c.visitPairs(y, path, func(key, value *yaml.Node, sub string) {
		if key.Value == WhenKey && c.scope != nil {
			c.compileWhen(o, value, path)
			return
		}
		if key.Value == cel.ForEachKey && c.scope != nil {
			c.ReportProblem(key, sub, "%s", forEachInMap(t, field))
			return
		}
		if strings.Contains(key.Value, "${") {
			c.ReportProblem(key, sub, "a key cannot have expressions; only values can")
			return
		}
		o.addChild(key.Value, c.CheckNode(value, t.Elem(), field, sub))
	})
	c.needsItems(y, o, field, path)
	return o.foldStatic()
}

// forEachInMap returns a message about a ${forEach} in a map of type t.
func forEachInMap(t reflect.Type, field string) string {
	if notWhole(t, field) != "" {
		return fmt.Sprintf("%q makes items of lists, and the keys of this map are constant; write each key with a value that may be missing, such as ${params.settings[?'team']}", cel.ForEachKey)
	}
	return fmt.Sprintf("%q makes items of lists; write one expression that gives the map, such as ${params.settings}, in place of this object", cel.ForEachKey)
}

func (c *Checker) checkList(y *yaml.Node, t reflect.Type, field, path string) *Node {
	if y.Kind != yaml.SequenceNode {
		c.ReportProblem(y, path, "must be a list%s", ofNames(t, y))
		return nil
	}
	l := &Node{kind: listPart, path: path, line: y.Line}
	for i, item := range y.Content {
		sub := fmt.Sprintf("%s[%d]", path, i)
		if c.hasExpression(item) {
			l.addChild("", c.compileItem(item, t.Elem(), field, sub))
		} else {
			l.addChild("", c.CheckNode(item, t.Elem(), field, sub))
		}
	}
	c.needsItems(y, l, field, path)
	return l.foldStatic()
}

func (c *Checker) checkScalar(y *yaml.Node, t reflect.Type, field, path string) *Node {
	if y.Kind != yaml.ScalarNode {
		c.ReportProblem(y, path, "must be %s%s%s", values.DescribeType(t), c.notWhen(y), asAnnotation(t, y))
		return nil
	}
	if c.hasExpression(y) {
		return c.compileLeaf(y, t, field, path)
	}
	if t == reflect.TypeFor[v1alpha1.Scalar]() {
		c.written[y] = true
		return &Node{static: jsontree.Text(y.Value)}
	}
	if !values.AcceptsYAML(y, t) {
		c.ReportProblem(y, path, "must be %s%s", values.DescribeType(t), quoteHint(y, t))
		return nil
	}
	if allowed := validation.EnumValues(t); allowed != nil && !slices.Contains(allowed, y.Value) {
		c.ReportProblem(y, path, "must be one of %s%s", strings.Join(allowed, ", "), problem.DidYouMean(cmp.Or(params.SimilarType(y.Value), y.Value), allowed))
		return nil
	}
	n, err := jsontree.Text(y.Value), error(nil)
	if y.ShortTag() != "!!str" { // a string here, even if older YAML has another type for it
		n, err = jsontree.FromYAML(y)
	}
	if err == nil && c.scope != nil {
		err = validation.CheckValue(validation.ValueRules(t, field, path), &n)
	}
	if err != nil {
		c.ReportProblem(y, path, "%v", err)
		return nil
	}
	return &Node{static: n}
}

// meantPosition returns the end of a message about a position that is not valid.
func meantPosition(text string) string {
	if text := strings.ToLower(text); text == "after" || text == "before" {
		return "; write {" + text + ": NAME} with the name of a container"
	}
	return problem.DidYouMean(text, validation.EnumValues(reflect.TypeFor[v1alpha1.End]()))
}

// quoteHint returns what to write instead of a scalar that has another type because of its quotes, or is no list.
func quoteHint(y *yaml.Node, t reflect.Type) string {
	if y.Kind != yaml.ScalarNode {
		return ""
	}
	unquoted := yaml.Node{Kind: yaml.ScalarNode, Value: y.Value}
	switch {
	case t.Kind() == reflect.String:
		return fmt.Sprintf("; put it in quotes: %q", y.Value)
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return fmt.Sprintf("; write [%q]", y.Value)
	case y.ShortTag() == "!!str" && values.AcceptsYAML(&unquoted, t):
		return fmt.Sprintf("; write %s without quotes", y.Value)
	}
	return ""
}

// notWhen returns a hint if an object in a list of strings looks like a conditional item.
func (c *Checker) notWhen(y *yaml.Node) string {
	switch {
	case c.scope != nil && yamlnode.Child(y, WhenKey) != nil:
		return "; " + diagnostics.WhenHint
	case c.scope != nil && yamlnode.Child(y, cel.ForEachKey) != nil:
		return "; " + diagnostics.ForEachHint
	}
	return ""
}

// asAnnotation returns the string for a list or an object of strings that is the value of a parameter.
func asAnnotation(t reflect.Type, y *yaml.Node) string {
	if t != reflect.TypeFor[v1alpha1.Scalar]() || len(y.Content) == 0 || slices.ContainsFunc(y.Content, func(n *yaml.Node) bool { return n.Kind != yaml.ScalarNode }) {
		return ""
	}
	var text strings.Builder
	for i, n := range y.Content {
		if y.Kind == yaml.MappingNode && i%2 == 1 {
			text.WriteByte('=')
		} else if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(n.Value)
	}
	return fmt.Sprintf(", as in an annotation; write %q", problem.Cut(text.String(), MaxValue))
}

// ofNames returns the form of a list if an object is written instead.
func ofNames(t reflect.Type, y *yaml.Node) string {
	more := ", ..."
	switch t.Elem() {
	case reflect.TypeFor[corev1.EnvVar]():
		more = ", value: ..."
	case reflect.TypeFor[corev1.Container](), reflect.TypeFor[corev1.Volume](), reflect.TypeFor[v1alpha1.Param](), reflect.TypeFor[v1alpha1.Variable]():
	default:
		return ""
	}
	for i, key := range y.Content {
		switch {
		case y.Kind != yaml.MappingNode || i%2 == 1 || strings.HasPrefix(key.Value, "${"):
		case key.Value == "name":
			return "; begin the item with -"
		default:
			return "; write {name: " + key.Value + more + "} for each item"
		}
	}
	return ""
}

// checkSpecialType checks the types that stand for more than their Go type. It returns false for others.
func (c *Checker) checkSpecialType(y *yaml.Node, t reflect.Type, field, path string) (*Node, bool) {
	switch t {
	case reflect.TypeFor[PodJSON]():
		return c.CheckNode(y, reflect.TypeFor[corev1.Pod](), field, path), true
	case reflect.TypeFor[json.RawMessage]():
		n, err := jsontree.FromYAML(y)
		if err != nil {
			c.ReportProblem(y, path, "%v", err)
			return nil, true
		}
		return &Node{static: n}, true
	}
	return nil, false
}
