// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// resolveField gives fields their lines, their conditions and their expressions. Guards are those of the parent.
func (t *goTemplate) resolveField(f *field, guards []guardOf, offset int) {
	own := t.guardsOf(f)
	if f.line > 0 && f.line <= len(t.lines) {
		f.line = t.lines[f.line-1].line + offset
	}
	if len(own) >= len(guards) && slices.Equal(own[:len(guards)], guards) {
		t.addGuards(f, own[len(guards):])
	} else {
		f.impossible = "an {{ if }} or {{ range }} ends before the object that begins in it; write its parts with \"${when}\""
	}
	if markPattern.MatchString(f.name) {
		f.impossible = "the name of a field is an action, and names in a template are constant"
		f.name = t.restoreActions(f.name)
	}
	if f.kind == yaml.ScalarNode {
		t.resolveScalar(f)
		return
	}
	for _, child := range f.children {
		t.resolveField(child, own, offset)
	}
	t.readNames(f)
	joinAlternatives(f)
	pushDown(f)
}

// guardsOf returns the conditions of the line of a field. The root and an item of a list have those of all their fields.
func (t *goTemplate) guardsOf(f *field) []guardOf {
	if f.name == "" && len(f.children) > 0 {
		common := t.guardsOf(f.children[0])
		for _, child := range f.children[1:] {
			other := t.guardsOf(child)
			n := 0
			for n < min(len(common), len(other)) && common[n] == other[n] {
				n++
			}
			common = common[:n]
		}
		return common
	}
	if f.line > 0 && f.line <= len(t.lines) {
		return t.lines[f.line-1].guards
	}
	return nil
}

// addGuards adds the conditions of lines to the field that begins there.
func (t *goTemplate) addGuards(f *field, guards []guardOf) {
	var conditions []condition
	for _, g := range guards {
		switch {
		case g.impossible != "" && f.impossible == "":
			f.impossible = g.impossible
		case g.loop:
			list := "containers"
			if g.inits {
				list = "initContainers"
			}
			f.loop = newLoop(list)
		default:
			conditions = append(conditions, condition{expression: g.condition})
		}
	}
	f.when = joinConditions(conditions)
}

// resolveScalar replaces the marks in a value.
func (t *goTemplate) resolveScalar(f *field) {
	found := markPattern.FindAllStringSubmatchIndex(f.node.Value, -1)
	if len(found) == 0 {
		return
	}
	text := f.node.Value
	whole := len(found) == 1 && found[0][0] == 0 && found[0][1] == len(strings.TrimSpace(text))
	var parts []string
	end := 0
	for _, at := range found {
		i, _ := strconv.Atoi(text[at[2]:at[3]])
		m := t.marks[i]
		switch {
		case m.impossible != "":
			f.impossible = m.impossible
		case m.fieldPath != "" && !whole:
			f.impossible = "a pod has no name yet when it is created; add a variable with valueFrom.fieldRef for " + m.fieldPath + ", and use it as $(NAME)"
		}
		if before := text[end:at[0]]; before != "" {
			parts = append(parts, celString(before))
		}
		expression := m.expression
		if whole && m.number && f.node.Style == 0 {
			expression = "int(" + expression + ")"
		}
		parts = append(parts, expression)
		f.fieldPath, end = m.fieldPath, at[1]
	}
	if rest := text[end:]; rest != "" && !whole {
		parts = append(parts, celString(rest))
	}
	for i, part := range parts {
		if len(parts) > 1 && strings.Contains(part, " ? ") {
			parts[i] = "(" + part + ")"
		}
	}
	plain := *f.node
	plain.Value, plain.Tag = t.restoreActions(text), "!!str"
	f.node, f.expression = &plain, strings.Join(parts, " + ")
}

// readNames lets a variable whose value is a field of the pod read it from the downward API, and marks names of containers.
func (t *goTemplate) readNames(f *field) {
	if value := f.get("value"); value != nil && value.fieldPath != "" && value.impossible == "" {
		from := &field{name: "valueFrom", path: value.path, line: value.line, kind: yaml.MappingNode, node: value.node, parent: f, when: value.when}
		ref := &field{name: "fieldRef", path: value.path, line: value.line, kind: yaml.MappingNode, node: value.node, parent: from}
		leaf := &field{name: "fieldPath", path: value.path, line: value.line, kind: yaml.ScalarNode, node: textNode(value.fieldPath), parent: ref}
		from.children, ref.children = []*field{ref}, []*field{leaf}
		f.children[slices.Index(f.children, value)] = from
	}
	for _, child := range f.children {
		if child.fieldPath != "" && child.name != "valueFrom" && child.impossible == "" {
			child.impossible = "a pod has no name yet when it is created; only variables can have it, from valueFrom.fieldRef for " + child.fieldPath
		}
	}
	if f.loop != nil {
		name := f.get("name")
		if name == nil || name.expression != "container.name" {
			f.impossible = "pillion import knows {{ range }} only for items whose name is that of the container; write the items with \"${forEach}\""
		}
		name.markAs("container.name")
	}
}

// joinAlternatives joins two values of one field under opposite conditions to one expression.
func joinAlternatives(f *field) {
	if f.kind != yaml.MappingNode {
		return
	}
	for i := 0; i < len(f.children); i++ {
		a := f.children[i]
		for j := i + 1; j < len(f.children); j++ {
			b := f.children[j]
			if a.name != b.name || a.impossible != "" || b.impossible != "" {
				continue
			}
			if a.kind != yaml.ScalarNode || b.kind != yaml.ScalarNode || !areOpposite(a.when, b.when) {
				b.impossible = "the field depends on a condition, and is there twice; write one of the two with \"${when}\""
				continue
			}
			a.expression = a.when + " ? " + a.scalarExpression() + " : " + b.scalarExpression()
			a.when = ""
			b.read = true
			f.children = slices.Delete(f.children, j, j+1)
			j--
		}
	}
}

// scalarExpression returns a scalar as an expression.
func (f *field) scalarExpression() string {
	switch {
	case f.expression != "":
		return f.expression
	case f.node.Tag == "!!str":
		return celString(f.node.Value)
	}
	return f.node.Value
}

// pushDown moves a condition around a part of a pod to its fields and items.
func pushDown(f *field) {
	if f.when == "" || f.kind == yaml.ScalarNode || f.kind == yaml.MappingNode && f.parent != nil && !slices.Contains([]string{"metadata", "spec", "annotations", "labels"}, f.name) {
		return
	}
	for _, child := range f.children {
		child.when = joinConditions([]condition{{expression: f.when}, {expression: child.when}})
		pushDown(child)
	}
	f.when = ""
}
