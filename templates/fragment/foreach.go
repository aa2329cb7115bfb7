// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
	"github.com/pillion-dev/pillion/templates/yamlnode"
)

// IsControl reports whether a key of a list item controls whether the item exists.
func IsControl(key string) bool { return key == WhenKey || key == cel.ForEachKey }

// forEach compiles the loop of a list item. Until the function leave is called, expressions may use
// the loop's variables. It returns ok false if there was a problem.
func (c *Checker) forEach(o *Node, y *yaml.Node, path string) (leave func(), ok bool) {
	value := yamlnode.Child(y, cel.ForEachKey)
	if value == nil {
		return func() {}, true
	}
	if c.scope == nil || !strings.HasSuffix(path, "]") {
		c.ReportProblem(value, path, "%s", diagnostics.ForEachHint)
		return nil, false
	}
	at := path + "." + cel.ForEachKey
	if key, list := keyWithoutValue(value); key != "" {
		c.ReportProblem(value, at, "kubectl apply drops a key without a value; write {%q: %q}", key, list)
		return nil, false
	}
	if value.Kind == yaml.MappingNode && len(value.Content) == 2 && value.Content[1].Kind != yaml.ScalarNode {
		c.ReportProblem(value, at, "the list or the map must be an expression in a string; put it in quotes, as in {%q: \"...\"}", value.Content[0].Value)
		return nil, false
	}
	if value.Kind != yaml.MappingNode || len(value.Content) != 2 || value.Content[1].ShortTag() != "!!str" {
		c.ReportProblem(value, at, `must be a variable with a CEL list, such as {m: "params.names.split(',')"}, or two with a map: {"k, v": params.labels}`)
		return nil, false
	}
	key, list := value.Content[0], value.Content[1]
	names := strings.Split(key.Value, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if wrong := c.wrongVariable(names[i]); wrong != "" {
			c.ReportProblem(key, at, "%s", wrong)
			return nil, false
		}
	}
	if len(names) > 2 || len(names) == 2 && names[0] == names[1] {
		c.ReportProblem(key, at, `a loop has one variable, or two with different names: {"k, v": params.labels}`)
		return nil, false
	}
	l, within, err := c.compiler.CompileLoop(c.scope, names, list.Value, list.Line)
	if err != nil {
		c.ReportProblem(list, at, "%v", err)
		return nil, false
	}
	if c.ReadsInvalid(list) {
		c.invalid = append(c.invalid, regexp.MustCompile(`\b`+key.Value+`\b`))
	}
	before := c.scope
	o.loop, c.scope = l, within
	return func() { c.scope = before }, true
}

// keyWithoutValue returns the form "k, v" and the expression of {k, v: EXPRESSION}, in which k has no value in YAML. JSON merge patches,
// which kubectl apply and Helm send, drop such a key: without this check, the template would change in the cluster.
func keyWithoutValue(loop *yaml.Node) (names, expression string) {
	if loop.Kind != yaml.MappingNode || len(loop.Content) != 4 {
		return "", ""
	}
	for i := range 2 {
		key, value := 2*i, 2*(1-i)
		if loop.Content[key+1].ShortTag() == "!!null" && loop.Content[value+1].ShortTag() == "!!str" {
			return loop.Content[key].Value + ", " + loop.Content[value].Value, loop.Content[value+1].Value
		}
	}
	return "", ""
}

// wrongVariable returns what is wrong with the name of a loop's variable, or "".
func (c *Checker) wrongVariable(name string) string {
	switch {
	case !cel.IsIdentifier(name) || cel.IsReservedWord(name):
		return fmt.Sprintf("the variable %q must begin with a-z and have only letters, digits and _; words that are reserved in CEL are not allowed%s", name, cel.ValidNameHint(name))
	case c.scope.Loop(name) != nil:
		return fmt.Sprintf("%s is the variable of the %s around it; use another name", name, cel.ForEachKey)
	case c.scope.HasMeaning(name):
		return fmt.Sprintf("%s has a meaning in expressions already; use another name", name)
	}
	return ""
}

// keepOnce lets a list fail if an expression makes two items with the same key.
func (c *Checker) keepOnce(list *Node, f jsontree.StructField) {
	key := f.Tag.Get("patchMergeKey")
	isShared := f.Type == reflect.TypeFor[[]corev1.Volume]() && list.mayShareNames()
	if !list.hasMadeItems() && !isShared || key == "" || key == "containerPort" { // a port is also its protocol, see portsOnce
		return
	}
	from := ""
	for _, item := range list.parts {
		for i := range c.params {
			if p := &c.params[i]; from == "" && slices.Contains(item.madeFrom(), p.Name) {
				from = "the parameter " + p.Name
				if p.OfOthers() {
					from = "the annotation " + p.Annotation + p.Prefix
				}
			}
		}
	}
	list.rules = append(list.rules, validation.UniqueItems(key, from))
}

// mayShareNames reports whether two items of a list may have the same name: it or the list is computed, or conditional items have it.
func (p *Node) mayShareNames() bool {
	seen := map[string]bool{}
	return p != nil && p.kind == leafPart || p != nil && slices.ContainsFunc(p.parts, func(item *Node) bool {
		name := item.Member("name").Static()
		twice := name == nil || seen[name.Text()]
		seen[name.Text()] = true
		return twice
	})
}

// madeFrom returns the parameters from which an expression makes several items.
func (p *Node) madeFrom() []string {
	switch {
	case p.loop != nil:
		return p.loop.List().Params()
	case p.spread:
		return p.pieces[0].Expression.Params()
	}
	return nil
}

// MayBeOneOf reports whether a name may be that of one of the template's volumes, if one of them is computed.
func MayBeOneOf(name string, volumes map[string]string) bool {
	if strings.Contains(name, "${") {
		return true
	}
	for volume := range volumes {
		if own, _ := NamePattern(volume); IsNamed(own, name) {
			return true
		}
	}
	return false
}
