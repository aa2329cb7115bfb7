// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"

	"go.yaml.in/yaml/v3"
)

// checkSets checks that the lists without an order have no value twice, because the API server rejects that.
func (c *parser) checkSets(y *yaml.Node) {
	spec := yamlChild(y, "spec")
	c.checkUniqueValues(yamlChild(spec, "labelDomains"), "spec.labelDomains")
	c.checkUniqueValues(yamlChild(spec, "annotationDomains"), "spec.annotationDomains")
	c.checkUniqueValues(yamlChild(yamlChild(spec, "validate"), "protect"), "spec.validate.protect")
	for i, p := range yamlItems(yamlChild(spec, "params")) {
		for _, name := range []string{"overridableBy", "keys"} {
			c.checkUniqueValues(yamlChild(p, name), fmt.Sprintf("spec.params[%d].%s", i, name))
		}
	}
}

func (c *parser) checkUniqueValues(list *yaml.Node, path string) {
	seen := map[string]bool{}
	for i, item := range yamlItems(list) {
		if seen[item.Value] {
			c.reportProblem(item, fmt.Sprintf("%s[%d]", path, i), "has the value %q twice", item.Value)
		}
		seen[item.Value] = true
	}
}
