// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
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

// comparison is a pattern that compares numbers.
var comparison = regexp.MustCompile(`^[<>]|^!?[+-]?\d+(\.\d+)?[A-Za-z]*-[+-]?\d`)

// patternExpression returns a condition that a value matches a pattern of Kyverno: patterns with * and ?, alternatives with |,
// joined by &, and with ! if they must not match.
func patternExpression(value string, f *field) (string, error) {
	if f.kind != yaml.ScalarNode || strings.Contains(f.peekText(), "{{") {
		return "", errors.New("pillion import can translate only constant patterns")
	}
	var alternatives []string
	for alternative := range strings.SplitSeq(f.peekText(), "|") {
		var tests []string
		for part := range strings.SplitSeq(alternative, "&") {
			part, negated := strings.CutPrefix(strings.TrimSpace(part), "!")
			if comparison.MatchString(part) {
				return "", fmt.Errorf("pillion import cannot translate the pattern %s", part)
			}
			test := globExpression(value, part)
			if negated {
				test = "!(" + test + ")"
			}
			tests = append(tests, test)
		}
		alternatives = append(alternatives, strings.Join(tests, " && "))
	}
	return strings.Join(alternatives, " || "), nil
}

// selectorExpression returns a condition that labels match a selector.
func selectorExpression(labels string, f *field) (string, error) {
	var tests []string
	if other := f.otherThan("matchLabels", "matchExpressions"); other != nil {
		return "", fmt.Errorf("a selector has no field %s", other.name)
	}
	for _, l := range f.get("matchLabels").members() {
		tests = append(tests, entryExpression(labels, l))
	}
	for _, e := range f.get("matchExpressions").items() {
		if other := e.otherThan("key", "operator", "values"); other != nil {
			return "", fmt.Errorf("an expression of a selector has no field %s", other.name)
		}
		key := celString(e.peekText("key"))
		var values []string
		for _, v := range e.get("values").items() {
			values = append(values, v.peekText())
		}
		switch e.peekText("operator") {
		case "In":
			tests = append(tests, key+" in "+labels+" && "+labels+"["+key+"] in "+celList(values...))
		case "NotIn":
			tests = append(tests, "!("+key+" in "+labels+" && "+labels+"["+key+"] in "+celList(values...)+")")
		case "Exists":
			tests = append(tests, key+" in "+labels)
		case "DoesNotExist":
			tests = append(tests, "!("+key+" in "+labels+")")
		default:
			return "", fmt.Errorf("the operator %s is not one of a selector", e.peekText("operator"))
		}
	}
	return strings.Join(tests, " && "), nil
}

// entryExpression returns a condition that labels or annotations have a key, with a value that matches a pattern.
func entryExpression(entries string, f *field) string {
	key := celString(f.name)
	switch pattern := f.peekText(); {
	case pattern == "*":
		return key + " in " + entries
	case pattern == "" || pattern != "?*" && strings.Contains(pattern, "*"):
		return key + " in " + entries + " && " + globExpression(entries+"["+key+"]", pattern)
	default:
		return globExpression(entries+"[?"+key+"].orValue('')", pattern)
	}
}

// anyOf returns a condition that a value matches one of several patterns.
func anyOf(patterns []*field, value string) string {
	var all []string
	for _, p := range patterns {
		all = append(all, globExpression(value, p.peekText()))
	}
	switch {
	case slices.Contains(all, "true"):
		return "true"
	case len(all) == 1:
		return all[0]
	case len(all) == 0:
		return "false"
	}
	return "(" + strings.Join(all, " || ") + ")"
}
