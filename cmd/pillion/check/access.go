// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/pillion-dev/pillion/manifests"
)

// Access is one right: a verb for a resource, or for one object.
type Access struct {
	Verb, Group, Resource string
	Name                  string // of the object; "": all objects
	Namespace             string // "": all namespaces, or a resource without namespaces
}

// String returns the right as messages name it.
func (a Access) String() string {
	resource := a.Resource
	if a.Group != "" {
		resource += "." + a.Group
	}
	text := a.Verb + " " + resource
	if a.Name != "" {
		text += " " + a.Name
	}
	if a.Namespace != "" {
		text += " in the namespace " + a.Namespace
	}
	return text
}

// Accesses returns the single rights, each once. Namespace is Pillion's.
func Accesses(rights manifests.Rights, namespace string) []Access {
	all := append(expanded(rights.Cluster, ""), expanded(rights.Namespaced, namespace)...)
	slices.SortFunc(all, func(a, b Access) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Verb, b.Verb))
	})
	return slices.Compact(all)
}

// Unneeded returns rights that no ServiceAccount of Pillion needs. One that has them was given far more
// than the manifests give, for example the role cluster-admin.
func Unneeded() []Access {
	return []Access{{Verb: "create", Resource: "pods"}, {Verb: "get", Resource: "secrets"}}
}

func expanded(rules []rbacv1.PolicyRule, namespace string) (all []Access) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					for _, verb := range rule.Verbs {
						all = append(all, Access{Verb: verb, Group: group, Resource: resource, Name: name, Namespace: namespace})
					}
				}
			}
		}
	}
	return all
}

// named returns rights as items of a list: one for each object, with all verbs.
func named(denied []Access) (items []string) {
	for i := 0; i < len(denied); {
		a := denied[i]
		n := i + 1
		for ; n < len(denied); n++ {
			next := denied[n]
			if next.Verb = a.Verb; next != a {
				break
			}
		}
		var verbs []string
		for _, same := range denied[i:n] {
			verbs = append(verbs, same.Verb)
		}
		a.Verb = strings.Join(verbs, ", ")
		items = append(items, a.String())
		i = n
	}
	return items
}

// counted returns a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
