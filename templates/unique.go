// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// sets checks that the lists without an order have no value twice, because the API server rejects that.
func (c *checker) sets(y *yaml.Node) {
	spec := child(y, "spec")
	c.unique(child(spec, "labelDomains"), "spec.labelDomains")
	c.unique(child(spec, "annotationDomains"), "spec.annotationDomains")
	c.unique(child(child(spec, "validate"), "protect"), "spec.validate.protect")
	for i, p := range items(child(spec, "params")) {
		for _, name := range []string{"overridableBy", "keys"} {
			c.unique(child(p, name), fmt.Sprintf("spec.params[%d].%s", i, name))
		}
	}
}

func (c *checker) unique(list *yaml.Node, path string) {
	seen := map[string]bool{}
	for i, item := range items(list) {
		if seen[item.Value] {
			c.problem(item, fmt.Sprintf("%s[%d]", path, i), "has the value %q twice", item.Value)
		}
		seen[item.Value] = true
	}
}
