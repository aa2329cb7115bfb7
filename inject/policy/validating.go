// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// validatingObjects returns the policy that checks the final pod, with its bindings. The template's
// containers must exist, in the right list and with the template's restartPolicy. They must have
// its image if that is protected.
func (b *builder) validatingObjects() []runtime.Object {
	conditions := b.matchConditions()
	pod := b.podFragment()
	b.problems = slices.DeleteFunc(b.problems, notRead)
	b.declareInputs(false)
	b.leftOut()
	validations := b.parameterValidations()
	for _, list := range containerLists() {
		for i := range pod.get("spec", list).items() {
			validations = append(validations, b.containerValidations(list, &pod.get("spec", list).items()[i])...)
		}
	}
	if len(b.t.Containers) == 0 {
		b.addProblem("spec.pod", "it adds no container, so a policy of this kind has nothing to check")
	}
	description := fmt.Sprintf("Checks that pods have the required template %s of Pillion. %s", b.t.Name, b.t.Spec.Description)
	return b.policyObjects("pillion-", "ValidatingAdmissionPolicy", description, func(own object) runtime.Object {
		return &admissionregistrationv1.ValidatingAdmissionPolicy{
			TypeMeta: own.TypeMeta, ObjectMeta: own.ObjectMeta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy:    new(admissionregistrationv1.Fail),
				MatchConstraints: own.scope,
				MatchConditions:  conditions,
				Variables:        b.variables,
				Validations:      validations,
			},
		}
	}, func(own object) runtime.Object {
		return &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			TypeMeta: own.TypeMeta, ObjectMeta: own.ObjectMeta,
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        own.policy,
				MatchResources:    own.scope,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.ValidationAction(b.t.Spec.Validate.Mode)},
			},
		}
	})
}

// notRead reports whether a problem is in a part of the fragment that a policy of this kind does not read.
func notRead(p Problem) bool {
	return strings.HasPrefix(p.Path, "spec.pod.") &&
		!regexp.MustCompile(`^spec\.pod\.spec\.(containers|initContainers)\[\d+\]\.(image|name|\$\{(when|forEach)\})$`).MatchString(p.Path)
}

// leftOut declares a variable that is true if the template's condition excludes the pod. The
// policy's own conditions express that if they can. As in the engine, a condition that reads a
// parameter excludes no pod if the parameter's value is invalid.
func (b *builder) leftOut() {
	if b.condition == "" {
		return
	}
	terms := []string{}
	for _, name := range b.conditionParams {
		terms = append(terms, "variables.valid_"+name)
	}
	b.declareVariable("leftOut", strings.Join(append(terms, fmt.Sprintf("!(%s)", b.condition)), " && "))
}

// messageStart returns the beginning of each message. Messages have one line because users read them in an
// event of the pod's owner.
func (b *builder) messageStart() string {
	return fmt.Sprintf("Pillion's template %s is required here, but ", b.t.Name)
}

// joinSentence joins alternating strings and expressions into one expression.
func joinSentence(parts ...string) string {
	for i := 0; i < len(parts); i += 2 {
		parts[i] = quoteString(parts[i])
	}
	return strings.ReplaceAll(strings.Join(parts, " + "), `" + "`, "") // constants
}

func (b *builder) parameterValidations() []admissionregistrationv1.Validation {
	var all []admissionregistrationv1.Validation
	for i := range b.t.Spec.Params {
		p := &b.t.Spec.Params[i]
		key := b.t.Key(p)
		whose := ""
		for _, by := range []struct {
			kind, other string
			may         bool
			given       string
		}{
			{"pod", "namespace", p.Overridable(v1alpha1.ByPod), quoteString(key) + " in variables.annotations"},
			{"namespace", "pod", p.Overridable(v1alpha1.ByNamespace), fmt.Sprintf("!(%s in variables.annotations) && %[1]s in %s", quoteString(key), namespaceAnnotations)},
		} {
			if !by.may {
				message := fmt.Sprintf("the %s's annotation %s sets a parameter that a %[1]s may not set. Remove it.", by.kind, key)
				all, whose = append(all, b.newValidation("!("+by.given+")", message, "")), cmp.Or(whose, by.other+"'s ")
			}
		}
		fallback := fmt.Sprintf("the value of its parameter %s is not allowed", p.Name)
		set := fmt.Sprintf("Set the %sannotation %s to %s.", whose, key, describeValues(p))
		message := joinSentence(b.messageStart()+fallback+`: "`, "variables.text_"+p.Name, `". `+set)
		if p.Needed() {
			none := fmt.Sprintf("%sits parameter %s has no value. %s", b.messageStart(), p.Name, set)
			message = fmt.Sprintf("variables.text_%s == \"\" ?\n  %s :\n  %s", p.Name, quoteString(none), message)
		}
		all = append(all, b.newValidation("variables.valid_"+p.Name, fallback, message))
	}
	return all
}

// newValidation returns a condition that must be true unless the template's condition excludes the
// pod.
func (b *builder) newValidation(expression, message, messageExpression string) admissionregistrationv1.Validation {
	if b.condition != "" {
		expression = "variables.leftOut || " + expression
	}
	return admissionregistrationv1.Validation{Expression: expression, MessageExpression: messageExpression, Message: b.messageStart() + message}
}

func (b *builder) containerValidations(list string, c *node) []admissionregistrationv1.Validation {
	name, kind := c.get("name").constantString(), "container"
	if list == "initContainers" {
		kind = "init container"
	}
	image := c.get("image").text
	check := func(format string, args ...any) string { return c.whenPresent(fmt.Sprintf(format, args...)) }
	const orLeaveOut = ", or leave the container out and let Pillion add it."
	lacks := fmt.Sprintf("this pod has no %s %s in spec.%s", kind, name, list)
	other := containerLists()[1-slices.Index(containerLists(), list)]
	all := []admissionregistrationv1.Validation{b.newValidation(
		check("variables.%s.exists(x, x.name == %q)", list, name), lacks,
		fmt.Sprintf("variables.%s.exists(x, x.name == %q) ?\n  %s :\n  %s", other, name,
			quoteString(fmt.Sprintf("%sthe container %s is in spec.%s, not in spec.%s. Move it there%s", b.messageStart(), name, other, list, orLeaveOut)),
			joinSentence(b.messageStart()+lacks+" (image ", image, "). It was not added when the pod was created: Pillion is down, or not installed here, or something in the pod conflicts with it; "+
				"run pillion inject with the pod's manifest and the templates to see the reason.")))}
	if policy := c.get("restartPolicy"); policy != nil {
		none := fmt.Sprintf("the init container %s has no restartPolicy: %s", name, policy.constantString())
		all = append(all, b.newValidation(check("variables.%s.all(x, x.name != %q || x.?restartPolicy.orValue(\"\") == %s)", list, name, policy.text), none,
			quoteString(b.messageStart()+none+", so it is not a sidecar and must end before the app starts. Set it"+orLeaveOut)))
	}
	if b.t.Protects("image") {
		another := fmt.Sprintf("the %s %s has another image", kind, name)
		all = append(all, b.newValidation(check("variables.%s.all(x, x.name != %q || x.image == %s)", list, name, image), another, joinSentence(
			b.messageStart()+another+": ", fmt.Sprintf("variables.%s.filter(x, x.name == %q)[0].image", list, name), ", not ", image, ". Use that image"+orLeaveOut)))
	}
	return all
}
