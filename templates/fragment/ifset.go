// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// IfSetKey in an environment variable of forEachContainer defines what happens in a container that has
// the variable with another value. The container's own variable always stays. The fragments of
// forEachContainer contain the key for [IfSet], unless its value is keep.
const IfSetKey = "${ifSet}"

// The values of IfSetKey besides an object {append: NAME}, with which the container gets the
// template's value in the variable NAME.
const (
	ifSetKeep     = "keep" // the default
	ifSetConflict = "conflict"
)

const ifSetHint = `"` + IfSetKey + `" must be keep, conflict or {append: NAME}, where NAME is another variable that the program reads`

// IfSet returns what a variable of a fragment asks for: the name of another variable, or a conflict.
func IfSet(variable *jsontree.Node) (other string, conflict bool) {
	ask := variable.Get(IfSetKey)
	return ask.Get("append").Text(), ask != nil && ask.IsText(ifSetConflict)
}

// ifSet checks the value of IfSetKey in a variable.
func (c *Checker) ifSet(o *Node, y, value *yaml.Node, t reflect.Type, path string) {
	at := problem.JoinPath(path, IfSetKey)
	if c.scope == nil || t != reflect.TypeFor[corev1.EnvVar]() || !strings.HasPrefix(path, "spec.forEachContainer") {
		c.ReportProblem(value, path, `"%s" is a key of environment variables in forEachContainer: only the pod's own containers may have a variable already`, IfSetKey)
		return
	}
	switch {
	case value.Kind == yaml.ScalarNode && value.Value == ifSetKeep:
		return
	case value.Kind == yaml.ScalarNode && value.Value == ifSetConflict:
		o.addChild(IfSetKey, &Node{static: jsontree.Text(value.Value)})
		c.asksIfSet = true
		return
	case value.Kind == yaml.ScalarNode:
		c.ReportProblem(value, at, "%s%s", ifSetHint, problem.DidYouMean(value.Value, []string{ifSetKeep, ifSetConflict}))
		return
	}
	other := yamlnode.Child(value, "append")
	switch {
	case value.Kind != yaml.MappingNode || other == nil || len(value.Content) != 2 || other.Kind != yaml.ScalarNode:
		c.ReportProblem(value, at, "%s", ifSetHint)
	case strings.Contains(other.Value, "${"):
		c.ReportProblem(other, at+".append", "must be constant")
	case len(validation.IsRelaxedEnvVarName(other.Value)) > 0:
		c.ReportProblem(other, at+".append", "%q is not the name of an environment variable", other.Value)
	case yamlnode.Child(y, "name") != nil && yamlnode.Child(y, "name").Value == other.Value:
		c.ReportProblem(other, at+".append", "must be another variable than %s, because a container has one value of it", other.Value)
	default:
		o.addChild(IfSetKey, &Node{static: jsontree.Members(jsontree.Field("append", jsontree.Text(other.Value)))})
		c.asksIfSet = true
	}
}

// CheckAppended checks that no other variable of a list has the name of an append.
func (c *Checker) CheckAppended(env *yaml.Node, path string) {
	for _, item := range yamlnode.Items(env) {
		other := yamlnode.Child(yamlnode.Child(item, IfSetKey), "append")
		for _, v := range yamlnode.Items(env) {
			if name := yamlnode.Child(v, "name"); name != nil && other != nil && other.Value != "" && name.Value == other.Value && v != item {
				c.ReportProblem(other, path, "the template sets the variable %s itself, so no other one can be appended to it", other.Value)
			}
		}
	}
}
