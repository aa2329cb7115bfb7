// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// globExpression returns a condition that a value matches a pattern with * and ?.
func globExpression(value, pattern string) string {
	switch {
	case pattern == "*":
		return "true"
	case pattern == "?*":
		return value + " != ''"
	case !strings.ContainsAny(pattern, "*?"):
		return value + " == " + celString(pattern)
	case !strings.Contains(pattern, "?") && strings.Count(pattern, "*") == 1 && strings.HasSuffix(pattern, "*"):
		return value + ".startsWith(" + celString(strings.TrimSuffix(pattern, "*")) + ")"
	case !strings.Contains(pattern, "?") && strings.Count(pattern, "*") == 1 && strings.HasPrefix(pattern, "*"):
		return value + ".endsWith(" + celString(strings.TrimPrefix(pattern, "*")) + ")"
	}
	quoted := strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(pattern))
	return value + ".matches(" + celString("^"+quoted+"$") + ")"
}

// selectorExpression returns a condition that labels match a selector.
func selectorExpression(labels string, f *field) (string, error) {
	var tests []string
	if other := f.otherThan("matchLabels", "matchExpressions"); other != nil {
		return "", fmt.Errorf("a selector has no field %s", other.name)
	}
	for _, l := range f.get("matchLabels").members() {
		tests = append(tests, globExpression(labels+"[?"+celString(l.name)+"].orValue('')", l.peek()))
	}
	for _, e := range f.get("matchExpressions").items() {
		if other := e.otherThan("key", "operator", "values"); other != nil {
			return "", fmt.Errorf("an expression of a selector has no field %s", other.name)
		}
		key := celString(e.peek("key"))
		var values []string
		for _, v := range e.get("values").items() {
			values = append(values, v.peek())
		}
		switch e.peek("operator") {
		case "In":
			tests = append(tests, key+" in "+labels+" && "+labels+"["+key+"] in "+celList(values...))
		case "NotIn":
			tests = append(tests, "!("+key+" in "+labels+" && "+labels+"["+key+"] in "+celList(values...)+")")
		case "Exists":
			tests = append(tests, key+" in "+labels)
		case "DoesNotExist":
			tests = append(tests, "!("+key+" in "+labels+")")
		default:
			return "", fmt.Errorf("the operator %s is not one of a selector", e.peek("operator"))
		}
	}
	return strings.Join(tests, " && "), nil
}

// anyOf returns a condition that one of several is true.
func anyOf(items []*field, test func(*field) string) string {
	var all []string
	for _, item := range items {
		all = append(all, test(item))
	}
	switch {
	case slices.Contains(all, "true"):
		return "true"
	case len(all) == 1:
		return all[0]
	}
	return "(" + strings.Join(all, " || ") + ")"
}
