// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"regexp"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// matchConditions returns the engine's rules that read only the pod, as match conditions. If one of them is
// false, the policy does nothing. The bindings select namespaces, and the constraints have the
// template's selectors.
func (b *builder) matchConditions() []admissionregistrationv1.MatchCondition {
	var all []admissionregistrationv1.MatchCondition
	add := func(name, format string, args ...any) {
		all = append(all, admissionregistrationv1.MatchCondition{Name: name, Expression: fmt.Sprintf(format, args...)})
	}
	add("not-mirror-pod", `!(%q in %s)`, corev1.MirrorPodAnnotationKey, podAnnotations)
	if !b.t.Spec.Required {
		add("not-opted-out", `%s[?%q].orValue("") != %q`, podLabels, inject.LabelInject, inject.Disabled)
		add("requested", "%s", b.requestedCondition())
	}
	add("has-containers", `size(%s) > 0`, podContainers)
	if os := b.t.Spec.Match.OS; os != v1alpha1.AnyOS {
		var labels strings.Builder
		for _, label := range schema.OSLabels() {
			fmt.Fprintf(&labels, `string(object.spec.?nodeSelector.orValue({})[?%q].orValue("")), `, label)
		}
		add("os", `[string(object.spec.?os.?name.orValue("")), %s%q].filter(x, x != "")[0] == %q`, labels.String(), corev1.Linux, os)
	}
	if !b.t.Spec.Match.HostNetwork {
		add("not-host-network", `!object.spec.?hostNetwork.orValue(false)`)
	}
	if e := b.t.ConditionExpression(); e != nil {
		condition := b.rewriteAt("spec.match.condition", e)
		if condition.variables {
			b.condition, b.conditionParams = condition.text, e.Params()
		} else {
			add("condition", "%s", condition.text)
		}
	}
	return all
}

// requestedCondition returns the condition that the annotation pillion.dev/templates selects the template.
// The last mention of the template counts.
func (b *builder) requestedCondition() string {
	annotation := fmt.Sprintf("string(%s[?%q].orValue(%%q))", podAnnotations, inject.AnnotationTemplates)
	unnamed := "false"
	if b.t.Spec.Default { // the annotation is absent, or starts with a sign
		unnamed = fmt.Sprintf(annotation, "+") + `.trim().matches("^[+-]")`
	}
	return fmt.Sprintf("[%s.split(\",\").map(x, x.trim()).filter(x, x.matches(%q))].all(x,\n  size(x) > 0 ? !x[size(x) - 1].startsWith(\"-\") : %s)",
		fmt.Sprintf(annotation, ""), `^[+-]*`+regexp.QuoteMeta(b.t.Name)+`$`, unnamed)
}
