// SPDX-License-Identifier: Apache-2.0

package importer

import "strings"

func isKyvernoPolicy(o *object) bool {
	return (o.kind == "ClusterPolicy" || o.kind == "Policy") && strings.HasPrefix(o.root.peekText("apiVersion"), "kyverno.io/")
}

// kyvernoSettings are the fields of a policy that do not matter for a pod that is created.
var kyvernoSettings = []string{
	"validationFailureAction", "validationFailureActionOverrides", "failurePolicy", "background", "emitWarning", "schemaValidation",
	"webhookTimeoutSeconds", "useServerSideApply", "mutateExistingOnPolicyUpdate", "generateExisting", "generateExistingOnPolicyUpdate",
}

// readKyvernoPolicy reads a policy of Kyverno. Each of its rules that changes pods becomes a template.
func readKyvernoPolicy(_ *importer, o *object) {
	o.readMetadata()
	spec := o.root.get("spec")
	idle := spec.peekText("admission") == "false"
	if idle {
		o.leaveOut(spec.get("admission"), "the policy does nothing when pods are created; %s", onlyOnRequest)
	}
	onlyFirst := spec.peekText("applyRules") == "One"
	if onlyFirst {
		o.leaveOut(spec.get("applyRules"), "a pod gets the templates of all rules that match it; write conditions that exclude each other; until then, pods get those after the first one only if their annotation pillion.dev/templates names them")
	}
	o.noteAll(spec.findAll(kyvernoSettings...), "this is how Kyverno calls and reports the policy")
	webhook := spec.get("webhookConfiguration")
	o.recordNote(webhook.get("timeoutSeconds"), "this is how Kyverno calls and reports the policy")
	if f := webhook.get("matchConditions"); len(f.items()) > 0 {
		o.leaveOut(f, "write these conditions into spec.match.condition; %s", onlyOnRequest)
		idle = true
	}
	spec.markScalar("admission")
	spec.markScalar("applyRules")
	rules := spec.get("rules").items()
	several := len(rules) > 1
	for _, rule := range rules {
		name := o.name
		if several {
			name += "-" + rule.peekText("name")
		}
		if rule.get("mutate") == nil {
			o.leaveOut(rule, "this rule changes nothing; keep it in Kyverno")
			continue
		}
		d := o.policyDraft(name)
		d.description = "Imported from the rule " + rule.readText("name") + " of the " + o.kind + " " + o.name + "."
		if o.kind == "Policy" {
			o.useNamespace(d)
		}
		d.from, d.onRequest = rule, d.onRequest || idle || onlyFirst && len(o.drafts) > 1
		o.readRule(d, rule)
	}
}

// readRule reads a rule that changes pods.
func (o *object) readRule(d *draft, rule *field) {
	r := &kyvernoRule{}
	if o.readMatch(d, r, rule.get("match")); d.discarded {
		o.leaveOut(rule, "the rule is not for pods, and Pillion adds only to these")
		return
	}
	o.readExclude(d, r, rule.get("exclude"))
	o.readPreconditions(d, r, rule.get("preconditions"))
	for _, v := range rule.get("context").items() {
		o.leaveOut(v, "a template reads only the pod, its namespace and its ServiceAccount; what reads this variable is left out too")
	}
	o.noteAll(rule.findAll("skipBackgroundRequests", "reportProperties"), "this is how Kyverno calls and reports the policy")
	mutate := rule.get("mutate")
	if targets := mutate.get("targets"); targets != nil {
		o.leaveOut(targets, "the rule changes these objects and not the pods that it matches, and Pillion adds only to pods that are being created; %s", onlyOnRequest)
		d.onRequest = true
	}
	mutate.markScalar("mutateExistingOnPolicyUpdate")
	c := &converter{o: o, d: d, text: r.convertText}
	c.readRulePatches(r, mutate, nil)
	for _, each := range mutate.get("foreach").items() {
		c.readForeach(r, each)
	}
}

// readRulePatches reads the patches of a rule, or those for each container.
func (c *converter) readRulePatches(r *kyvernoRule, f *field, each *loop) {
	whole := f.get("patchesJson6902")
	if each != nil {
		whole = f // with its conditions
	}
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
			pod.makeConditional("pod.spec." + each.listName() + ".exists(container, " + each.where + ")")
		}
		c.readAnchors(pod, nil, each)
		c.addPod(pod)
	}
	if patch := f.get("patchesJson6902"); patch.isText() {
		root, err := patch.parseEmbedded(patch.node.Value)
		if err != nil {
			c.o.leaveOut(whole, "%v", err)
			return
		}
		var ops []operation
		for _, item := range root.items() {
			ops = append(ops, operation{op: item.peekText("op"), path: item.peekText("path"), value: item.get("value"), at: item, each: each})
		}
		c.addPatch(patch, ops, r.workload)
	}
}

// containerList returns the list of containers that an expression names, or "".
func (r *kyvernoRule) containerList(expression string) string {
	prefix := "request.object.spec."
	if r.workload {
		prefix += "template.spec."
	}
	list, ok := strings.CutPrefix(strings.TrimSpace(expression), prefix)
	list = strings.TrimSuffix(strings.TrimSuffix(list, "[]"), "[*]")
	if !ok || !isContainerName(list) {
		return ""
	}
	return list
}

// readForeach reads what a rule does for each container.
func (c *converter) readForeach(r *kyvernoRule, f *field) {
	list := r.containerList(f.peekText("list"))
	if list == "" {
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
