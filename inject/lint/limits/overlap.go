// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/fragment"
)

// overlapHints returns sentences about containers that a template makes by ${forEach} and that may have the
// name of another container.
func overlapHints(t *templates.Template, set *templates.Set) (hints []string) {
	for i, own := range t.Containers {
		if !fragment.IsGenerated(own) {
			continue
		}
		for _, other := range set.Templates {
			for j, name := range other.Containers {
				if (other != t || i != j) && !t.Excludes(other) && fragment.Overlap(own, name) {
					hints = append(hints, fmt.Sprintf("a container %s may have the name of the container %s of the template %s, and then one of the templates is skipped; change a constant part of the names",
						own, name, other.Name))
				}
			}
		}
	}
	return hints
}
