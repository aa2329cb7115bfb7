// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// maxVariables is the maximum number of variables of a template.
const maxVariables = 64

// compileVariables compiles the variables in their order. A variable can read those above it. Problems of expressions that read an
// invalid variable are left out.
func (c *parser) compileVariables(y *yaml.Node, t *Template) {
	list := yamlnode.Items(yamlnode.Child(yamlnode.Child(y, "spec"), "variables"))
	if len(list) > maxVariables {
		c.ReportProblem(list[maxVariables], "spec.variables", "has %d variables, and at most %d are allowed", len(list), maxVariables)
		c.LeaveOutReads("variables", "")
		return
	}
	for i, declared := range t.Spec.Variables {
		path := fmt.Sprintf("spec.variables[%d]", i)
		switch name := yamlnode.At(list[i], "name"); {
		case !cel.IsIdentifier(declared.Name) || cel.IsReservedWord(declared.Name):
			c.ReportProblem(name, path+".name", "must begin with a-z and have only letters, digits and _; words that are reserved in CEL are not allowed")
			c.LeaveOutReads("variables", declared.Name)
			continue
		case c.compiler.IsDeclared(declared.Name):
			c.ReportProblem(name, path+".name", "the variable is declared twice")
			continue
		}
		if declared.Expression == "" {
			c.ReportProblem(list[i], path+".expression", "is missing")
			c.LeaveOutReads("variables", declared.Name)
			continue
		}
		if err := c.compiler.DeclareVariable(declared, t.Spec.Variables[i:]); err != nil {
			c.ReportProblem(yamlnode.At(list[i], "expression"), path+".expression", "%v", err)
			c.LeaveOutReads("variables", declared.Name)
		} else if c.ReadsInvalid(yamlnode.At(list[i], "expression")) {
			c.LeaveOutReads("variables", declared.Name)
		}
	}
	t.variables = c.compiler.Variables()
}
