// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// conditionOf returns one precondition as a condition.
func (r *kyvernoRule) conditionOf(f *field) (string, error) {
	operator := strings.ToLower(f.peekText("operator"))
	key, value := f.get("key"), f.get("value")
	switch variable, err := r.variableOf(key); {
	case err != nil:
		return "", err
	case variable == nil:
		return r.memberCondition(key, value, operator)
	case variable.isOperation:
		return operationCondition(operator, value)
	default:
		return compareQuery(variable, operator, value)
	}
}

// variableOf returns the value of a string that is one {{ expression }}, or nil for a constant.
func (r *kyvernoRule) variableOf(f *field) (*query, error) {
	text := strings.TrimSpace(f.peekText())
	if !strings.Contains(text, "{{") {
		return nil, nil
	}
	inner, ok := strings.CutPrefix(text, "{{")
	inner, closed := strings.CutSuffix(inner, "}}")
	if !ok || !closed || strings.Contains(inner, "{{") {
		return nil, errors.New("pillion import can translate only a key that is one {{ expression }}; write the condition in CEL")
	}
	q, err := r.translateQuery(inner)
	return &q, err
}

// memberCondition returns a condition that a constant is an item of a list.
func (r *kyvernoRule) memberCondition(key, value *field, operator string) (string, error) {
	list, err := r.variableOf(value)
	if err != nil {
		return "", err
	}
	if list == nil || !list.isList || key == nil || key.kind != yaml.ScalarNode {
		return "", errors.New("pillion import can translate only a key that is one {{ expression }}; write the condition in CEL")
	}
	test := list.text + ".exists(value, " + globExpression("value", key.peekText()) + ")"
	switch operator {
	case "anyin", "allin", "in":
		return test, nil
	case "anynotin", "allnotin", "notin":
		return "!" + test, nil
	}
	return "", unknownOperator(operator)
}

// operationCondition returns whether a condition about the operation is true for objects that are created.
func operationCondition(operator string, value *field) (string, error) {
	values, err := constantsOf(value)
	if err != nil {
		return "", err
	}
	if !slices.Contains([]string{"equals", "equal", "anyin", "in", "allin", "notequals", "notequal", "anynotin", "allnotin", "notin"}, operator) {
		return "", unknownOperator(operator)
	}
	create := slices.ContainsFunc(values, func(v *field) bool { return v.peekText() == "CREATE" || v.peekText() == "*" })
	if create == strings.Contains(operator, "not") {
		return "", errors.New("the rule is not for objects that are created, and Pillion adds only to these")
	}
	return "true", nil
}

// constantsOf returns the items of a list of constants, or one constant.
func constantsOf(f *field) ([]*field, error) {
	values := []*field{f}
	if f != nil && f.kind == yaml.SequenceNode {
		values = f.items()
	}
	for _, v := range values {
		if v == nil || v.kind != yaml.ScalarNode || strings.Contains(v.peekText(), "{{") {
			return nil, errors.New("pillion import can translate only constant values; write the condition in CEL")
		}
	}
	return values, nil
}

// numberOperators are the operators for numbers.
var numberOperators = map[string]string{
	"greaterthan": ">", "greaterthanorequals": ">=", "lessthan": "<", "lessthanorequals": "<=",
	"equals": "==", "equal": "==", "notequals": "!=", "notequal": "!=",
}

// compareQuery returns a condition for an operator of Kyverno.
func compareQuery(q *query, operator string, value *field) (string, error) {
	values, err := constantsOf(value)
	if err != nil {
		return "", err
	}
	isEquals := strings.Contains(operator, "equal")
	switch {
	case isEquals && value.kind == yaml.SequenceNode:
	case q.isCount:
		if symbol := numberOperators[operator]; symbol != "" && values[0].node.Tag == "!!int" {
			return q.text + " " + symbol + " " + values[0].peekText(), nil
		}
	case q.isList:
		return compareList(q, operator, values)
	case isEquals && values[0].node.Tag == "!!bool":
		is := strings.EqualFold(values[0].peekText(), "true")
		switch symbol := numberOperators[operator]; {
		case symbol == "==" && (q.isBool || q.optional != ""):
			return q.equalsBool(is), nil
		case symbol == "!=" && q.isBool:
			return q.equalsBool(!is), nil
		}
	case q.isBool:
	case slices.Contains([]string{"equals", "equal", "anyin", "allin", "in"}, operator):
		return anyOf(values, q.text), nil
	case slices.Contains([]string{"notequals", "notequal", "anynotin", "allnotin", "notin"}, operator):
		test := anyOf(values, q.text)
		if len(values) == 1 && strings.Contains(test, " == ") {
			return strings.Replace(test, " == ", " != ", 1), nil
		}
		return "!(" + test + ")", nil
	}
	return "", unknownOperator(operator)
}

// compareList returns a condition about the items of a list. The old operators In and NotIn take no patterns.
func compareList(q *query, operator string, values []*field) (string, error) {
	var exact []string
	for _, v := range values {
		exact = append(exact, v.peekText())
	}
	one := anyOf(values, "value")
	if !strings.Contains(one, "(") {
		one = "(" + one + ")"
	}
	switch operator {
	case "anyin":
		return q.text + ".exists(value, " + one + ")", nil
	case "allnotin":
		return "!" + q.text + ".exists(value, " + one + ")", nil
	case "anynotin":
		return q.text + ".exists(value, !" + one + ")", nil
	case "allin":
		return q.text + ".all(value, " + one + ")", nil
	case "in":
		return q.text + ".all(value, value in " + celList(exact...) + ")", nil
	case "notin":
		return "!" + q.text + ".all(value, value in " + celList(exact...) + ")", nil
	}
	return "", unknownOperator(operator)
}

func unknownOperator(operator string) error {
	return fmt.Errorf("pillion import cannot translate the operator %s here; write the condition in CEL", operator)
}
