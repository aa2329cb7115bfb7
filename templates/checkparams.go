// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/params"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// checkParams checks and compiles the declared parameters. It returns the names of those that are invalid.
func (c *parser) checkParams(y *yaml.Node, t *Template) (invalid []string) {
	list := yamlnode.Child(yamlnode.Child(y, "spec"), "params")
	if list != nil && list.Kind != yaml.SequenceNode {
		return []string{""}
	}
	declared := map[string]bool{}
	all := make([]*params.Param, len(t.Spec.Params))
	for i := range t.Spec.Params {
		p, before := &t.Spec.Params[i], len(c.Problems())
		path := fmt.Sprintf("spec.params[%d]", i)
		node := list.Content[i]
		switch {
		case !cel.IsIdentifier(p.Name):
			c.ReportProblem(yamlnode.At(node, "name"), path+".name", "must begin with a-z and have only letters, digits and _, because expressions read it as params.NAME%s", cel.ValidNameHint(p.Name))
		case cel.IsReservedWord(p.Name):
			c.ReportProblem(yamlnode.At(node, "name"), path+".name", "%q is a reserved word in CEL; use another name", p.Name)
		case p.Name == AnnotationInjected || p.Name == AnnotationCustomize:
			c.ReportProblem(yamlnode.At(node, "name"), path+".name", "%q is the name of one of Pillion's own annotations; use another name", p.Name)
		case declared[p.Name]:
			c.ReportProblem(yamlnode.At(node, "name"), path+".name", "the parameter is declared twice")
		}
		declared[p.Name] = true
		typ := yamlnode.Child(node, "type") // an unknown one is reported already, and not in p
		all[i] = params.Compile(p, t.Setting(p.Name), func(field, format string, args ...any) {
			of, _, _ := strings.Cut(field, "[") // a problem of an item is at the line of its list
			c.ReportProblem(yamlnode.At(node, strings.Split(of, ".")...), path+"."+field, format, args...)
		})
		if p.Name == "" || typ != nil && !slices.Contains(params.Types(), typ.Value) || len(c.Problems()) > before {
			invalid = append(invalid, p.Name)
		}
	}
	t.params = params.NewSet(all)
	return invalid
}

// Values returns the values of the parameters. A value comes from the pod's annotations, or else
// from the ServiceAccount's, or else from the namespace's, or else it is the default. The parameter
// annotations is the pod's, or nil if none of them can set a parameter. The ServiceAccount may be
// nil. Values omits parameters without a valid value; the error is an [params.InvalidValuesError] about
// them. Callers must not change the values.
func (t *Template) Values(annotations *jsontree.Node, account *request.ServiceAccount, ns *request.Namespace) (params.Values, error) {
	return t.params.Find(annotations, account, ns)
}

// Key returns the annotation that sets a parameter, as users write it.
func (t *Template) Key(p *v1alpha1.Param) string { return t.params.KeyOf(p.Name) }

// Annotations returns the annotations that set a parameter to a value.
func (t *Template) Annotations(p *v1alpha1.Param, text string) map[string]string {
	return t.params.Annotations(p.Name, text)
}

// ParamNames returns the names of the declared parameters, sorted.
func (t *Template) ParamNames() []string { return t.params.Names() }

// OwnParamNames returns the names of the parameters that the template's own annotations set, sorted.
func (t *Template) OwnParamNames() []string { return t.params.OwnNames() }

// Takes returns an error ("is ...") if one of the template's parameters must not have that value.
func (t *Template) Takes(name, value string) error { return t.params.Check(name, value) }

// OptionalParams returns the names of the optional parameters.
func (t *Template) OptionalParams() (names []string) {
	for i := range t.Spec.Params {
		if t.Spec.Params[i].Optional {
			names = append(names, t.Spec.Params[i].Name)
		}
	}
	return names
}
