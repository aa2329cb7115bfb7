// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// hiddenHints returns a sentence about containers that a required template does not see, although their
// authors may have added variables and mounts to them.
func hiddenHints(t *templates.Template, set *templates.Set) []string {
	if !t.Spec.Required || !t.HasForEach() && !t.ReadsContainers() {
		return nil
	}
	var names []string
	for _, other := range set.Templates {
		enforced := other.Spec.Required || other.Spec.Validate.Mode == v1alpha1.Deny
		if other.Name != t.Name && !t.Excludes(other) && len(other.Containers) > 0 && (!enforced || !other.Protects("env") || !other.Protects("volumeMounts")) {
			names = append(names, other.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("it does not see a container that is like one of the template %s but has more variables or mounts; set validate: {mode: Deny, protect: [all]} there",
		strings.Join(names, " or "))}
}
