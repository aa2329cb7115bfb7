// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// isControl reports whether a key of a list item controls whether the item exists.
func isControl(key string) bool { return key == whenKey || key == forEachKey }

// forEach compiles the loop of a list item. Until the function leave is called, expressions may use
// the loop's variable. It returns ok false if there was a problem.
func (c *checker) forEach(o *part, y *yaml.Node, path string) (leave func(), ok bool) {
	value := yamlChild(y, forEachKey)
	if value == nil {
		return func() {}, true
	}
	if c.env == nil || !strings.HasSuffix(path, "]") {
		c.reportProblem(value, path, "%s", diagnostics.ForEachHint)
		return nil, false
	}
	at := path + "." + forEachKey
	if value.Kind != yaml.MappingNode || len(value.Content) != 2 || value.Content[1].ShortTag() != "!!str" {
		c.reportProblem(value, at, `must be one variable with a CEL list, such as {m: "params.names.split(',')"}`)
		return nil, false
	}
	key, list := value.Content[0], value.Content[1]
	if wrong := c.wrongVariable(key.Value); wrong != "" {
		c.reportProblem(key, at, "%s", wrong)
		return nil, false
	}
	l, env, err := c.compiler.compileLoop(c.env, key.Value, list.Value)
	if err != nil {
		c.reportProblem(list, at, "%v", err)
		return nil, false
	}
	l.list.line, o.loop = list.Line, l
	before := c.env
	c.env, c.compiler.loops = env, append(c.compiler.loops, l)
	return func() { c.env, c.compiler.loops = before, c.compiler.loops[:l.depth] }, true
}

// wrongVariable returns what is wrong with the name of a loop's variable, or "".
func (c *checker) wrongVariable(name string) string {
	_, isType := c.env.CELTypeProvider().FindIdent(name)
	isFunction := func(function string) bool { return strings.HasPrefix(function, name+".") }
	switch {
	case !validParam.MatchString(name) || isReservedWord(name):
		return fmt.Sprintf("the variable %q must begin with a-z and have only letters, digits and _; words that are reserved in CEL are not allowed%s", name, validNameHint(name))
	case slices.ContainsFunc(c.compiler.loops, func(l *loop) bool { return l.name == name }):
		return fmt.Sprintf("%s is the variable of the %s around it; use another name", name, forEachKey)
	case isType || name == "container" || name == "serviceAccount" || slices.ContainsFunc(slices.Collect(maps.Keys(c.env.Functions())), isFunction) ||
		slices.ContainsFunc(c.env.Variables(), func(v *decls.VariableDecl) bool { return v.Name() == name }):
		return fmt.Sprintf("%s has a meaning in expressions already; use another name", name)
	}
	return ""
}

// compileLoop compiles the list of a ${forEach}. It returns the environment with the loop's variable.
func (c *compiler) compileLoop(env *cel.Env, name, source string) (*loop, *cel.Env, error) {
	p, err := c.compileExpression(env, source)
	if err != nil {
		return nil, nil, err
	}
	switch p.out.Kind() {
	case types.ListKind:
	case types.MapKind:
		return nil, nil, fmt.Errorf("CEL: %q gives %s; go through its keys, which are in order: {%s: %q}, and write (%s)[%s] for the value of a key",
			source, diagnostics.TypeName(p.out), name, source+".map(k, k)", source, name)
	case types.StringKind:
		return nil, nil, fmt.Errorf("CEL: %q gives %s, but a list is needed here; write %s.split(','), or give a parameter the type list", source, diagnostics.TypeName(p.out), source)
	default:
		return nil, nil, fmt.Errorf("CEL: %q gives %s, but a list is needed here", source, diagnostics.TypeName(p.out))
	}
	within, err := env.Extend(cel.Variable(name, p.out.Parameters()[0]))
	return &loop{name: name, list: p, depth: len(c.loops)}, within, err
}

// keepOnce lets a list with ${forEach} fail if two items have the same key.
func (c *checker) keepOnce(list *part, f jsontree.StructField) {
	key := f.Tag.Get("patchMergeKey")
	if !list.hasLoop() || key == "" || key == "containerPort" { // a port is also its protocol, see portsOnce
		return
	}
	from := ""
	for _, item := range list.parts {
		for i := range c.compiler.params {
			if p := &c.compiler.params[i]; from == "" && item.loop != nil && slices.Contains(item.loop.list.params, p.Name) {
				from = "the parameter " + p.Name
				if p.OfOthers() {
					from = "the annotation " + p.Annotation + p.Prefix
				}
			}
		}
	}
	list.rules = append(list.rules, uniqueItems(key, from))
}

// mayBeOneOf reports whether a name may be that of one of the template's volumes, if one of them is computed.
func mayBeOneOf(name string, volumes map[string]string) bool {
	if strings.Contains(name, "${") {
		return true
	}
	for volume := range volumes {
		if own, _ := namePattern(volume); IsNamed(own, name) {
			return true
		}
	}
	return false
}
