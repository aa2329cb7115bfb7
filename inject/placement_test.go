// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"slices"
	"testing"

	"github.com/pillion-dev/pillion/templates"
)

// checkOrder checks that no added container comes before one that its template has before it.
func checkOrder(t testing.TB, set []*templates.Template, before, after []byte) {
	t.Helper()
	for _, list := range []string{"initContainers", "containers"} {
		there, now := containersOf(t, before, list), containersOf(t, after, list)
		for _, template := range set {
			for i, name := range template.Containers {
				at := slices.Index(now, name)
				if at < 0 || slices.Contains(there, name) {
					continue
				}
				for _, earlier := range template.Containers[:i] {
					if slices.Contains(now[at+1:], earlier) {
						t.Errorf("%s of %s was added before %s: %q, %q before", name, template.Name, earlier, now, there)
					}
				}
			}
		}
	}
}
