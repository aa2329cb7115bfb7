// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"slices"
	"testing"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// checkOrder checks that no added container comes before one that its template has before it.
func checkOrder(t testing.TB, set []*templates.Template, before, after []byte) {
	t.Helper()
	names := func(pod []byte, list string) (names []string) {
		root, err := jsontree.Parse(pod)
		if err != nil {
			t.Fatal(err)
		}
		items := root.At("spec", list).Items()
		for i := range items {
			names = append(names, items[i].Get("name").Text())
		}
		return names
	}
	for _, list := range []string{"initContainers", "containers"} {
		there, now := names(before, list), names(after, list)
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
