// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/tree"
)

// What a template gets wrong by itself, whatever the pod, is a problem when it is
// loaded: these are the rules of the API server's validation (ValidatePodCreate) for
// one object of a fragment. A rule over values that are computed is applied when
// they are. The module e2e/validity compares all of them with Kubernetes' own code.

// shape is which fields an object must have, whatever their values.
type shape struct {
	required []string // and not empty
	one      []string // exactly one of them
	some     []string // at least one of them
	never    []string // what a template may not set
}

// objectRule is about an object as a whole.
type objectRule struct {
	reads []string // the fields that it is about, and of lists those of the items: all it looks at
	check func(object *tree.Node) error
	// fewer: fewer items of a list never break it, so that a ${when} does not matter.
	fewer bool
	// own: the API server takes what breaks it, and a template should not have it.
	own bool
	// applies says whether the object has what the rule is about; nil: always.
	applies func(o *part) bool
}

// needs is a rule for a field that may be there only if another has a value.
func needs(name string, when func(*tree.Node) bool, other string, ok func(*tree.Node) bool, message string) objectRule {
	applies := func(o *part) bool { // if one of them is never there, that may be all there is to know
		return (when(nil) || has(name)(o)) && (!ok(nil) || has(other)(o))
	}
	return objectRule{applies: applies, reads: []string{name, other}, check: func(n *tree.Node) error {
		if when(n.Get(name)) && !ok(n.Get(other)) {
			return errors.New(message)
		}
		return nil
	}}
}

func has(field string) func(*part) bool {
	return func(o *part) bool { return slices.Contains(o.names, field) }
}

// hasTwo says whether a list has more items than one.
func hasTwo(list string) func(*part) bool {
	return func(o *part) bool {
		i := slices.Index(o.names, list)
		return i >= 0 && (len(o.parts[i].parts) > 1 || len(o.parts[i].static.Items()) > 1)
	}
}

// hasName is a rule for a reference to a Secret, which has a name.
func hasName() objectRule {
	return objectRule{reads: []string{"name"}, check: func(n *tree.Node) error {
		if errs := validation.IsDNS1123Subdomain(n.Get("name").Text()); len(errs) > 0 {
			return fmt.Errorf("name: %s", brief(errs[0]))
		}
		return nil
	}}
}

func present(n *tree.Node) bool { return n != nil }

func isTrue(n *tree.Node) bool { return n.Kind() == tree.True }

func isFalse(n *tree.Node) bool { return n.Kind() == tree.False }

func is(texts ...string) func(*tree.Node) bool {
	return func(n *tree.Node) bool { return slices.Contains(texts, n.Text()) }
}

func not(f func(*tree.Node) bool) func(*tree.Node) bool {
	return func(n *tree.Node) bool { return !f(n) }
}

// unique is a rule for a list whose items each have another value of a field ("" is
// the item itself).
func unique(list, field string) objectRule {
	return objectRule{fewer: true, applies: hasTwo(list), reads: []string{strings.TrimSuffix(list+"."+field, ".")}, check: func(n *tree.Node) error {
		items := n.Get(list).Items()
		const few = 32 // are sooner compared than put into a map
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
				return fmt.Errorf("%s has %q twice", list, key)
			case seen != nil:
				seen[key] = true
			default:
				keys = append(keys, key)
			}
		}
		return nil
	}}
}
