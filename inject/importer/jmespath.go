// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// kyvernoRule is what the variables of a rule mean.
type kyvernoRule struct {
	workload bool // the rule changes workloads, whose pods are in spec.template
}

// queryPath is a path in an object: names, some of them in quotes. It may have a default after ||.
var queryPath = regexp.MustCompile("^([A-Za-z_][\\w-]*(?:\\.(?:[A-Za-z_][\\w-]*|\"[^\"]+\"))*)(?:\\[\\*?\\]\\.([A-Za-z_]\\w*))?(?:\\s*\\|\\|\\s*(?:'([^']*)'|(`\\[\\]`)|(`\\{\\}`)|`(true|false)`))?$")

// queryLength is the length of a list.
var queryLength = regexp.MustCompile(`^length\((.+)\)$`)

// query is an expression of Kyverno as one of CEL.
type query struct {
	text    string
	isList  bool
	isCount bool
	isBool  bool
	// optional is the field as an optional value, or "" if it is a string that is always known.
	optional string
	// isOperation is true for the operation of the request, which is always CREATE.
	isOperation bool
}

// translateQuery returns a JMESPath expression as one of CEL. The error says that a template has no such expression.
func (r *kyvernoRule) translateQuery(text string) (query, error) {
	text = strings.TrimSpace(text)
	if m := queryLength.FindStringSubmatch(text); m != nil {
		list := m[1]
		if !strings.Contains(list, "||") && !strings.Contains(list, "[]") {
			list += " || `[]`"
		}
		inner, err := r.translateQuery(list)
		if err != nil || !inner.isList {
			return query{}, unknownQuery(text)
		}
		return query{text: "size(" + inner.text + ")", isCount: true}, nil
	}
	m := queryPath.FindStringSubmatch(text)
	if m == nil {
		return query{}, unknownQuery(text)
	}
	names := splitQuery(m[1])
	switch strings.Join(names, ".") {
	case "request.operation":
		return query{isOperation: true}, nil
	case "request.namespace", "request.object.metadata.namespace":
		return query{text: "ns.name"}, nil
	case "request.userInfo.username":
		return query{text: "request.username"}, nil
	}
	begin := []string{"request", "object"}
	if r.workload {
		begin = append(begin, "spec", "template")
	}
	root := "pod"
	switch {
	case names[0] == "element" && len(names) > 1:
		root, names = "container", names[1:]
	case len(names) > len(begin) && slices.Equal(names[:len(begin)], begin):
		names = names[len(begin):]
	default:
		return query{}, unknownQuery(text)
	}
	out := fieldQuery(root, names, celString(m[3]))
	if literal := m[6]; literal != "" {
		out = fieldQuery(root, names, literal)
		out.isBool = true
	}
	if field := m[2]; field != "" {
		list := root + "." + strings.Join(names, ".")
		if field != "name" && field != "image" {
			list += ".filter(item, has(item." + field + "))"
		}
		out = query{text: list + ".map(item, item." + field + ")", isList: true}
	} else if m[4] != "" {
		out = query{text: root + "." + strings.Join(names, "."), isList: true} // a list that a pod lacks is empty
	}
	return out, nil
}

func unknownQuery(text string) error {
	return fmt.Errorf("pillion import cannot translate the expression {{ %s }}; write it in CEL", text)
}

// splitQuery returns the names of a path without their quotes.
func splitQuery(path string) (names []string) {
	for path != "" {
		if rest, ok := strings.CutPrefix(path, `"`); ok {
			name, after, _ := strings.Cut(rest, `"`)
			names, path = append(names, name), strings.TrimPrefix(after, ".")
			continue
		}
		name, after, _ := strings.Cut(path, ".")
		names, path = append(names, name), after
	}
	return names
}

// fieldQuery returns the expression for a field, or for a default if the object lacks it.
func fieldQuery(root string, names []string, missing string) query {
	if len(names) == 3 && names[0] == "metadata" && (names[1] == "annotations" || names[1] == "labels") {
		return query{text: fmt.Sprintf("%s.metadata.%s[?%s].orValue(%s)", root, names[1], celString(names[2]), missing)}
	}
	if root == "container" && len(names) == 1 && (names[0] == "name" || names[0] == "image") {
		return query{text: root + "." + names[0]}
	}
	first, rest := root+"."+names[0], names[1:]
	if root == "container" {
		first, rest = root, names // a container always exists, and any of its fields may not
	}
	optional := strings.Join(append([]string{first}, rest...), ".?")
	return query{text: optional + ".orValue(" + missing + ")", optional: optional}
}

// equalsBool returns a condition that a field is true or false. A field that is missing is neither.
func (q *query) equalsBool(is bool) string {
	text := q.text
	if !q.isBool {
		text = q.optional + ".orValue(" + strconv.FormatBool(!is) + ")"
	}
	return text + " == " + strconv.FormatBool(is)
}

// convertText returns a string of a rule, whose variables are in {{ }}, as one of a template.
func (r *kyvernoRule) convertText(f *field) (*yaml.Node, string) {
	rest, out, whole := f.node.Value, "", ""
	parts := 0
	for rest != "" {
		before, after, ok := strings.Cut(rest, "{{")
		if before != "" {
			out += escapeText(before)
			parts++
		}
		if !ok {
			break
		}
		inner, behind, closed := strings.Cut(after, "}}")
		if !closed {
			return nil, "the string has {{ without }}"
		}
		q, err := r.translateQuery(inner)
		switch {
		case err != nil:
			return nil, err.Error()
		case q.isOperation:
			q.text = "request.operation"
		case q.isCount || q.isBool:
			q.text = "string(" + q.text + ")"
		case q.isList:
			return nil, unknownQuery(inner).Error()
		}
		whole = q.text
		out += wholeText(q.text)
		parts++
		rest = behind
	}
	if parts == 1 && whole != "" {
		return textNode(wholeText(whole)), ""
	}
	return textNode(out), ""
}
