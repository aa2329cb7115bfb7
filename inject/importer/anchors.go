// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// An anchor of Kyverno is something around the name of a field in a patch. The kinds are how it begins.
const (
	conditionAnchor = "("  // the rule or, in a list, the item is for objects with this value
	globalAnchor    = "<(" // the rule is for pods that have an item with this value
	missingAnchor   = "+(" // the field is added if the object has none
)

// splitAnchor returns the name of a field without its anchor, and the kind of the anchor or "".
func splitAnchor(name string) (field, kind string) {
	i := strings.Index(name, "(")
	if i < 0 || i > 1 || !strings.HasSuffix(name, ")") {
		return name, ""
	}
	return name[i+1 : len(name)-1], name[:i+1]
}

func isCondition(kind string) bool { return kind == conditionAnchor || kind == globalAnchor }

// readAnchors reads the anchors of a patch. In an object, a condition is one of the whole rule. In an item of a list, it is one of
// the item, unless the anchor is global.
func (c *converter) readAnchors(f *field, path []string, each *loop) {
	for _, child := range slices.Clone(f.members()) {
		name, kind := splitAnchor(child.name)
		at := append(slices.Clone(path), name)
		switch {
		case isCondition(kind):
			f.removeChild(child)
			c.readRuleCondition(child, at)
		case kind != "" && kind != missingAnchor:
			c.loseCondition(child)
			f.removeChild(child)
		case child.kind == yaml.SequenceNode:
			c.removeMissingAnchor(child)
			for _, item := range slices.Clone(child.children) {
				c.readItemAnchors(child, item, at, each)
			}
		default:
			c.removeMissingAnchor(child)
			c.readAnchors(child, at, each)
		}
	}
}

// removeMissingAnchor removes the anchor +() of a field: adding a field if there is none is what Pillion always does.
func (c *converter) removeMissingAnchor(f *field) {
	name, kind := splitAnchor(f.name)
	if kind == missingAnchor && len(f.children) > 0 {
		c.o.recordRemark(f, "Kyverno adds this only if there is no %s at all, and Pillion adds each part of it that is missing", name)
	}
	f.name = name
}

// loseCondition reports a condition of a rule that no template expresses.
func (c *converter) loseCondition(f *field) {
	c.d.onRequest = true
	c.o.leaveOut(f, "pillion import cannot translate this condition; %s", onlyOnRequest)
}

// readRuleCondition adds a condition about a field of the pod. In an object, each field is a condition.
func (c *converter) readRuleCondition(f *field, path []string) {
	if f.kind == yaml.MappingNode && len(f.children) > 0 {
		for _, child := range f.children {
			name, _ := splitAnchor(child.name)
			c.readRuleCondition(child, append(slices.Clone(path), name))
		}
		return
	}
	test, err := "", error(nil)
	if f.kind == yaml.ScalarNode {
		test, err = fieldCondition(path, f)
	}
	if err != nil || test == "" {
		c.loseCondition(f)
		return
	}
	f.read = true
	c.d.addCondition(f, test)
}

// identifier is a name that CEL can select.
var identifier = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// fieldCondition returns a condition that a pod has a field with a value.
func fieldCondition(path []string, f *field) (string, error) {
	var value, exists string
	switch {
	case len(path) == 3 && path[0] == "metadata" && (path[1] == "annotations" || path[1] == "labels"):
		entries, key := "pod.metadata."+path[1], celString(path[2])
		value, exists = entries+"[?"+key+"].orValue('')", key+" in "+entries
	case len(path) < 2 || path[0] != "spec" || slices.ContainsFunc(path, func(name string) bool { return !identifier.MatchString(name) }):
		return "", errors.New("no template can read this field")
	case f.node.Tag == "!!bool":
		is := strings.ToLower(f.node.Value)
		return "pod.spec.?" + strings.Join(path[1:], ".?") + ".orValue(" + strconv.FormatBool(is != "true") + ") == " + is, nil
	case f.node.Tag != "!!str":
		return "", errors.New("only strings and booleans can be compared")
	default:
		optional := "pod.spec.?" + strings.Join(path[1:], ".?")
		value, exists = optional+".orValue('')", optional+".hasValue()"
	}
	test, err := patternExpression(value, f)
	switch pattern := f.peekText(); {
	case err != nil:
		return "", err
	case test == "true":
		return exists, nil
	case pattern == "" || pattern != "?*" && strings.ContainsAny(pattern, "*!"):
		return joinConditions([]condition{{expression: exists}, {expression: test}}), nil
	}
	return test, nil
}

// readItemAnchors reads the anchors of an item of a list.
func (c *converter) readItemAnchors(list, item *field, path []string, each *loop) {
	for _, child := range item.members() {
		c.readInnerAnchors(item, child)
	}
	if item.impossible == "" && isContainerList(list) && len(path) == 2 {
		c.readContainerAnchors(list, item, each)
	}
	c.readOwnAnchors(item, item)
}

// readInnerAnchors reads the anchors in a field of an item of a list.
func (c *converter) readInnerAnchors(item, f *field) {
	if f.kind != yaml.SequenceNode {
		c.readOwnAnchors(item, f)
	}
	for _, child := range f.children {
		if f.kind == yaml.SequenceNode {
			c.readItemAnchors(f, child, nil, nil)
			continue
		}
		c.readInnerAnchors(item, child)
	}
}

// readOwnAnchors reads the anchors of the fields of an object. With a condition, the item that contains it is left out.
func (c *converter) readOwnAnchors(item, f *field) {
	for _, child := range slices.Clone(f.members()) {
		switch _, kind := splitAnchor(child.name); kind {
		case globalAnchor:
			f.removeChild(child)
			c.loseCondition(child)
		case "", missingAnchor:
			c.removeMissingAnchor(child)
		default:
			item.impossible = "pillion import does not know the anchor " + child.name + " here; write the condition into \"${when}\" or into spec.match.condition"
		}
	}
}

// containerAnchor is an anchor of a container that can be a condition.
type containerAnchor struct {
	f         *field
	test      string // or "" if it is always true
	isElement bool   // the container is the one that the rule goes through
	isGlobal  bool
}

// containerAnchors returns the anchors of a container. It returns nil if one of them cannot be a condition.
func containerAnchors(list, item *field, each *loop) (all []containerAnchor) {
	for _, f := range item.members() {
		name, kind := splitAnchor(f.name)
		if name == "name" && kind != globalAnchor && isElementName(f) && each != nil && each.listName() == list.name {
			all = append(all, containerAnchor{f, each.where, true, false})
			continue
		}
		if !isCondition(kind) || name != "name" && name != "image" {
			continue
		}
		test, err := patternExpression("container."+name, f)
		if err != nil {
			return nil
		}
		if test == "true" || f.peekText() == "?*" { // a container always has both
			test = ""
		}
		all = append(all, containerAnchor{f, test, false, kind == globalAnchor})
	}
	return all
}

// readContainerAnchors reads the anchors of a container. With a condition, the container stands for those that match it. With a
// global one, it is only a condition: Kyverno adds nothing to it.
func (c *converter) readContainerAnchors(list, item *field, each *loop) {
	var where []condition
	isElement, isGlobal := false, false
	anchors := containerAnchors(list, item, each)
	for _, a := range anchors {
		a.f.read = true
		item.removeChild(a.f)
		isElement, isGlobal = isElement || a.isElement, isGlobal || a.isGlobal
		switch test := cmp.Or(a.test, "true"); {
		case a.isGlobal:
			c.d.addCondition(a.f, "pod.spec."+list.name+".exists(container, "+test+")")
		case a.isElement: // it begins with the condition that the container is in the list
			where = append([]condition{{expression: a.test}}, where...)
		default:
			where = append(where, condition{expression: a.test})
		}
	}
	switch {
	case isGlobal:
		for _, f := range slices.Clone(item.members()) {
			c.o.recordNote(f, "Kyverno adds nothing to the container of a global anchor")
		}
		item.read = true
		list.removeChild(item)
	case isElement:
		item.loop, item.when = &loop{joinConditions(where), each.initContainers}, ""
	case len(anchors) > 0:
		item.loop = newLoop(list.name, where...)
	}
}

// isElementName reports whether a string is the name of the container that a rule goes through.
func isElementName(f *field) bool {
	return strings.Join(strings.Fields(f.peekText()), "") == "{{element.name}}"
}

// removeChild removes a field from an object or an item from a list. It keeps its path.
func (f *field) removeChild(child *field) {
	f.children = slices.DeleteFunc(slices.Clone(f.children), func(c *field) bool { return c == child })
}
