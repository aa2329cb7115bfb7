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
	r.workload = !slices.ContainsFunc(blocks, isForPods)
	matching := slices.DeleteFunc(slices.Clone(blocks), func(b *field) bool { return !r.isAbout(b) })
	if len(matching) == 0 || match.get("all") != nil && len(matching) < len(blocks) {
		d.discarded = true
		return
	}
	for _, b := range blocks {
		for _, kind := range b.get("kinds").items() {
			switch name := kindName(kind); {
			case name == "Pod":
				kind.read = true
			case name != "":
				o.leaveOut(kind, "Pillion adds to pods when they are created, whatever created them; if other pods must not get the template, select by a label that only the pods of %ss have", name)
			default:
				o.leaveOut(kind, "Pillion adds only to pods")
			}
		}
		if !slices.Contains(matching, b) {
			for _, f := range b.members() {
				if f.name != "kinds" {
					o.recordNote(f, "this is only for the kinds that are left out")
				}
			}
		}
	}
	o.leaveOutSubjects(d, match)
	if len(matching) == 1 {
		o.readBlock(d, r, matching[0])
		return
	}
	var tests []string
	for _, b := range matching {
		test, err := r.blockExpression(b.members())
		if err != nil {
			o.leaveOut(match, "%v; %s", err, onlyOnRequest)
			d.onRequest = true
			return
		}
		tests = append(tests, "("+test+")")
	}
	for _, b := range matching {
		markBlock(b)
	}
	operator := " || "
	if match.get("all") != nil {
		operator = " && "
	}
	if operator == " && " || !slices.Contains(tests, "(true)") {
		d.addCondition(match, strings.Join(tests, operator))
	}
}

// kindName returns Pod or the kind of a workload, or "" for another kind.
func kindName(kind *field) string {
	i := strings.LastIndexByte(kind.peekText(), '/')
	name := kind.peekText()[i+1:]
	switch {
	case i >= 0 && !slices.Contains(workloadGroups, kind.peekText()[:i]):
	case name == "Pod" || slices.Contains(workloadKinds, name):
		return name
	}
	return ""
}

func isForPods(block *field) bool {
	return slices.ContainsFunc(block.get("kinds").items(), func(kind *field) bool { return kindName(kind) == "Pod" })
}

// isAbout reports whether resources contain the objects that the rule changes: pods, or workloads.
func (r *kyvernoRule) isAbout(block *field) bool {
	return slices.ContainsFunc(block.get("kinds").items(), func(kind *field) bool {
		name := kindName(kind)
		return name != "" && r.workload == (name != "Pod")
	})
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
		case slices.Contains([]string{"subjects", "roles", "clusterRoles"}, m.name):
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
			if !slices.ContainsFunc(f.items(), func(op *field) bool { return op.peekText() == "CREATE" }) {
				return "", fmt.Errorf("the rule is not for objects that are created, and Pillion adds only to these")
			}
		case "namespaces":
			if len(f.items()) > 0 {
				test = anyOf(f.items(), "ns.name")
			}
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
				all = append(all, entryExpression("pod.metadata.annotations", a))
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
	o.leaveOutSubjects(d, exclude)
	groups := [][]*field{blocksOf(&field{kind: yaml.MappingNode, children: exclude.findAll("all")})} // which must all be true
	for _, b := range blocksOf(exclude) {
		if !slices.Contains(groups[0], b) {
			groups = append(groups, []*field{b})
		}
	}
	for _, blocks := range groups {
		o.readExclusion(d, r, blocks)
	}
}

// readExclusion excludes the objects that several resources contain.
func (o *object) readExclusion(d *draft, r *kyvernoRule, blocks []*field) {
	var tests []string
	for _, b := range blocks {
		if kinds := b.get("kinds"); len(kinds.items()) > 0 && !r.isAbout(b) {
			for _, b := range blocks {
				o.recordNote(b, "this excludes objects of other kinds")
			}
			return
		}
		test, err := r.blockExpression(b.members())
		if err != nil {
			o.leaveOut(b, "%v; %s", err, onlyOnRequest)
			d.onRequest = true
			return
		}
		if test != "true" {
			tests = append(tests, test)
		}
	}
	for _, b := range blocks {
		if len(tests) == 0 {
			o.leaveOut(b, "this excludes all objects of its kinds; Pillion adds to the pods of all kinds")
			continue
		}
		b.markAll()
	}
	if len(tests) > 0 {
		d.addCondition(blocks[0], "!("+joinTests(tests)+")")
	}
}

// joinTests joins conditions that must all be true.
func joinTests(tests []string) string {
	all := make([]condition, len(tests))
	for i, test := range tests {
		all[i] = condition{expression: test}
	}
	return joinConditions(all)
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
	o.recordNote(f.get("message"), "Pillion says itself which condition is false for a pod")
	if !strings.Contains(f.peekText("key"), "request.operation") {
		f.get("value").markAll()
		return
	}
	o.recordNote(f.get("value"), "Pillion adds to pods when they are created")
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
