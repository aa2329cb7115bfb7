// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// checkSets checks that the lists without an order have no value twice, because the API server rejects that.
func (c *parser) checkSets(y *yaml.Node) {
	spec := yamlnode.Child(y, "spec")
	c.checkUniqueValues(yamlnode.Child(spec, "labelDomains"), "spec.labelDomains")
	c.checkUniqueValues(yamlnode.Child(spec, "annotationDomains"), "spec.annotationDomains")
	c.checkUniqueValues(yamlnode.Child(yamlnode.Child(spec, "validate"), "protect"), "spec.validate.protect")
	for i, p := range yamlnode.Items(yamlnode.Child(spec, "params")) {
		for _, name := range []string{"overridableBy", "keys"} {
			c.checkUniqueValues(yamlnode.Child(p, name), fmt.Sprintf("spec.params[%d].%s", i, name))
		}
	}
}

func (c *parser) checkUniqueValues(list *yaml.Node, path string) {
	seen := map[string]bool{}
	for i, item := range yamlnode.Items(list) {
		if seen[item.Value] {
			c.ReportProblem(item, fmt.Sprintf("%s[%d]", path, i), "has the value %q twice", item.Value)
		}
		seen[item.Value] = true
	}
}
