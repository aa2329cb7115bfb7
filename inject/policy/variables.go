// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// declareInputs declares the variables that other variables read, and returns the conditions for the
// parameters. It must be called after all expressions are rewritten.
func (b *builder) declareInputs(marks bool) (valid []string) {
	named := b.templateVariables()
	b.declareVariable("annotations", podAnnotations)
	b.declareVariable("initContainers", podInits)
	b.declareVariable("containers", podContainers)
	var brought []string
	for _, t := range b.set.Templates {
		if len(t.Containers) > 0 && (marks || len(b.ownLists) > 0) {
			b.declareVariable(markedVariable(t), fmt.Sprintf(`%q in variables.annotations || variables.annotations[?%q].orValue("") == "true"`,
				t.Annotation(templates.AnnotationInjected), t.Annotation(templates.AnnotationCustomize)))
			for _, c := range t.Runs() {
				brought = append(brought, "variables."+markedVariable(t)+" && "+c.Condition())
			}
		}
	}
	for _, list := range containerLists() {
		if slices.Contains(b.ownLists, list) {
			b.declareVariable(ownVariable(list), fmt.Sprintf("variables.%s.filter(x, !(%s))", list, anyTrue(brought...)))
		}
	}
	for i := range b.t.Spec.Params {
		b.reportUnreadable(&b.t.Spec.Params[i], fmt.Sprintf("spec.params[%d]", i))
		b.declareParameter(&b.t.Spec.Params[i])
		valid = append(valid, "variables.valid_"+b.t.Spec.Params[i].Name)
	}
	b.variables = append(b.variables, named...)
	return valid
}

// templateVariables returns the template's own variables.
func (b *builder) templateVariables() (all []admissionregistrationv1.Variable) {
	for _, v := range b.t.UsedVariables() {
		i := slices.IndexFunc(b.t.Spec.Variables, func(declared v1alpha1.Variable) bool { return declared.Name == v.Name() })
		text := b.rewriteAt(fmt.Sprintf("spec.variables[%d].expression", i), v.Expression()).text
		all = append(all, admissionregistrationv1.Variable{Name: namedVariable(v.Name()), Expression: text})
	}
	return all
}

// reportUnreadable reports a parameter whose value no policy can read.
func (b *builder) reportUnreadable(p *v1alpha1.Param, path string) {
	if p.Overridable(v1alpha1.ByServiceAccount) {
		b.addProblem(path+".overridableBy", noAccount)
	}
	switch {
	case p.Prefix != "":
		b.addProblem(path+".prefix", "a policy cannot make a map of the annotations with a prefix")
	case params.PolicyOf(p).Check == "":
		b.addProblem(path+".type", "a policy cannot read a parameter of type %s", p.Type)
	}
}

// declareParameter declares the variables of a parameter: text_x is the string, valid_x reports whether it
// is valid, and param_x is the value of the parameter's type, or an optional one. Expressions must
// read param_x only if valid_x is true.
func (b *builder) declareParameter(p *v1alpha1.Param) {
	key := quoteString(b.t.Key(p))
	byPod, byNamespace := p.Overridable(v1alpha1.ByPod), p.Overridable(v1alpha1.ByNamespace)
	inPod, inNamespace := key+" in variables.annotations", key+" in "+namespaceAnnotations
	text, given, checks := "optional.none()", []string{}, []string{}
	if byNamespace {
		text, given = fmt.Sprintf("%s[?%s]", namespaceAnnotations, key), []string{inNamespace}
	} else if byPod {
		checks = append(checks, fmt.Sprintf("%s || !(%s)", inPod, inNamespace))
	} else {
		checks = append(checks, fmt.Sprintf("!(%s)", inNamespace))
	}
	if !byPod {
		checks = append(checks, fmt.Sprintf("!(%s)", inPod))
	} else {
		text, given = fmt.Sprintf("variables.annotations[?%s].or(%s)", key, text), append(given, inPod)
	}
	standard := ""
	if p.Default != nil {
		standard = string(*p.Default)
	}
	value := strings.ReplaceAll(params.PolicyOf(p).Value, "TEXT", "variables.text_"+p.Name)
	switch {
	case p.Optional:
		checks = append(checks, anyTrue("!("+anyTrue(given...)+")", "("+allTrue(b.valueChecks(p)...)+")"))
		value = optionalValue(anyTrue(given...), value)
	case p.Needed():
		checks = append(checks, anyTrue(given...))
		fallthrough
	default:
		checks = append(checks, b.valueChecks(p)...)
	}
	b.declareVariable("text_"+p.Name, fmt.Sprintf("string(%s.orValue(%q))", text, standard))
	b.declareVariable("valid_"+p.Name, allTrue(checks...))
	b.declareVariable(paramVariable(p.Name), value)
}

// valueChecks returns the conditions for a parameter's value. Each may rely on the previous ones.
func (b *builder) valueChecks(p *v1alpha1.Param) []string {
	text, reads := "variables.text_"+p.Name, params.PolicyOf(p)
	checks := []string{fmt.Sprintf("size(bytes(%s)) <= %d", text, params.MaxLength(p))}
	if reads.Check != "true" && reads.Check != "" {
		checks = append(checks, strings.ReplaceAll(reads.Check, "TEXT", text))
	}
	if len(p.Enum) > 0 {
		checks = append(checks, fmt.Sprintf("%s in [%s]", text, quoteList(p.Choices())))
	}
	if p.Pattern != "" {
		checks = append(checks, fmt.Sprintf("%s.matches(%s)", text, quoteString("^(?:"+p.Pattern+")$")))
	}
	for _, bound := range []struct {
		limit    *v1alpha1.Scalar
		operator string
	}{{p.Minimum, ">="}, {p.Maximum, "<="}} {
		if bound.limit != nil {
			checks = append(checks, strings.NewReplacer("TEXT", text, "LIMIT", quoteString(string(*bound.limit)), "OP", bound.operator).Replace(reads.Compare))
		}
	}
	return checks
}

// describeValues returns a description of the parameter's values.
func describeValues(p *v1alpha1.Param) string {
	words := []string{params.Words(p)}
	if p.Message != "" {
		return p.Message
	}
	if len(p.Enum) > 0 {
		words[0] = "one of " + strings.Join(p.Choices(), ", ")
	}
	if p.Pattern != "" {
		words = append(words, "matching "+p.Pattern)
	}
	if p.Minimum != nil {
		words = append(words, "at least "+string(*p.Minimum))
	}
	if p.Maximum != nil {
		words = append(words, "at most "+string(*p.Maximum))
	}
	return strings.Join(words, ", ")
}
