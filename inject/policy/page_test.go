// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/templates"
)

// TestFunctionsPage checks that the page about functions lists those that a policy cannot use.
func TestFunctionsPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../manifests/docs/functions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "but not `base64`")
	section, _, _ = strings.Cut("`base64`"+section, ".\n\n## ")
	section, _, _ = strings.Cut(section, ". If a template")
	var listed, lacking []string
	for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(section, -1) {
		listed = append(listed, name[1])
	}
	none := regexp.MustCompile(`the API server has no function ([\w.]+)`)
	for _, row := range regexp.MustCompile("(?m)^\\| `(.+?)` \\| `").FindAllStringSubmatch(string(text), -1) {
		tmpl := parse(t, fmt.Sprintf("apiVersion: pillion.dev/v1alpha1\nkind: ClusterSidecarTemplate\nmetadata: {name: a}\nspec:\n  match:\n    condition: |-\n      ns.name != '' || (%s) == (%[1]s)\n  pod: {metadata: {annotations: {a: b}}}\n", row[1]))
		if _, err := Mutating(templates.NewSet([]*templates.Template{tmpl}), Options{}); err != nil {
			found := none.FindStringSubmatch(err.Error())
			if found == nil {
				t.Errorf("%s: %v", row[1], err)
				continue
			}
			name, library := found[1], strings.Split(found[1], ".")[0]
			if slices.Contains(listed, library) {
				name = library
			}
			lacking = append(lacking, name)
		}
	}
	for _, list := range []*[]string{&listed, &lacking} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if !slices.Equal(listed, lacking) {
		t.Errorf("the page lists %s, but a policy lacks %s", listed, lacking)
	}
}
