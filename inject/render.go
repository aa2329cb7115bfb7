// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"errors"
	"strings"

	"github.com/pillion-dev/pillion/templates"
)

// render applies the rules and renders the fragment. If it returns a code other than "", there is
// no fragment, and the code is the reason.
func (c *candidate) render(rules []rule) (Code, string) {
	for i := range rules {
		rule := &rules[i]
		if applies, message := rule.applies(c.subject, c.t); applies {
			return rule.code, message
		}
		if c.subject.asked.detail {
			c.pass(rule.code, rule.passes(c.subject, c.t))
		}
	}
	if why := c.subject.tooMany(); why != "" {
		return CodeRenderFailed, why
	}
	var invalid error
	if c.setsParams() {
		c.values, invalid = c.t.Values(c.subject.annotations, c.subject.asked.account, &c.subject.asked.namespace)
	} else {
		c.values, invalid = c.t.Values(nil, c.subject.asked.account, &c.subject.asked.namespace)
	}
	c.decision.Params = c.values
	ok, err := c.t.Condition(&c.input, c.values)
	if err == nil && !ok {
		return CodeConditionFalse, c.whyFalse()
	}
	if err == nil && c.subject.asked.detail {
		c.pass(CodeConditionFalse, whyCondition(c))
	}
	if invalid != nil {
		c.decision.Obstacles = c.invalid(invalid)
		return CodeInvalidParameter, invalid.Error()
	}
	c.pass(CodeInvalidParameter, "every parameter has an allowed value")
	if err == nil {
		c.fragment, err = c.t.Render(&c.input, c.values)
	}
	if err == nil {
		c.placed, err = c.t.Placement(&c.input, c.values)
	}
	if err != nil {
		return CodeRenderFailed, err.Error()
	}
	c.prepare()
	return "", ""
}

// setsParams reports whether the pod may set parameters of the template.
func (c *candidate) setsParams() bool {
	members, prefix := c.subject.annotations.Members(), c.t.prefix
	for i := range members {
		if name := members[i].Name(); strings.HasPrefix(name, prefix) && name != c.t.injected || c.t.products.reads(name) {
			return true
		}
	}
	return false
}

// whyFalse returns why the condition is false. The part that is false is only for reports, because it takes
// another evaluation.
func (c *candidate) whyFalse() string {
	if c.subject.asked.detail {
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

// invalid returns the places of invalid parameter values. It returns none if all of them are
// the namespace's or the ServiceAccount's.
func (c *candidate) invalid(err error) []Obstacle {
	all, _ := errors.AsType[templates.InvalidValuesError](err)
	var found []Obstacle
	ofPod := false
	for _, v := range all[:min(len(all), maxFindings)] {
		place := Difference{}
		if v.Source != templates.FromNamespace && v.Source != templates.FromServiceAccount {
			place, ofPod = newDifference(annotationPath(v.Key), c.subject.annotation(v.Key), nil), true
		}
		found = append(found, Obstacle{place, v.Error()})
	}
	if !ofPod {
		return nil
	}
	return found
}
