// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/manifests"
)

// Unneeded returns rights that no ServiceAccount of Pillion needs. One that has them was given far more
// than the manifests give, for example the role cluster-admin.
func Unneeded() []manifests.Right {
	return []manifests.Right{{Verb: "create", Resource: "pods"}, {Verb: "get", Resource: "secrets"}}
}

// listRights returns rights as items of a list: one for each object, with all verbs.
func listRights(denied []manifests.Right) (items []string) {
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

// formatCount returns a number with its noun.
func formatCount(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
