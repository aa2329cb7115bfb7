// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/templates"
)

// validating checks the final pod: that the template's containers are there,
// where they belong, as native sidecars where the template says so, and with the
// template's image where that is protected.
func (b *builder) validating() []runtime.Object {
	conditions := b.rules()
	b.variable("initContainers", podInits)
	b.variable("containers", podContainers)
	if len(b.t.Spec.Params) > 0 {
		b.variable("annotations", podAnnotations)
		b.parameters()
	}
	b.leftOut()
	validations := b.parameterValidations()
	pod := b.fragment(b.t.PodFragment(), "spec.pod")
	b.problems = slices.DeleteFunc(b.problems, notLookedAt)
	for _, list := range lists() {
		for i := range pod.at("spec", list).items() {
			validations = append(validations, b.containerValidations(list, &pod.at("spec", list).items()[i])...)
		}
	}
	if len(b.t.Containers) == 0 {
		b.problem("spec.pod", "it brings no container, so there is nothing that this kind of policy can look for")
	}
	name := "pillion-" + b.t.Name
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: b.metadata(name, fmt.Sprintf("Checks that pods have the required template %s of Pillion: %s", b.t.Name, describe(b.t))),
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    new(admissionregistrationv1.Fail),
			MatchConstraints: b.constraints(),
			MatchConditions:  conditions,
			Variables:        b.variables,
			Validations:      validations,
		},
	}
	objects := []runtime.Object{policy}
	for _, o := range optIns() {
		objects = append(objects, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   metav1.TypeMeta{APIVersion: apiVersion, Kind: "ValidatingAdmissionPolicyBinding"},
			ObjectMeta: b.metadata(name+o.suffix, o.description()),
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName:        name,
				MatchResources:    b.scope(o),
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.ValidationAction(b.t.Spec.Validate.Mode)},
			},
		})
	}
	return objects
}

// notLookedAt says of a problem that it is in a part of the pod's fragment that this kind of policy does not read.
func notLookedAt(p Problem) bool {
	return strings.HasPrefix(p.Path, "spec.pod.") &&
		!regexp.MustCompile(`^spec\.pod\.spec\.(containers|initContainers)\[\d+\]\.(image|\$\{when\})$`).MatchString(p.Path)
}

const apiVersion = "admissionregistration.k8s.io/v1"

// lists are the lists of containers that a template may add to.
func lists() []string { return []string{"initContainers", "containers"} }

func describe(t *templates.Template) string {
	if t.Spec.Description == "" {
		return "it says no more about itself."
	}
	return t.Spec.Description
}

// leftOut declares whether the template's condition leaves the pod out, where that
// reads parameters or the namespace, which the policy's own conditions cannot. As in
// the engine, a condition that reads a parameter leaves nothing out if the parameter's
// value is not valid.
func (b *builder) leftOut() {
	if b.condition == "" {
		return
	}
	terms := []string{}
	for _, name := range b.conditionParams {
		terms = append(terms, "variables.valid_"+name)
	}
	b.variable("leftOut", strings.Join(append(terms, fmt.Sprintf("!(%s)", b.condition)), " && "))
}

func (b *builder) unlessLeftOut(validation string) string {
	if b.condition == "" {
		return validation
	}
	return "variables.leftOut || " + validation
}

// start is what each message begins with. Messages are one line, for they are
// read in an event of the pod's owner.
func (b *builder) start() string {
	return fmt.Sprintf("Pillion's template %s is required here", b.t.Name)
}

// sentence makes an expression of texts and expressions in turn.
func sentence(parts ...string) string {
	var terms []string
	for i, p := range parts {
		switch {
		case i%2 == 1 && strings.HasPrefix(p, `"`) && strings.HasSuffix(p, `"`) && strings.Count(p, `"`) == 2: // a constant
			parts[i+1] = parts[i-1] + strings.Trim(p, `"`) + parts[i+1]
		case i%2 == 1:
			terms = append(terms, quote(parts[i-1]), p)
		case i == len(parts)-1:
			terms = append(terms, quote(p))
		}
	}
	return strings.Join(terms, " + ")
}

func (b *builder) parameterValidations() []admissionregistrationv1.Validation {
	var all []admissionregistrationv1.Validation
	for i := range b.t.Spec.Params {
		p := &b.t.Spec.Params[i]
		key := b.t.Annotation(p.Name)
		for _, by := range []struct {
			whose string
			may   bool
			given string
		}{
			{"pod", p.Overridable(templates.ByPod), quote(key) + " in variables.annotations"},
			{"namespace", p.Overridable(templates.ByNamespace), fmt.Sprintf("!(%s in variables.annotations) && %[1]s in %s", quote(key), namespaceAnnotations)},
		} {
			if !by.may {
				message := fmt.Sprintf("%s, but the %s's annotation %s sets a parameter that a %[2]s may not set. Remove it.", b.start(), by.whose, key)
				all = append(all, validation(b.unlessLeftOut("!("+by.given+")"), message, ""))
			}
		}
		fallback := fmt.Sprintf("%s, but the value of its parameter %s is not allowed", b.start(), p.Name)
		set := fmt.Sprintf("Set the %sannotation %s to %s.", whose(p), key, allowed(p))
		message := sentence(fallback+`: "`, "variables.text_"+p.Name, `". `+set)
		if p.Default == nil {
			none := fmt.Sprintf("%s, but its parameter %s has no value. %s", b.start(), p.Name, set)
			message = fmt.Sprintf("variables.text_%s == \"\" ?\n  %s :\n  %s", p.Name, quote(none), message)
		}
		all = append(all, validation(b.unlessLeftOut("variables.valid_"+p.Name), fallback, message))
	}
	return all
}

// whose annotation it is where not both may set the parameter.
func whose(p *templates.Param) string {
	switch {
	case !p.Overridable(templates.ByPod):
		return "namespace's "
	case !p.Overridable(templates.ByNamespace):
		return "pod's "
	}
	return ""
}

func validation(expression, message, messageExpression string) admissionregistrationv1.Validation {
	return admissionregistrationv1.Validation{Expression: expression, MessageExpression: messageExpression, Message: message}
}

func (b *builder) containerValidations(list string, c *node) []admissionregistrationv1.Validation {
	name, kind := unquoted(c.get("name")), "container"
	if list == "initContainers" {
		kind = "init container"
	}
	image := c.get("image").text
	check := func(format string, args ...any) string {
		return b.unlessLeftOut(unless(c, fmt.Sprintf(format, args...)))
	}
	const orLeaveOut = ", or leave the container out and let Pillion add it."
	lacks := fmt.Sprintf("%s, but this pod has no %s %s in spec.%s", b.start(), kind, name, list)
	other := lists()[1-slices.Index(lists(), list)]
	all := []admissionregistrationv1.Validation{validation(
		check("variables.%s.exists(x, x.name == %q)", list, name), lacks,
		fmt.Sprintf("variables.%s.exists(x, x.name == %q) ?\n  %s :\n  %s", other, name,
			quote(fmt.Sprintf("%s, but the container %s stands in spec.%s, not in spec.%s. Move it there%s", b.start(), name, other, list, orLeaveOut)),
			sentence(lacks+" (image ", image, "). It was not added when the pod was created: Pillion is down, or not installed here, or something in the pod is in its way; "+
				"pillion inject, given the pod's manifest and the templates, says what.")))}
	if policy := c.get("restartPolicy"); policy != nil {
		none := fmt.Sprintf("%s, but the init container %s has no restartPolicy: %s", b.start(), name, unquoted(policy))
		all = append(all, validation(check("variables.%s.all(x, x.name != %q || x.?restartPolicy.orValue(\"\") == %s)", list, name, policy.text), none,
			quote(none+", so it is no sidecar and has to end before the app starts. Set it"+orLeaveOut)))
	}
	if b.t.Protects("image") {
		another := fmt.Sprintf("%s, but the %s %s has another image", b.start(), kind, name)
		all = append(all, validation(check("variables.%s.all(x, x.name != %q || x.image == %s)", list, name, image), another, sentence(
			another+": ", fmt.Sprintf("variables.%s.filter(x, x.name == %q)[0].image", list, name), ", not ", image, ". Give it that one"+orLeaveOut)))
	}
	return all
}

// unquoted is the text of a constant.
func unquoted(n *node) string {
	if n == nil || !n.constant {
		return ""
	}
	return strings.Trim(n.text, `"`) // names, images and policies have nothing to escape
}
