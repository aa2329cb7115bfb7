// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"go.yaml.in/yaml/v3"
)

// isMutatingPolicy reports whether an object is a MutatingAdmissionPolicy of Kubernetes, or a MutatingPolicy of Kyverno,
// which has the same fields and some more.
func isMutatingPolicy(o *object) bool {
	return o.kind == "MutatingAdmissionPolicy" && strings.HasPrefix(o.root.peekText("apiVersion"), "admissionregistration.k8s.io/") ||
		isKyvernoMutatingPolicy(o)
}

func isKyvernoMutatingPolicy(o *object) bool {
	return (o.kind == "MutatingPolicy" || o.kind == "NamespacedMutatingPolicy") && strings.HasPrefix(o.root.peekText("apiVersion"), "policies.kyverno.io/")
}

func isPolicyBinding(o *object) bool {
	return o.kind == "MutatingAdmissionPolicyBinding" && strings.HasPrefix(o.root.peekText("apiVersion"), "admissionregistration.k8s.io/")
}

// readMutatingPolicy reads a policy. It becomes one template for each of its bindings.
func readMutatingPolicy(im *importer, o *object) {
	o.readMetadata()
	spec := o.root.get("spec")
	o.noteAll(spec.findAll("failurePolicy", "reinvocationPolicy"), "if an expression fails for a pod, Pillion skips the template and reports it; it is always called again after other changes")
	o.leaveOut(spec.get("paramKind"), "a template has no parameter objects; declare what they contain as params, which namespaces and pods set by annotations")
	if isKyvernoMutatingPolicy(o) {
		d := o.policyDraft(o.name)
		o.readKyvernoEvaluation(d, spec)
		if o.kind == "NamespacedMutatingPolicy" {
			o.useNamespace(d)
		}
		o.readPolicy(d, spec)
		return
	}
	bindings := im.bindingsOf(o.name)
	if len(bindings) == 0 {
		d := o.policyDraft(o.name)
		d.onRequest = true
		o.leaveOut(o.root.get("metadata", "name"), "a policy has no effect without a MutatingAdmissionPolicyBinding, and none is in the input; import the binding together with the policy; until then, pods get the template only if their annotation pillion.dev/templates names it")
		o.readPolicy(d, spec)
	}
	for _, b := range bindings {
		name := o.name
		if len(bindings) > 1 {
			name = b.name
		}
		d := o.policyDraft(name)
		b.readBinding(d, o.readPolicy(d, spec))
	}
}

func (o *object) policyDraft(name string) *draft {
	d := newDraft(name, "Imported from the "+o.kind+" "+o.name+".")
	d.placeInit = "Last"
	o.drafts = append(o.drafts, d)
	return d
}

// bindingsOf returns the bindings of a policy.
func (im *importer) bindingsOf(policy string) (all []*object) {
	for _, o := range im.objects {
		if isPolicyBinding(o) && o.root.peekText("spec", "policyName") == policy {
			all = append(all, o)
		}
	}
	return all
}

// readPolicyBinding reads what belongs to a binding alone. Its policy reads which pods it selects.
func readPolicyBinding(im *importer, o *object) {
	o.readMetadata()
	spec := o.root.get("spec")
	name := spec.readText("policyName")
	if !slices.ContainsFunc(im.objects, func(p *object) bool { return isMutatingPolicy(p) && p.name == name }) {
		o.leaveOut(spec, "the policy %s is not in the input; import it together with its bindings", name)
		return
	}
	o.partOf = "MutatingAdmissionPolicy " + name
	o.leaveOut(spec.get("paramRef"), "a template has no parameter objects; declare what they contain as params, which namespaces and pods set by annotations")
}

// readBinding adds the conditions of a binding to the template of its policy.
func (o *object) readBinding(d *draft, workload bool) {
	o.bound = append(o.bound, d)
	match := o.root.get("spec", "matchResources")
	d.addSelectors(o, match, workload)
	o.readResourceRules(d, match)
	if d.discarded {
		o.leaveOut(match, notForPods)
	}
}

const notForPods = "no rule is for pods that are created, and Pillion adds only to these"

// readPolicy reads the conditions and the mutations of a policy. It reports whether they are about workloads, and not pods.
func (o *object) readPolicy(d *draft, spec *field) (workload bool) {
	match := spec.get("matchConstraints")
	workload = o.readResourceRules(d, match)
	if d.discarded {
		o.leaveOut(spec, notForPods)
		return workload
	}
	d.addSelectors(o, match, workload)
	for _, v := range spec.get("variables").items() {
		o.readVariable(d, v, workload)
	}
	var names []*field
	for _, m := range spec.get("matchConditions").items() {
		names = append(names, m.findAll("name")...)
		o.readCondition(d, m.get("expression"), workload)
	}
	o.noteAll(names, "these names are only for readers")
	c := &converter{o: o, d: d}
	mutations := spec.get("mutations").items()
	for _, m := range mutations {
		c.readMutation(m, workload, len(mutations) == 1)
	}
	c.completeMounts()
	return workload
}

// addSelectors adds the selectors of a policy or of a binding to those of the template.
func (d *draft) addSelectors(o *object, match *field, workload bool) {
	d.namespaceSelector = joinSelectors(d.namespaceSelector, d.copySelector(o, match.get("namespaceSelector")))
	if s := match.get("objectSelector"); workload && s != nil && len(s.children) > 0 {
		d.onRequest = true
		o.leaveOut(s, "the labels of a workload are not those of its pods; %s", onlyOnRequest)
	} else {
		d.podSelector = joinSelectors(d.podSelector, d.copySelector(o, s))
	}
	for _, name := range []string{"namespaceSelector", "objectSelector"} {
		match.get(name).markEmpty() // it matches everything
	}
}

// joinSelectors returns a selector for what matches both.
func joinSelectors(a, b *yaml.Node) *yaml.Node {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	joined := mapNode()
	var expressions []*yaml.Node
	labels := mapNode()
	for _, s := range []*yaml.Node{a, b} {
		expressions = append(expressions, itemsOf(memberOf(s, "matchExpressions"))...)
		l := memberOf(s, "matchLabels")
		for i := 0; l != nil && i+1 < len(l.Content); i += 2 {
			key, value := l.Content[i].Value, l.Content[i+1]
			if other := memberOf(labels, key); other != nil && other.Value != value.Value {
				expressions = append(expressions, mapNode("key", textNode(key), "operator", textNode("In"), "values", listNode(value)))
				continue
			}
			setMember(labels, key, value)
		}
	}
	setMember(joined, "matchLabels", nilIfEmpty(labels))
	setMember(joined, "matchExpressions", listNode(expressions...))
	return joined
}

// workloads are the resources whose pods are in spec.template.
var workloads = []string{"deployments", "statefulsets", "daemonsets", "replicasets", "replicationcontrollers", "jobs"}

// readResourceRules reads which objects a policy changes. It reports whether these are workloads, and not pods.
func (o *object) readResourceRules(d *draft, match *field) (workload bool) {
	if f := match.get("matchPolicy"); f.peekText() == "Equivalent" || f.peekText() == "Exact" {
		f.read = true // for pods, both mean the same
	}
	if exclude := match.get("excludeResourceRules"); exclude != nil && len(exclude.children) > 0 {
		o.leaveOut(exclude, "write a condition for the pods that do not get the template; %s", onlyOnRequest)
		d.onRequest = true
	}
	pods := false
	rules := match.get("resourceRules").items()
	for _, rule := range rules {
		if f := rule.get("scope"); f.peekText() == "*" || f.peekText() == "Namespaced" {
			f.read = true
		}
		if names := rule.get("resourceNames"); names != nil && len(names.children) > 0 {
			o.leaveOut(names, "most pods have no name yet when they are created; select them by labels; %s", onlyOnRequest)
			d.onRequest = true
		}
		if !o.readRuleLists(rule) {
			continue
		}
		for _, r := range rule.get("resources").items() {
			switch name := r.peekText(); {
			case slices.Contains([]string{"pods", "*", "pods/*", "*/*"}, name):
				pods = true
				r.read = true
			case slices.Contains(workloads, name):
				workload = true
				o.leaveOut(r, "Pillion adds to pods when they are created, whatever created them; if other pods must not get the template, select by a label that only the pods of these %s have", name)
			default:
				o.leaveOut(r, "Pillion adds only to pods")
			}
		}
	}
	if len(rules) > 0 && !pods && !workload {
		d.discarded = true
	}
	return workload && !pods
}

// readRuleLists reads the groups, the versions and the operations of a rule. It reports whether the rule is for objects of
// Kubernetes that are created.
func (o *object) readRuleLists(rule *field) bool {
	all := rule.peekText("scope") != "Cluster"
	for _, list := range []struct {
		name    string
		allowed []string
	}{{"apiGroups", []string{"", "apps", "batch", "*"}}, {"apiVersions", []string{"v1", "*"}}, {"operations", []string{"CREATE", "*"}}} {
		found := false
		for _, item := range rule.get(list.name).items() {
			if slices.Contains(list.allowed, item.peekText()) {
				found, item.read = true, true
				continue
			}
			o.recordNote(item, "Pillion adds to pods of v1 when they are created")
		}
		if !found {
			all = false
			o.leaveOut(rule, "the %s are not those of pods that are created, and Pillion adds only to these", list.name)
		}
	}
	return all
}

// readCondition adds a condition of a policy.
func (o *object) readCondition(d *draft, f *field, workload bool) {
	if f == nil {
		return
	}
	p, err := parseExpression(f, workload)
	text := ""
	if err == nil {
		text, err = p.translateExpr(p.root)
	}
	if err != nil {
		o.leaveOut(f, "%v; %s", err, onlyOnRequest)
		d.onRequest = true
		return
	}
	f.read = true
	d.addCondition(f, text)
}

// readVariable adds a variable of a policy.
func (o *object) readVariable(d *draft, f *field, workload bool) {
	expression := f.get("expression")
	if !expression.isText() {
		return
	}
	p, err := parseExpression(expression, workload)
	text := ""
	if err == nil {
		text, err = p.translateExpr(p.root)
	}
	if err != nil {
		o.leaveOut(f, "%v; what reads this variable is left out too", err)
		return
	}
	n := mapNode("name", textNode(f.readText("name")), "expression", expressionNode(text))
	d.variables = append(d.variables, n)
	d.origin[n], f.out, expression.read = f, n, true
}

// readMutation adds what one mutation adds to a pod. A condition of the only one is a condition of the template.
func (c *converter) readMutation(m *field, workload, only bool) {
	configuration, patch := m.get("applyConfiguration", "expression"), m.get("jsonPatch", "expression")
	switch kind := m.peekText("patchType"); {
	case kind == "ApplyConfiguration" && configuration.isText():
		c.readConfiguration(configuration, workload, only)
	case kind == "JSONPatch" && patch.isText():
		c.readPatchExpression(patch, workload)
	default:
		c.o.leaveOut(m, "this is neither an ApplyConfiguration nor a JSONPatch with an expression")
	}
	m.markScalar("patchType")
}

// readConfiguration adds an apply configuration. A condition around the whole object is one of all its parts.
func (c *converter) readConfiguration(f *field, workload, only bool) {
	p, err := parseExpression(f, workload)
	if err != nil {
		c.o.leaveOut(f, "%v", err)
		return
	}
	e := p.root
	var when []condition
	for e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Conditional {
		args, negate := e.AsCall().Args(), false
		switch {
		case isEmptyObject(args[2]):
			e = args[1]
		case isEmptyObject(args[1]):
			e, negate = args[2], true
		default:
			c.o.leaveOut(f, "the object depends on a condition; write a template for each case")
			return
		}
		text, err := p.translateExpr(args[0])
		if err != nil {
			c.o.leaveOut(f, "%v", err)
			return
		}
		if negate {
			text = "!(" + text + ")"
		}
		when = append(when, condition{text, f})
	}
	if e.Kind() != ast.StructKind || e.AsStruct().TypeName() != "Object" {
		c.o.leaveOut(f, "only an expression that is an Object{...} can be imported; write what it adds into the template")
		return
	}
	root := p.buildField(e, f, "", f.path+inside)
	f.children, f.read, f.embedded = append(f.children, root), true, true
	pod := root
	if workload {
		if pod = root.get("spec", "template"); pod == nil {
			c.o.leaveOut(root, "this changes the workload and not its pods; Pillion adds only to pods")
			return
		}
		c.leaveOutOthers(root, pod)
	}
	if only {
		for _, w := range when {
			c.d.addCondition(w.from, w.expression)
		}
	} else if len(when) > 0 {
		pod.makeConditional(joinConditions(when))
	}
	if pod.get("spec", "initContainers").isBefore() {
		c.d.placeInit = "First"
	}
	if pod.get("spec", "containers").isBefore() {
		c.d.placeContainers = "First"
	}
	c.addPod(pod)
}

func (f *field) isBefore() bool { return f != nil && f.before }

// leaveOutOthers reports the fields around a part of an object.
func (c *converter) leaveOutOthers(root, part *field) {
	for _, f := range root.members() {
		switch {
		case f == part:
		case f.name == "apiVersion" || f.name == "kind":
			f.markAll()
		case f.name == "spec":
			c.leaveOutOthers(f, part)
		default:
			c.o.leaveOut(f, "this changes the workload and not its pods; Pillion adds only to pods")
		}
	}
}

func isEmptyObject(e ast.Expr) bool {
	return e.Kind() == ast.StructKind && len(e.AsStruct().Fields()) == 0
}

// readKyvernoEvaluation reads the fields that only Kyverno has.
func (o *object) readKyvernoEvaluation(d *draft, spec *field) {
	if e := spec.get("evaluation"); e.peekText("mutateExisting", "enabled") == "true" {
		o.leaveOut(e.get("mutateExisting"), "Pillion adds to pods when they are created; restart the workloads with pillion rollout")
	}
	if e := spec.get("evaluation", "admission"); e.peekText("enabled") == "false" {
		o.leaveOut(e, "the policy does nothing when pods are created; %s", onlyOnRequest)
		d.onRequest = true
	}
	o.noteAll(spec.findAll("evaluation", "webhookConfiguration", "autogen"), "this is how Kyverno calls the policy, and for which workloads it makes further ones; Pillion adds to all pods when they are created")
	if targets := spec.get("targetMatchConstraints"); targets != nil {
		o.leaveOut(targets, "the policy changes these objects and not the pods that it matches, and Pillion adds only to pods that are being created; %s", onlyOnRequest)
		d.onRequest = true
	}
}
