// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// workloadKinds are the kinds whose pods are in spec.template.
var workloadKinds = []string{"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "ReplicationController", "Job"}

// workloadGroups are what may be before a slash and such a kind.
var workloadGroups = []string{"v1", "*", "*/*", "*/v1", "apps", "apps/*", "apps/v1", "batch", "batch/*", "batch/v1"}

// readMatch reads which objects a rule changes.
func (o *object) readMatch(d *draft, r *kyvernoRule, match *field) {
	blocks := blocksOf(match)
	pods := false
	for _, b := range blocks {
		for _, kind := range b.get("kinds").items() {
			i := strings.LastIndexByte(kind.peek(), '/')
			switch name := kind.peek()[i+1:]; {
			case i >= 0 && !slices.Contains(workloadGroups, kind.peek()[:i]):
				o.leaveOut(kind, "Pillion adds only to pods")
			case name == "Pod":
				pods, kind.read = true, true
			case slices.Contains(workloadKinds, name):
				r.workload = true
				o.leaveOut(kind, "Pillion adds to pods when they are created, whatever created them; if other pods must not get the template, select by a label that only the pods of %ss have", name)
			default:
				o.leaveOut(kind, "Pillion adds only to pods")
			}
		}
	}
	if !pods && !r.workload {
		o.leaveOut(match, "the rule is not for pods, and Pillion adds only to these")
		d.discarded = true
		return
	}
	r.workload = r.workload && !pods
	o.leaveOutSubjects(d, match)
	if len(blocks) == 1 {
		o.readBlock(d, r, blocks[0])
		return
	}
	var tests []string
	for _, b := range blocks {
		test, err := r.blockExpression(b.members())
		if err != nil {
			o.leaveOut(match, "%v; %s", err, onlyOnRequest)
			d.onRequest = true
			return
		}
		tests = append(tests, "("+test+")")
	}
	for _, b := range blocks {
		markBlock(b)
	}
	operator := " || "
	if match.get("all") != nil {
		operator = " && "
	}
	if !slices.Contains(tests, "(true)") {
		d.addCondition(match, strings.Join(tests, operator))
	}
}

// markBlock counts everything but the kinds as read.
func markBlock(b *field) {
	for _, f := range b.members() {
		if f.name != "kinds" {
			f.markAll()
		}
	}
}

// leaveOutSubjects reports conditions about who creates an object.
func (o *object) leaveOutSubjects(d *draft, f *field) {
	for _, m := range f.members() {
		switch {
		case m.name == "any" || m.name == "all":
			for _, item := range m.items() {
				o.leaveOutSubjects(d, item)
			}
		case m.name != "resources":
			o.leaveOut(m, "a template cannot select pods by %s; write a condition with request.username; %s", m.name, onlyOnRequest)
			d.onRequest = true
		}
	}
}

// blocksOf returns the resources of match or exclude.
func blocksOf(f *field) (all []*field) {
	if b := f.get("resources"); b != nil {
		all = append(all, b)
	}
	for _, name := range []string{"any", "all"} {
		for _, item := range f.get(name).items() {
			if b := item.get("resources"); b != nil {
				all = append(all, b)
			}
		}
	}
	return all
}

// readBlock reads resources with the selectors of a template.
func (o *object) readBlock(d *draft, r *kyvernoRule, b *field) {
	d.namespaceSelector = joinSelectors(d.namespaceSelector, d.copySelector(o, b.get("namespaceSelector")))
	if s := b.get("selector"); s != nil && !r.workload {
		d.podSelector = joinSelectors(d.podSelector, d.copySelector(o, s))
	}
	for _, f := range b.members() {
		if f.name == "kinds" || f.name == "namespaceSelector" || f.name == "selector" && !r.workload {
			continue
		}
		test, err := r.blockExpression([]*field{f})
		if err != nil {
			o.leaveOut(f, "%v; %s", err, onlyOnRequest)
			d.onRequest = true
			continue
		}
		f.markAll()
		if test != "true" {
			d.addCondition(f, test)
		}
	}
}

// blockExpression returns a condition for the pods that fields of resources select.
func (r *kyvernoRule) blockExpression(fields []*field) (string, error) {
	var tests []string
	for _, f := range fields {
		test := ""
		var err error
		switch f.name {
		case "kinds":
			continue
		case "operations":
			if !slices.ContainsFunc(f.items(), func(op *field) bool { return op.peek() == "CREATE" }) {
				return "", fmt.Errorf("the rule is not for objects that are created, and Pillion adds only to these")
			}
		case "namespaces":
			test = anyOf(f.items(), func(item *field) string { return globExpression("ns.name", item.peek()) })
		case "namespaceSelector":
			test, err = selectorExpression("ns.labels", f)
		case "selector":
			if r.workload {
				return "", fmt.Errorf("the labels of a workload are not those of its pods")
			}
			test, err = selectorExpression("pod.metadata.labels", f)
		case "annotations":
			if r.workload {
				return "", fmt.Errorf("the annotations of a workload are not those of its pods")
			}
			var all []string
			for _, a := range f.members() {
				all = append(all, globExpression(fmt.Sprintf("pod.metadata.annotations[?%s].orValue('')", celString(a.name)), a.peek()))
			}
			test = strings.Join(all, " && ")
		default:
			return "", fmt.Errorf("a template cannot select pods by %s; most pods have no name yet when they are created", f.name)
		}
		if err != nil {
			return "", err
		}
		if test != "" && test != "true" {
			tests = append(tests, test)
		}
	}
	if len(tests) == 0 {
		return "true", nil
	}
	return strings.Join(tests, " && "), nil
}

// readExclude reads which objects a rule does not change.
func (o *object) readExclude(d *draft, r *kyvernoRule, exclude *field) {
	for _, b := range blocksOf(exclude) {
		test, err := r.blockExpression(b.members())
		switch {
		case err != nil:
			o.leaveOut(b, "%v; %s", err, onlyOnRequest)
			d.onRequest = true
		case test == "true":
			o.leaveOut(b, "this excludes all objects of its kinds; Pillion adds to the pods of all kinds")
		default:
			b.markAll()
			d.addCondition(b, "!("+test+")")
		}
	}
	o.leaveOutSubjects(d, exclude)
}

// readPreconditions reads the preconditions of a rule. Each of those that must all be true is a part of the condition.
func (o *object) readPreconditions(d *draft, r *kyvernoRule, f *field) {
	for _, item := range append(f.items(), f.get("all").items()...) {
		test, err := r.conditionOf(item)
		if err != nil {
			o.leaveOut(item, "%v; %s", err, onlyOnRequest)
			d.onRequest = true
			continue
		}
		o.markCondition(item)
		if test != "true" {
			d.addCondition(item, test)
		}
	}
	alternatives := f.get("any")
	test, from, err := r.conditionsOf(alternatives)
	if err != nil {
		o.leaveOut(alternatives, "%s: %v; %s", pathIn(alternatives, from), err, onlyOnRequest)
		d.onRequest = true
		return
	}
	for _, item := range alternatives.items() {
		o.markCondition(item)
	}
	if test != "" {
		d.addCondition(alternatives, test)
	}
}

// markCondition counts a precondition as read.
func (o *object) markCondition(f *field) {
	f.markScalar("key")
	f.markScalar("operator")
	o.note(f.get("message"), "Pillion says itself which condition is false for a pod")
	if !strings.Contains(f.peek("key"), "request.operation") {
		f.get("value").markAll()
		return
	}
	o.note(f.get("value"), "Pillion adds to pods when they are created")
}

// conditionsOf returns preconditions as a condition, which is "" if there are none. If that is not possible, it returns the
// precondition and the reason.
func (r *kyvernoRule) conditionsOf(f *field) (string, *field, error) {
	var parts []string
	listed, operator := f.items(), " && "
	if f != nil && f.name == "any" {
		operator = " || "
	}
	for _, group := range []struct {
		items    []*field
		operator string
	}{{listed, operator}, {f.get("all").items(), " && "}, {f.get("any").items(), " || "}} {
		var tests []string
		always := false
		for _, item := range group.items {
			test, err := r.conditionOf(item)
			if err != nil {
				return "", item, err
			}
			always = always || test == "true"
			if test != "true" {
				tests = append(tests, test)
			}
		}
		if group.operator == " || " && always || len(tests) == 0 {
			continue
		}
		part := strings.Join(tests, group.operator)
		if group.operator == " || " && len(tests) > 1 {
			part = "(" + part + ")"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " && "), nil, nil
}

// conditionOf returns one precondition as a condition.
func (r *kyvernoRule) conditionOf(f *field) (string, error) {
	key := strings.TrimSpace(f.peek("key"))
	inner, ok := strings.CutPrefix(key, "{{")
	inner, closed := strings.CutSuffix(inner, "}}")
	if !ok || !closed || strings.Contains(inner, "{{") {
		return "", fmt.Errorf("pillion import can translate only a key that is one {{ expression }}; write the condition in CEL")
	}
	q, err := r.translateQuery(inner)
	if err != nil {
		return "", err
	}
	values := []*field{f.get("value")}
	if list := f.get("value"); list != nil && list.kind == yaml.SequenceNode {
		values = list.items()
	}
	for _, v := range values {
		if v == nil || v.kind != yaml.ScalarNode || strings.Contains(v.peek(), "{{") {
			return "", fmt.Errorf("pillion import can translate only constant values; write the condition in CEL")
		}
	}
	operator := strings.ToLower(f.peek("operator"))
	if q.isOperation {
		if !slices.Contains([]string{"equals", "equal", "anyin", "in", "allin", "notequals", "notequal", "anynotin", "allnotin", "notin"}, operator) {
			return "", fmt.Errorf("pillion import does not know the operator %s", operator)
		}
		create := slices.ContainsFunc(values, func(v *field) bool { return v.peek() == "CREATE" || v.peek() == "*" })
		if create != strings.Contains(operator, "not") {
			return "true", nil
		}
		return "", fmt.Errorf("the rule is not for objects that are created, and Pillion adds only to these")
	}
	return compareQuery(q, operator, values)
}

// numberOperators are the operators for numbers.
var numberOperators = map[string]string{"greaterthan": ">", "greaterthanorequals": ">=", "lessthan": "<", "lessthanorequals": "<="}

// compareQuery returns a condition for an operator of Kyverno.
func compareQuery(q query, operator string, values []*field) (string, error) {
	negate := strings.Contains(operator, "not")
	switch plain := strings.Replace(operator, "not", "", 1); {
	case q.isCount && numberOperators[operator] != "" && len(values) == 1 && values[0].node.Tag == "!!int":
		return q.text + " " + numberOperators[operator] + " " + values[0].peek(), nil
	case q.isCount && (plain == "equals" || plain == "equal") && len(values) == 1 && values[0].node.Tag == "!!int":
		if negate {
			return q.text + " != " + values[0].peek(), nil
		}
		return q.text + " == " + values[0].peek(), nil
	case q.isCount:
	case q.isList && (plain == "anyin" || plain == "in" || operator == "allnotin"):
		test := q.text + ".exists(value, (" + anyOf(values, func(v *field) string { return globExpression("value", v.peek()) }) + "))"
		switch {
		case operator == "anynotin":
			return strings.Replace(test, ".exists(value, ", ".exists(value, !", 1), nil
		case negate:
			return "!" + test, nil
		}
		return test, nil
	case q.isList:
	case slices.Contains([]string{"equals", "equal", "anyin", "allin", "in"}, plain):
		test := anyOf(values, func(v *field) string { return globExpression(q.text, v.peek()) })
		switch {
		case !negate:
			return test, nil
		case len(values) == 1 && strings.Contains(test, " == "):
			return strings.Replace(test, " == ", " != ", 1), nil
		}
		return "!(" + test + ")", nil
	}
	return "", fmt.Errorf("pillion import cannot translate the operator %s here; write the condition in CEL", operator)
}
