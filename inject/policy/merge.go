// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// place is a place in the pod.
type place struct {
	at   string // JSON pointer, as the inside of a string in CEL
	what string // for users
	name string // of the type in CEL, such as Object.spec.volumes
}

func (p place) member(name string) place {
	return place{p.at + "/" + jsontree.Escape(name), strings.TrimPrefix(p.what+"."+name, "."), p.name + "." + name}
}

func (p place) item(key string) place {
	return place{p.at + "/-", p.what + "[" + key + "]", p.name}
}

// addition is one operation of the patch. It is done if nothing else is at the place.
type addition struct {
	place
	when     string
	value    string
	path     string // in the template; "" if only Pillion has it
	conflict string // a condition that nothing else is at the place, or the whole template is not added; "" is always true
}

// operationExpression returns an optional item of a list of operations.
func (a *addition) operationExpression() string {
	return fmt.Sprintf("?(%s) ?\n  optional.of(JSONPatch{op: \"add\", path: %s, value: %s}) :\n  optional.none()", a.when, strings.TrimSuffix(`"`+a.at+`"`, ` + ""`), a.value)
}

// mergeNode returns the additions for the members of a node that an object of the pod lacks, as the
// engine's planner does. It adds absent members, merges objects recursively, and adds the items of
// a list whose key is new. The object is x in CEL.
func (b *builder) mergeNode(n *node, x string, at place) (all []addition) {
	for i := range n.members() {
		name, child, here := n.names[i], &n.children[i], at.member(n.names[i])
		own := addition{place: here, when: "!has(" + x + "." + name + ")", value: child.text, path: child.path}
		switch {
		case at.name == "Object.spec" && slices.Contains(containerLists(), name):
			continue // see containerInsertions
		case isMap(n.field):
			own.when = fmt.Sprintf("!(%q in %s)", name, x)
		case child.list:
			all = append(all, b.mergeItems(child, x, name, own)...)
			continue
		case child.object:
			empty := here.name + "{}"
			if isMap(child.field) {
				empty = "{}"
			}
			all = append(append(all, addition{place: here, when: own.when, value: empty}), b.mergeNode(child, x+".?"+name+".orValue({})", here)...)
			continue
		case name == "shareProcessNamespace":
			shown := fmt.Sprintf("(%s && object.spec.?hostPID.orValue(false))", child.text)
			own.when += " && !" + shown
			own.conflict = fmt.Sprintf("!has(%[1]s.%[2]s) || %[1]s.%[2]s == %[3]s || %[4]s", x, name, child.text, shown)
		}
		all = append(all, own)
	}
	return all
}

// mergeItems returns what the list x.name of the pod lacks of a node. The list whose order matters, envFrom, is added as a
// whole, but item by item: a list of objects as a value makes the API server of Kubernetes 1.36 panic.
func (b *builder) mergeItems(n *node, x, name string, list addition) []addition {
	theirs := x + ".?" + name + ".orValue([])"
	all := []addition{{place: list.place, when: list.when, value: "[]"}}
	if n.field.Elem.GoType == schema.VolumeMountType() { // other paths could be any place
		all[0].conflict = theirs + `.all(x, !x.mountPath.matches("//|/\\.\\.?(/|$)"))`
	}
	for i := range n.children {
		item := &n.children[i]
		key, same := b.keyCondition(item, n.field)
		own := addition{place: list.item(key), when: fmt.Sprintf("!%s.exists(x, %s)", theirs, same), value: item.celValue(list.name), path: item.path}
		if names := item.get("hostnames"); item.field.GoType == schema.HostAliasType() && names != nil {
			rest := fmt.Sprintf("%s.filter(name, !%s.exists(x, %s && name in x.?hostnames.orValue([])))", names.celValue(""), theirs, same)
			own.when = "size(" + rest + ") > 0"
			own.value = fmt.Sprintf("%s{ip: %s, hostnames: %s}", list.name, item.get("ip").text, rest)
		}
		if n.field.Shape == schema.Unit {
			own.when = list.when
		}
		if item.when != "" {
			own.when = fmt.Sprintf("(%s) && %s", item.when, own.when)
		}
		switch item.field.GoType {
		case schema.VolumeType():
			own.conflict = item.whenPresent(fmt.Sprintf("%s.all(x, !(%s) || (%s))", theirs, same, b.containsNode(item, "x")))
		case schema.VolumeMountType():
			own.conflict = item.whenPresent(fmt.Sprintf("%s.all(x, x.name == %s && %s || !%s) && %s.?volumeDevices.orValue([]).all(x, !%s)",
				theirs, item.get("name").text, sameFiles(item), same, x, strings.ReplaceAll(same, "x.mountPath", "x.devicePath")))
		case schema.VolumeDeviceType():
			own.conflict = item.whenPresent(fmt.Sprintf("%s.all(x, x.name == %s || !(%s))", theirs, item.get("name").text, same))
		}
		all = append(all, own)
	}
	return all
}

// sameFiles returns the condition that a container sees the same files by its mount x as by the template's, and may write to
// them if the template's mount may. See [inject.KeepRules].
func sameFiles(mount *node) string {
	var conditions []string
	for _, field := range []string{"subPath", "subPathExpr"} {
		want := `""`
		if own := mount.get(field); own != nil {
			want = own.text
		}
		conditions = append(conditions, fmt.Sprintf(`x.?%s.orValue("") == %s`, field, want))
	}
	if own := mount.get("mountPropagation"); own != nil {
		conditions = append(conditions, fmt.Sprintf(`x.?mountPropagation.orValue("") == %s`, own.text))
	}
	switch own := mount.get("readOnly"); {
	case own == nil:
		conditions = append(conditions, "!x.?readOnly.orValue(false)")
	case own.when != "":
		conditions = append(conditions, fmt.Sprintf("((%s) && (%s) || !x.?readOnly.orValue(false))", own.when, own.text))
	case own.text != "true":
		conditions = append(conditions, fmt.Sprintf("(%s || !x.?readOnly.orValue(false))", own.text))
	}
	return strings.Join(conditions, " && ")
}

// keyCondition returns the key of a list's item, and the condition that an item x of the pod has that key. If the list has no
// key, all fields must be equal.
func (b *builder) keyCondition(item *node, list *schema.Field) (key, same string) {
	switch own := item.get(list.Key); {
	case list.Key == "" && !item.object:
		return item.text, "x == " + item.text
	case list.Key == "":
		for _, f := range jsontree.StructFields(item.field.GoType) {
			is := "!has(x." + f.JSON + ")"
			if own := item.get(f.JSON); own != nil && !own.zero {
				is = fmt.Sprintf("has(x.%s) && x.%[1]s == %s", f.JSON, own.text)
			}
			same = strings.TrimPrefix(same+" && "+is, " && ")
		}
		return same, same
	case own == nil:
		b.addProblem(item.path, "an item without %s cannot be compared with those of the pod", list.Key)
		return "", "false"
	case list.Key == "mountPath":
		// A path of the pod may end with a slash. A policy leaves a pod unchanged if a path has
		// another form, for example with //.
		return cleanedPath(own), fmt.Sprintf(`(x.mountPath == %[1]s || x.mountPath == %[1]s + "/")`, cleanedPath(own))
	default:
		return own.text, fmt.Sprintf(`x.?%s.orValue("") == %s`, list.Key, own.text)
	}
}

// cleanedPath returns a path of the template in CEL, in the form of [schema.CleanPath]. A policy adds
// the value of an expression only if it has this form.
func cleanedPath(n *node) string {
	if n.constant {
		return quoteString(schema.CleanPath(n.constantString()))
	}
	return n.text
}
