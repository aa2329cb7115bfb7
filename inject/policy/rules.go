// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// What a pod may lack reads as empty.
const (
	podLabels      = `object.metadata.?labels.orValue({})`
	podAnnotations = `object.metadata.?annotations.orValue({})`
	podContainers  = `object.spec.?containers.orValue([])`
	podInits       = `object.spec.?initContainers.orValue([])`
	podVolumes     = `object.spec.?volumes.orValue([])`
)

// rules are the rules of the engine that look at the pod alone, as conditions
// without which the policy has nothing to say. Namespaces are the bindings' part,
// selectors that of the constraints.
func (b *builder) rules() []admissionregistrationv1.MatchCondition {
	var all []admissionregistrationv1.MatchCondition
	add := func(name, format string, args ...any) {
		all = append(all, admissionregistrationv1.MatchCondition{Name: name, Expression: fmt.Sprintf(format, args...)})
	}
	add("not-mirror-pod", `!(%q in %s)`, corev1.MirrorPodAnnotationKey, podAnnotations)
	if !b.t.Spec.Required {
		add("not-opted-out", `%s[?%q].orValue("") != %q`, podLabels, inject.LabelInject, inject.Disabled)
		add("requested", "%s", b.requested())
	}
	add("has-containers", `size(%s) > 0`, podContainers)
	add("os", `[string(object.spec.?os.?name.orValue("")), string(object.spec.?nodeSelector.orValue({})[?%q].orValue("")), %q].filter(x, x != "")[0] == %q`,
		corev1.LabelOSStable, corev1.Linux, b.t.Spec.Match.OS)
	if !b.t.Spec.Match.HostNetwork {
		add("not-host-network", `!object.spec.?hostNetwork.orValue(false)`)
	}
	if e := b.t.ConditionExpression(); e != nil {
		condition := b.rewrite("spec.match.condition", e)
		if condition.variables {
			b.condition, b.conditionParams = condition.text, e.Params()
		} else {
			add("condition", "%s", condition.text)
		}
	}
	return all
}

// requested says whether the annotation pillion.dev/templates asks for the
// template: of the names in it, the last one that is meant counts.
func (b *builder) requested() string {
	annotation := fmt.Sprintf("string(%s[?%q].orValue(%%q))", podAnnotations, inject.AnnotationTemplates)
	unnamed := "false"
	if b.t.Spec.Default { // absent, or with a sign at the front
		unnamed = fmt.Sprintf(annotation, "+") + `.trim().matches("^[+-]")`
	}
	return fmt.Sprintf("[%s.split(\",\").map(x, x.trim()).filter(x, x.matches(%q))].all(x,\n  size(x) > 0 ? !x[size(x) - 1].startsWith(\"-\") : %s)",
		fmt.Sprintf(annotation, ""), `^[+-]*`+regexp.QuoteMeta(b.t.Name)+`$`, unnamed)
}

// marked is the variable that says whether the pod says that the containers of a
// template's names are the template's.
func marked(t *templates.Template) string { return "variables." + markedName(t) }

func markedName(t *templates.Template) string { return "marked_" + identifier(t.Name) }

// identifier makes a name of Kubernetes a name of CEL.
func identifier(name string) string { return strings.ReplaceAll(name, "-", "_") }

// marks declares the variables of marked.
func (b *builder) marks() {
	for _, t := range b.set.Templates {
		if len(t.Containers) > 0 {
			b.variable(markedName(t), fmt.Sprintf(`%q in variables.annotations || variables.annotations[?%q].orValue("") == "true"`,
				t.Annotation(templates.AnnotationInjected), t.Annotation(templates.AnnotationCustomize)))
		}
	}
}

// all joins conditions that must all hold, one a line.
func all(conditions ...string) string { return joined(" &&\n", "true", conditions) }

// some joins conditions of which one is enough, one a line.
func some(conditions ...string) string { return joined(" ||\n", "false", conditions) }

func joined(operator, none string, conditions []string) string {
	switch len(conditions) {
	case 0:
		return none
	case 1:
		return conditions[0]
	}
	for i, c := range conditions {
		conditions[i] = "(" + c + ")"
	}
	return strings.Join(conditions, operator)
}
