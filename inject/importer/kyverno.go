// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

func isKyvernoPolicy(o *object) bool {
	return (o.kind == "ClusterPolicy" || o.kind == "Policy") && strings.HasPrefix(o.root.peek("apiVersion"), "kyverno.io/")
}

// readKyvernoPolicy reads a policy of Kyverno. Each of its rules that changes pods becomes a template.
func readKyvernoPolicy(_ *importer, o *object) {
	o.readMetadata()
	spec := o.root.get("spec")
	idle := spec.peek("admission") == "false"
	if idle {
		o.leaveOut(spec.get("admission"), "the policy does nothing when pods are created; %s", onlyOnRequest)
	}
	if f := spec.get("applyRules"); f.peek() == "One" {
		o.leaveOut(f, "each rule is a template, and a pod gets all that match it; write conditions that exclude each other")
	}
	var others []*field
	for _, f := range spec.members() {
		if f.name != "rules" && !f.isRead() {
			others = append(others, f)
		}
	}
	o.noteAll(others, "this is how Kyverno calls and reports the policy")
	rules := spec.get("rules").items()
	several := len(rules) > 1
	for _, rule := range rules {
		name := o.name
		if several {
			name += "-" + rule.peek("name")
		}
		if rule.get("mutate") == nil {
			o.leaveOut(rule, "this rule changes nothing; keep it in Kyverno")
			continue
		}
		d := o.policyDraft(name)
		d.description = "Imported from the rule " + rule.text("name") + " of the " + o.kind + " " + o.name + "."
		if o.kind == "Policy" {
			o.useNamespace(d)
		}
		d.onRequest = d.onRequest || idle
		o.readRule(d, rule)
	}
}

// readRule reads a rule that changes pods.
func (o *object) readRule(d *draft, rule *field) {
	r := &kyvernoRule{}
	o.readMatch(d, r, rule.get("match"))
	o.readExclude(d, r, rule.get("exclude"))
	o.readPreconditions(d, r, rule.get("preconditions"))
	for _, v := range rule.get("context").items() {
		o.leaveOut(v, "a template reads only the pod, its namespace and its ServiceAccount; what reads this variable is left out too")
	}
	o.noteAll(rule.all("skipBackgroundRequests", "reportProperties"), "this is how Kyverno calls and reports the policy")
	mutate := rule.get("mutate")
	if targets := mutate.get("targets"); targets != nil {
		o.leaveOut(targets, "Pillion adds only to pods that are being created; restart existing ones with pillion rollout")
	}
	mutate.markScalar("mutateExistingOnPolicyUpdate")
	c := &converter{o: o, d: d, text: r.text}
	c.readRulePatches(r, mutate, nil)
	for _, each := range mutate.get("foreach").items() {
		c.readForeach(r, each)
	}
}

// readRulePatches reads the patches of a rule, or those for each container.
func (c *converter) readRulePatches(r *kyvernoRule, f *field, each *loop) {
	if patch := f.get("patchStrategicMerge"); patch != nil {
		pod := patch
		if r.workload {
			if pod = patch.get("spec", "template"); pod == nil {
				c.o.leaveOut(patch, "this changes the workload and not its pods; Pillion adds only to pods")
				return
			}
			c.leaveOutOthers(patch, pod)
		}
		c.d.placeInit, c.d.placeContainers = "First", "First" // a merge puts new items of a list first
		if each != nil && each.where != "" {
			pod.whenSome(each)
		}
		c.readAnchors(pod, each)
		c.addPod(pod)
	}
	if patch := f.get("patchesJson6902"); patch.isText() {
		root, err := patch.embed(patch.node.Value)
		if err != nil {
			c.o.leaveOut(patch, "%v", err)
			return
		}
		var ops []operation
		for _, item := range root.items() {
			ops = append(ops, operation{op: item.peek("op"), path: item.peek("path"), value: item.get("value"), at: item, each: each})
		}
		c.addPatch(patch, ops, r.workload)
	}
}

// whenSome gives what a rule adds to a pod for its containers the condition that there is such a container.
func (f *field) whenSome(each *loop) {
	list := "containers"
	if each.initContainers {
		list = "initContainers"
	}
	when := "pod.spec." + list + ".exists(container, " + each.where + ")"
	var parts []*field
	for _, name := range []string{"annotations", "labels"} {
		parts = append(parts, f.get("metadata", name).members()...)
	}
	for _, list := range f.get("spec").members() {
		parts = append(parts, list.items()...)
	}
	for _, part := range parts {
		part.when = when
	}
}

// readForeach reads what a rule does for each container.
func (c *converter) readForeach(r *kyvernoRule, f *field) {
	list := strings.TrimPrefix(strings.TrimSpace(f.peek("list")), "request.object.spec.")
	if r.workload {
		list = strings.TrimPrefix(list, "template.spec.")
	}
	if !isContainerName(list) {
		c.o.leaveOut(f, "pillion import knows only lists that are request.object.spec.containers or initContainers; write the items with \"${forEach}\"")
		return
	}
	f.markScalar("list")
	where, from, err := r.conditionsOf(f.get("preconditions"))
	if err != nil {
		c.o.leaveOut(f, "%s: %v", pathIn(f, from), err)
		return
	}
	for _, v := range f.get("context").items() {
		c.o.leaveOut(v, "a template reads only the pod, its namespace and its ServiceAccount; what reads this variable is left out too")
	}
	for _, group := range []*field{f.get("preconditions"), f.get("preconditions", "all"), f.get("preconditions", "any")} {
		for _, item := range group.items() {
			c.o.markCondition(item)
		}
	}
	c.readRulePatches(r, f, newLoop(list, condition{expression: where}))
}

// readAnchors reads the anchors in a patch: names of fields in parentheses, which are conditions.
func (c *converter) readAnchors(pod *field, each *loop) {
	for _, list := range []string{"annotations", "labels"} {
		entries := pod.get("metadata", list)
		for _, f := range entries.members() {
			name, kind := anchorOf(f.name)
			switch {
			case kind == "" || kind == "+":
				f.name = name
			case (kind == "?" || kind == "<") && f.kind == yaml.ScalarNode:
				value := fmt.Sprintf("pod.metadata.%s[?%s].orValue('')", list, celString(name))
				f.read = true
				c.d.addCondition(f, globExpression(value, f.peek()))
				entries.drop(f)
			}
		}
	}
	for _, list := range []string{"containers", "initContainers"} {
		for _, item := range pod.get("spec", list).items() {
			c.readContainerAnchors(item, list, each)
		}
	}
	c.renameAnchors(pod)
}

// readContainerAnchors reads the anchors of a container. With one, the container stands for those that match it.
func (c *converter) readContainerAnchors(item *field, list string, each *loop) {
	var where []condition
	for _, f := range slices.Clone(item.members()) {
		name, kind := anchorOf(f.name)
		if kind != "?" || f.kind != yaml.ScalarNode || name != "name" && name != "image" {
			continue
		}
		if test := globExpression("container."+name, f.peek()); test != "true" {
			where = append(where, condition{expression: test})
		}
		f.read = true
		item.drop(f)
		item.loop = newLoop(list, where...)
	}
	if name := strings.Join(strings.Fields(item.peek("name")), ""); each != nil && name == "{{element.name}}" {
		item.markScalar("name")
		item.loop, item.when = each, ""
	}
}

// renameAnchors removes the anchor +(), which adds a field only if there is none: this is what Pillion always does.
// Fields with other anchors are left out.
func (c *converter) renameAnchors(f *field) {
	for _, child := range slices.Clone(f.children) {
		name, kind := anchorOf(child.name)
		switch {
		case child.name == "" || kind == "":
		case kind == "+":
			child.name = name
		default:
			f.impossible = "pillion import does not know the anchor " + child.name + " here; write the condition into \"${when}\" or into spec.match.condition"
			return
		}
		c.renameAnchors(child)
	}
}

// drop removes a field from an object. It keeps its path.
func (f *field) drop(child *field) {
	f.children = slices.DeleteFunc(slices.Clone(f.children), func(c *field) bool { return c == child })
}

// anchorOf splits the name of a field: "(x)" is x with the kind ?, and "+(x)" is x with the kind +.
func anchorOf(name string) (field, kind string) {
	i := strings.Index(name, "(")
	if i < 0 || i > 1 || !strings.HasSuffix(name, ")") {
		return name, ""
	}
	kind = name[:i]
	if kind == "" {
		kind = "?"
	}
	return name[i+1 : len(name)-1], kind
}
