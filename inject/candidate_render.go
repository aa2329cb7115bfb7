// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"errors"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
)

// renderFragment applies the rules and renders the fragment. If the template is not for the pod or cannot be rendered, it returns
// the code of the reason, and a sentence that may be "". Otherwise it returns "", "".
func (c *candidate) renderFragment(rules []rule) (Code, string) {
	for i := range rules {
		rule := &rules[i]
		if applies, message := rule.applies(c.subject, c.t); applies {
			if c.subject.request.detail {
				c.decision.Also = c.furtherReasons(rules[i:])
			}
			return rule.code, message
		}
		if c.subject.request.detail {
			c.recordPassed(rule.code, rule.passes(c.subject, c.t))
		}
	}
	if why := c.subject.tooMany(); why != "" {
		return CodeRenderFailed, why
	}
	invalid := c.readParams()
	c.decision.Params = c.values
	ok, err := c.t.Condition(&c.input, c.values)
	if err == nil && !ok {
		return CodeConditionFalse, c.whyFalse()
	}
	if err == nil && c.subject.request.detail {
		c.recordPassed(CodeConditionFalse, whyCondition(c))
	}
	if invalid != nil {
		c.decision.Obstacles = c.invalidParams(invalid)
		return CodeInvalidParameter, invalid.Error()
	}
	c.recordPassed(CodeInvalidParameter, "every parameter has an allowed value")
	if err == nil {
		c.fragment, err = c.t.Render(&c.input, c.values)
	}
	if err == nil {
		c.placed, err = c.t.Placement(&c.input, c.values)
	}
	if err != nil {
		return CodeRenderFailed, err.Error()
	}
	if has, message := hasBase(c.subject, c.t); has {
		if fell, message := fellBack(c.subject, c.t); fell {
			return CodeFellBack, message
		}
		return CodeHasReplaced, message
	}
	c.prepareFragment()
	return "", ""
}

// readParams reads the values of the template's parameters.
func (c *candidate) readParams() (invalid error) {
	annotations := (*jsontree.Node)(nil)
	if c.setsParams() {
		annotations = c.subject.withoutDropped(c.subject.annotations)
	}
	c.values, invalid = c.t.Values(annotations, c.subject.request.account, &c.subject.request.namespace)
	return invalid
}

// furtherReasons returns further reasons why the pod does not get the template. Rules are the one that decided and those after it.
// If the pod's author cannot change what the first reason is about, there are no further ones.
func (c *candidate) furtherReasons(rules []rule) (all []Step) {
	if code := rules[0].code; code == CodeMirrorPod || code == CodeExcludedNamespace {
		return nil
	}
	for i := range rules[1:] {
		rule := &rules[1+i]
		if applies, message := rule.applies(c.subject, c.t); applies {
			all = append(all, Step{rule.code, cmp.Or(message, rule.code.sentence())})
		}
	}
	if c.subject.tooMany() != "" {
		return all // expressions could take too long
	}
	c.values, _ = c.t.Values(c.subject.withoutDropped(c.subject.annotations), c.subject.request.account, &c.subject.request.namespace)
	if ok, err := c.t.Condition(&c.input, c.values); err == nil && !ok {
		all = append(all, Step{CodeConditionFalse, c.whyFalse()})
	}
	return all
}

// setsParams reports whether the pod may set parameters of the template.
func (c *candidate) setsParams() bool {
	members, prefix := c.subject.annotations.Members(), c.t.prefix
	for i := range members {
		if name := members[i].Name(); strings.HasPrefix(name, prefix) && name != c.t.injected || c.t.products.readsKey(name) {
			return true
		}
	}
	return false
}

// whyFalse returns why the condition is false. Only reports name the part that is false, because finding it takes another
// evaluation.
func (c *candidate) whyFalse() string {
	if c.subject.request.detail {
		if part := c.t.Unmet(&c.input, c.values); part != "" {
			return "this part of its condition is false: " + part
		}
	}
	return "its condition is false: " + c.t.Spec.Match.Condition
}

func whyCondition(c *candidate) string {
	if c.t.Spec.Match.Condition == "" {
		return "the template has no condition"
	}
	return "its condition is true: " + c.t.Spec.Match.Condition
}

// invalidParams returns the places of invalid parameter values. It returns none if all of them are
// the namespace's or the ServiceAccount's.
func (c *candidate) invalidParams(err error) []Obstacle {
	all, _ := errors.AsType[params.InvalidValuesError](err)
	var found []Obstacle
	ofPod := false
	for _, v := range all[:min(len(all), maxFindings)] {
		place := Difference{}
		if v.Source != params.FromNamespace && v.Source != params.FromServiceAccount {
			place, ofPod = newDifference(schema.AnnotationPath(v.Key), c.subject.annotation(v.Key), nil), true
		}
		found = append(found, Obstacle{place, v.Error()})
	}
	if !ofPod {
		return nil
	}
	return found
}
