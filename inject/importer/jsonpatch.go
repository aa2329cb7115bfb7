// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// operation is an operation of a JSON patch.
type operation struct {
	op, path string
	value    *field
	at       *field
	when     string // a condition, or ""
	each     *loop  // the containers for which a rule repeats the operation, or nil
}

// addPatch adds what a JSON patch adds to a pod. Its other operations are left out.
func (c *converter) addPatch(from *field, ops []operation, workload bool) {
	pod := &field{kind: yaml.MappingNode, node: mapNode(), path: from.path, line: from.line, parent: from.parent}
	for _, op := range ops {
		op.at.markScalar("op")
		op.at.markScalar("path")
		tokens := pointerTokens(op.path)
		if workload {
			if len(tokens) < 2 || tokens[0] != "spec" || tokens[1] != "template" {
				c.o.leaveOut(op.at, "this changes the workload and not its pods; Pillion adds only to pods")
				continue
			}
			tokens = tokens[2:]
		}
		switch {
		case op.op == "test":
			c.o.leaveOut(op.at, "write what this tests as a condition of the template; %s", onlyOnRequest)
			c.d.onRequest = true
		case op.op != "add":
			c.o.leaveOut(op.at, "Pillion only adds; it cannot %s anything in a pod", op.op)
		case op.value == nil:
			c.o.leaveOut(op.at, "an operation that adds needs a value")
		case len(op.value.children) == 0 && op.value.kind != yaml.ScalarNode:
			op.value.markAll() // an empty list or object, so that later operations have a place
		default:
			if why := pod.placeValue(tokens, op); why != "" {
				c.o.leaveOut(op.at, "%s", why)
				continue
			}
			c.placeAt(tokens)
			if op.value.kind == yaml.SequenceNode && op.when == "" {
				c.o.recordRemark(op.at, "the patch replaces this list if the pod has it already, and Pillion adds to it")
			}
		}
	}
	c.addPod(pod)
}

// placeAt puts the template's containers first if a patch adds one before all others.
func (c *converter) placeAt(tokens []string) {
	if len(tokens) != 3 || tokens[0] != "spec" || tokens[2] != "0" {
		return
	}
	switch tokens[1] {
	case "initContainers":
		c.d.placeInit = "First"
	case "containers":
		c.d.placeContainers = "First"
	}
}

// pointerTokens returns the parts of a JSON pointer.
func pointerTokens(pointer string) []string {
	tokens := strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	for i, t := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return tokens
}

// placeValue puts a value at a path in the tree of a pod. A container with an index becomes a change of that container. It
// returns why that is not possible, or "".
func (f *field) placeValue(tokens []string, op operation) string {
	at, value, when := f, op.value, op.when
	if isElement := func(token string) bool { return strings.Contains(token, "elementIndex") }; slices.ContainsFunc(tokens, isElement) != (op.each != nil) {
		return "a rule that goes through containers adds to the container with {{elementIndex}}; write the rest without \"${forEach}\""
	}
	for i := 0; i < len(tokens); i++ {
		name, last := tokens[i], i == len(tokens)-1
		switch {
		case !slices.Contains(podLists, name) || at.isMetadata():
			if last {
				value.name, value.when = name, when
				at.children = append(at.children, value)
				return ""
			}
			at = at.ensureChild(name, yaml.MappingNode)
		case last:
			list := at.ensureChild(name, yaml.SequenceNode)
			if value.kind != yaml.SequenceNode {
				return fmt.Sprintf("the value for %s is not a list of objects that are written in the patch; write them into the template", name)
			}
			for _, item := range value.children {
				item.when = when
				item.parent = list
				list.children = append(list.children, item)
			}
			return ""
		case i == len(tokens)-2:
			list := at.ensureChild(name, yaml.SequenceNode)
			value.name, value.when, value.parent = "", when, list
			list.children = append(list.children, value)
			return ""
		case isContainerName(name) && op.each != nil && op.each.initContainers == (name == "initContainers"):
			at = at.ensureChild(name, yaml.SequenceNode).loopItem(op.each, when)
			i++
		case isContainerName(name):
			index, err := strconv.Atoi(tokens[i+1])
			if err != nil || index < 0 {
				return "the path has no number for the container"
			}
			at = at.ensureChild(name, yaml.SequenceNode).containerAt(name, index, when)
			i++
		default:
			return fmt.Sprintf("the path leads into an item of %s by its number; write the item into the template", name)
		}
	}
	return "the path leads to the whole pod"
}

// ensureChild returns a field of an object, which is made if it does not exist.
func (f *field) ensureChild(name string, kind yaml.Kind) *field {
	if child := f.get(name); child != nil && child.kind == kind {
		return child
	}
	child := &field{name: name, kind: kind, node: mapNode(), parent: f, path: f.path, line: f.line}
	f.children = append(f.children, child)
	return child
}

// containerAt returns the change of a container with an index, which is made if it does not exist.
func (f *field) containerAt(list string, index int, when string) *field {
	where := fmt.Sprintf("container.name == pod.spec.%s[%d].name", list, index)
	if index > 0 || list == "initContainers" {
		where = fmt.Sprintf("size(pod.spec.%s) > %d && %s", list, index, where)
	}
	return f.loopItem(&loop{where, list == "initContainers"}, when)
}

// loopItem returns the change of some containers under a condition, which is made if it does not exist.
func (f *field) loopItem(l *loop, when string) *field {
	for _, item := range f.children {
		if item.loop != nil && *item.loop == *l && item.when == when {
			return item
		}
	}
	item := &field{kind: yaml.MappingNode, node: mapNode(), parent: f, path: f.path, line: f.line, when: when, loop: l}
	f.children = append(f.children, item)
	return item
}

// withoutAlternatives joins two operations that do the same under opposite conditions: one makes a list, and the other
// one adds to it.
func withoutAlternatives(ops []operation) []operation {
	var kept []operation
	for _, op := range ops {
		i := slices.IndexFunc(kept, func(k operation) bool {
			return k.when != "" && areOpposite(k.when, op.when) && k.effectKey() == op.effectKey()
		})
		if i < 0 {
			kept = append(kept, op)
			continue
		}
		kept[i].when = ""
		op.at.markAll()
	}
	return kept
}

// effectKey returns a string that is the same for operations that add the same items.
func (op operation) effectKey() string {
	if op.value == nil {
		return op.op + " " + op.path
	}
	path, ok := strings.CutSuffix(op.path, "/-")
	value := op.value.valueInOneLine()
	if ok {
		value = "[" + value + "]"
	}
	if op.value.kind == yaml.SequenceNode && !ok && len(op.value.children) == 1 {
		value = "[" + op.value.children[0].valueInOneLine() + "]"
	}
	return op.op + " " + path + " " + value
}
