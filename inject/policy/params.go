// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates"
)

// paramVariable is the variable with a parameter's value.
func paramVariable(name string) string { return "param_" + name }

func quote(text string) string { return strconv.Quote(text) }

const namespaceAnnotations = `namespaceObject.metadata.?annotations.orValue({})`

// parameter declares the variables of a parameter: text_x as it is written, valid_x,
// and param_x of the parameter's type, which must be read only where it is valid.
func (b *builder) parameter(p *templates.Param) {
	key := quote(b.t.Annotation(p.Name))
	byPod, byNamespace := p.Overridable(templates.ByPod), p.Overridable(templates.ByNamespace)
	text, checks := "optional.none()", []string{}
	inPod, inNamespace := key+" in variables.annotations", key+" in "+namespaceAnnotations
	switch {
	case byPod && byNamespace:
		text = fmt.Sprintf("variables.annotations[?%s].or(%s[?%[1]s])", key, namespaceAnnotations)
	case byPod:
		text = fmt.Sprintf("variables.annotations[?%s]", key)
		checks = append(checks, fmt.Sprintf("%s || !(%s)", inPod, inNamespace))
	case byNamespace:
		text = fmt.Sprintf("%s[?%s]", namespaceAnnotations, key)
		checks = append(checks, fmt.Sprintf("!(%s)", inPod))
	default:
		checks = append(checks, fmt.Sprintf("!(%s)", inPod), fmt.Sprintf("!(%s)", inNamespace))
	}
	value := `""`
	if p.Default != nil {
		value = quote(string(*p.Default))
	} else {
		given := []string{inPod, inNamespace}
		if !byPod {
			given = given[1:]
		} else if !byNamespace {
			given = given[:1]
		}
		if !byPod && !byNamespace {
			given = nil
		}
		checks = append(checks, some(given...))
	}
	b.variable("text_"+p.Name, fmt.Sprintf("string(%s.orValue(%s))", text, value))
	b.variable("valid_"+p.Name, all(append(checks, b.valueChecks(p)...)...))
	b.variable(paramVariable(p.Name), strings.ReplaceAll(p.Type.Policy().Value, "TEXT", "variables.text_"+p.Name))
}

// valueChecks are what a parameter's value must be; each may count on those before it.
func (b *builder) valueChecks(p *templates.Param) []string {
	text, reads := "variables.text_"+p.Name, p.Type.Policy()
	checks := []string{fmt.Sprintf("size(bytes(%s)) <= %d", text, p.Length())}
	if reads.Check != "true" {
		checks = append(checks, strings.ReplaceAll(reads.Check, "TEXT", text))
	}
	if len(p.Enum) > 0 {
		var choices []string
		for _, e := range p.Enum {
			choices = append(choices, quote(string(e)))
		}
		checks = append(checks, fmt.Sprintf("%s in [%s]", text, strings.Join(choices, ", ")))
	}
	if p.Pattern != "" {
		checks = append(checks, fmt.Sprintf("%s.matches(%s)", text, quote("^(?:"+p.Pattern+")$")))
	}
	for _, bound := range []struct {
		limit    *templates.Scalar
		operator string
	}{{p.Minimum, ">="}, {p.Maximum, "<="}} {
		if bound.limit != nil {
			checks = append(checks, strings.NewReplacer("TEXT", text, "LIMIT", quote(string(*bound.limit)), "OP", bound.operator).Replace(reads.Compare))
		}
	}
	return checks
}

// parameters declares the variables of all of them, and returns the conditions that their values must hold to.
func (b *builder) parameters() (valid []string) {
	for i := range b.t.Spec.Params {
		b.parameter(&b.t.Spec.Params[i])
		valid = append(valid, "variables.valid_"+b.t.Spec.Params[i].Name)
	}
	return valid
}

// allowed says in words what a parameter's value may be.
func allowed(p *templates.Param) string {
	words := []string{p.Type.Words()}
	if len(p.Enum) > 0 {
		words = words[:0]
		for _, e := range p.Enum {
			words = append(words, string(e))
		}
		words = []string{"one of " + strings.Join(words, ", ")}
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
