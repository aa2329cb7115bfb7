// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// Shape is which fields an object must have, and must not have, whatever their values.
type Shape struct {
	Required []string // beside requiredFields: the API server accepts objects without these
	One      []string // exactly one of them
	Some     []string // at least one of them
	Most     []string // at most one of them
	Never    []string // not allowed in templates
	// Dropped are not allowed either: where the feature gate is off, the API server drops the field, and
	// what remains of the object is not valid. No webhook knows the gates.
	Dropped []string
	Unrun   []string // the kubelet never runs them
}

// Partial is an object of a fragment. Expressions compute some of its values for each pod.
type Partial interface {
	// MayHave reports whether the object has a field for some pods.
	MayHave(field string) bool
	// MayHaveTwo reports whether a list of the object may have two items.
	MayHaveTwo(list string) bool
	// ComputesNames reports whether expressions compute the names of items in a list of the object.
	ComputesNames(list string) bool
	// IsComputed reports whether the value at a path depends on the pod. Conditional list items count only if when is true.
	IsComputed(path string, when bool) bool
	// KnownValue returns the object without computed values, sealed.
	KnownValue() *jsontree.Node
}

// ObjectRule is a rule for an object as a whole.
type ObjectRule struct {
	reads []string // all fields that check reads; for lists, also those of the items
	check func(object *jsontree.Node) error
	// fewer reports that removing items of a list never breaks the rule, so ${when} does not
	// matter.
	fewer bool
	// own reports that the rule is Pillion's: the API server accepts objects that break it.
	own bool
	// policed reports that policies have conditions of their own for the rule.
	policed bool
	// applies reports whether the object has the fields of the rule. If it is nil, the rule always
	// applies.
	applies func(o Partial) bool
}

// CheckObject returns an error if an object breaks one of the rules.
func CheckObject(rules []ObjectRule, n *jsontree.Node) error {
	for _, rule := range rules {
		if err := rule.check(n); err != nil {
			return err
		}
	}
	return nil
}

// CheckPartial returns what is wrong with the known values of an object. Later are the rules that depend on other values: they apply
// when these are known.
func CheckPartial(rules []ObjectRule, o Partial) (later []ValueRule, wrong []error) {
	if len(rules) == 0 {
		return nil, nil
	}
	known := o.KnownValue()
	for _, rule := range rules {
		computed := func(when bool) bool {
			return slices.ContainsFunc(rule.reads, func(path string) bool { return o.IsComputed(path, when) })
		}
		if rule.applies != nil && !rule.applies(o) {
			continue
		}
		whenKnown := ValueRule{"", rule.check}
		if rule.policed {
			whenKnown.cel = policed
		}
		if computed(!rule.fewer) {
			later = append(later, whenKnown)
		} else if err := rule.check(known); err != nil && computed(true) {
			later = append(later, whenKnown)
		} else if err != nil {
			wrong = append(wrong, err)
		}
	}
	return later, wrong
}

// ofKubelet returns a rule of the kubelet's. The engine checks the final container, too (inject/kubelet).
func ofKubelet(reads []string, check func(*jsontree.Node) error) ObjectRule {
	return ObjectRule{own: true, policed: true, reads: reads, check: check}
}

// needsField returns a rule for a field that is allowed only if another field has a certain value.
func needsField(name string, when func(*jsontree.Node) bool, other string, ok func(*jsontree.Node) bool, message string) ObjectRule {
	applies := func(o Partial) bool { // a field that can never exist may decide the rule
		return (when(nil) || mayHaveField(name)(o)) && (!ok(nil) || mayHaveField(other)(o))
	}
	return ObjectRule{applies: applies, reads: []string{name, other}, check: func(n *jsontree.Node) error {
		if when(n.Get(name)) && !ok(n.Get(other)) {
			return errors.New(message)
		}
		return nil
	}}
}

func mayHaveField(field string) func(Partial) bool {
	return func(o Partial) bool { return o.MayHave(field) }
}

// hasTwo reports whether a list may have two items.
func hasTwo(list string) func(Partial) bool {
	return func(o Partial) bool { return o.MayHaveTwo(list) }
}

// hasName returns a rule for a reference to a Secret, which must have a name.
func hasName() ObjectRule {
	return ObjectRule{reads: []string{"name"}, check: func(n *jsontree.Node) error {
		if errs := validation.IsDNS1123Subdomain(n.Get("name").Text()); len(errs) > 0 {
			return fmt.Errorf("name: %s", problem.TrimPattern(errs[0]))
		}
		return nil
	}}
}

func isPresent(n *jsontree.Node) bool { return n != nil }

func isTrue(n *jsontree.Node) bool { return n.Kind() == jsontree.True }

func isFalse(n *jsontree.Node) bool { return n.Kind() == jsontree.False }

func isAnyText(texts ...string) func(*jsontree.Node) bool {
	return func(n *jsontree.Node) bool { return slices.Contains(texts, n.Text()) }
}

func not(f func(*jsontree.Node) bool) func(*jsontree.Node) bool {
	return func(n *jsontree.Node) bool { return !f(n) }
}

// uniqueField returns a rule for a list in which a field must differ between items ("" is the item
// itself).
func uniqueField(list, field string) ObjectRule {
	return ObjectRule{fewer: true, applies: hasTwo(list), reads: []string{strings.TrimSuffix(list+"."+field, ".")}, check: func(n *jsontree.Node) error {
		if key := findDuplicate(n.Get(list).Items(), field); key != "" {
			return fmt.Errorf("%s has %q twice", list, key)
		}
		return nil
	}}
}

// findDuplicate returns a value that a field has in two items ("" is the item itself), or "".
func findDuplicate(items []jsontree.Node, field string) string {
	const few = 32 // comparing a few items is faster than a map
	keys, seen := make([]string, 0, few), map[string]bool(nil)
	if len(items) > few {
		keys, seen = nil, make(map[string]bool, len(items))
	}
	for i := range items {
		key := items[i].Text()
		if field != "" {
			key = items[i].Get(field).Text()
		}
		switch {
		case key == "":
		case seen[key] || slices.Contains(keys, key):
			return key
		case seen != nil:
			seen[key] = true
		default:
			keys = append(keys, key)
		}
	}
	return ""
}

// UniqueItems returns a rule for a list with ${forEach}: items with the same key would be one item.
// From is the source of the values, or "".
func UniqueItems(key, from string) ValueRule {
	hint := ""
	if from != "" {
		hint = "; check " + from
	}
	return ValueRule{"", func(n *jsontree.Node) error {
		if value := findDuplicate(n.Items(), key); value != "" {
			return fmt.Errorf("two items have the %s %q%s", key, value, hint)
		}
		return nil
	}}
}
