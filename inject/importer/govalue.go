// SPDX-License-Identifier: Apache-2.0

package importer

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// asText returns a value as an expression for a string.
func (v goValue) asText() string {
	switch {
	case v.static != nil:
		return celString(fmt.Sprint(v.static))
	case v.isBool:
		return "string(" + v.expression + ")"
	}
	return v.expression
}

// asTest returns a value as a condition: a string is true if it is not empty.
func (v goValue) asTest() string {
	switch {
	case v.static != nil:
		return strconv.FormatBool(isTrue(v.static))
	case v.test != "":
		return v.test
	case v.isBool:
		return v.expression
	}
	return v.expression + " != ''"
}

// isTrue reports whether a constant counts as true in a template of Go.
func isTrue(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case int:
		return v != 0
	case float64:
		return v != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

// pipeValue returns the value of a pipeline.
func (t *goTemplate) pipeValue(p *parse.PipeNode) (v goValue, err error) {
	for i, cmd := range p.Cmds {
		var last []goValue
		if i > 0 {
			last = []goValue{v}
		}
		if v, err = t.commandValue(cmd, last); err != nil {
			return v, err
		}
	}
	return v, nil
}

// commandValue returns the value of one command, with the value of the one before it as its last argument.
func (t *goTemplate) commandValue(c *parse.CommandNode, last []goValue) (goValue, error) {
	name, isCall := c.Args[0].(*parse.IdentifierNode)
	if !isCall {
		return t.operandValue(c.Args[0])
	}
	if name.Ident == "annotation" && len(c.Args) == 4 {
		return t.annotationParam(c)
	}
	var args []goValue
	for _, a := range c.Args[1:] {
		v, err := t.operandValue(a)
		if err != nil {
			return v, err
		}
		args = append(args, v)
	}
	return callFunction(name.Ident, append(args, last...))
}

// operandValue returns the value of an argument.
func (t *goTemplate) operandValue(n parse.Node) (goValue, error) {
	switch n := n.(type) {
	case *parse.StringNode:
		return goValue{static: n.Text}, nil
	case *parse.NumberNode:
		if n.IsInt {
			return goValue{static: int(n.Int64)}, nil
		}
		return goValue{static: n.Float64}, nil
	case *parse.BoolNode:
		return goValue{static: n.True}, nil
	case *parse.PipeNode:
		return t.pipeValue(n)
	case *parse.FieldNode:
		if dot := t.vars["."]; dot.container {
			return containerField(n.Ident, n.String())
		}
		return t.fieldOf(n.Ident, n.String())
	case *parse.VariableNode:
		return t.variableValue(n)
	}
	return goValue{}, unknownAction(n.String())
}

func unknownAction(text string) error {
	return fmt.Errorf("pillion import cannot translate %s; write what it does in CEL", text)
}

// variableValue returns the value of a variable, or of its field.
func (t *goTemplate) variableValue(n *parse.VariableNode) (goValue, error) {
	if n.Ident[0] == "$" {
		return t.fieldOf(n.Ident[1:], n.String())
	}
	v, ok := t.vars[n.Ident[0]]
	switch {
	case ok && v.container:
		return containerField(n.Ident[1:], n.String())
	case ok && len(n.Ident) == 1:
		return v, nil
	}
	return goValue{}, unknownAction(n.String())
}

func containerField(names []string, text string) (goValue, error) {
	switch strings.Join(names, ".") {
	case "Name":
		return goValue{expression: "container.name"}, nil
	case "Image":
		return goValue{expression: "container.image"}, nil
	}
	return goValue{}, unknownAction(text)
}

// fieldOf returns what a template of Istio knows about the pod, the mesh or the chart.
func (t *goTemplate) fieldOf(names []string, text string) (goValue, error) {
	switch path := strings.Join(names, "."); {
	case path == "": // $ alone
		return goValue{}, unknownAction(text)
	case path == "ObjectMeta.Name":
		return goValue{fieldPath: "metadata.name", expression: "''"}, nil
	case path == "ObjectMeta.Namespace":
		return goValue{expression: "ns.name"}, nil
	case path == "ObjectMeta.Labels", path == "ObjectMeta.Annotations":
		return goValue{expression: "pod.metadata." + strings.ToLower(names[1]), isMap: true}, nil
	case path == "Spec.ServiceAccountName":
		return goValue{expression: "pod.spec.?serviceAccountName.orValue('')"}, nil
	case path == "Spec.HostNetwork":
		return goValue{expression: "pod.spec.?hostNetwork.orValue(false)", isBool: true}, nil
	case names[0] == "Values" && t.values.all != nil:
		value := t.values.all
		for _, name := range names[1:] {
			m, _ := value.(map[string]any)
			value = m[name]
		}
		switch {
		case value == nil && !t.values.complete:
			return goValue{}, fmt.Errorf("the value %s is not in the input, so it is the default of Istio's chart; import the ConfigMap istio-sidecar-injector, which has all values", text)
		case value == nil:
			return goValue{static: "", missing: true}, nil // it is false
		}
		return goValue{static: value}, nil
	case names[0] == "Values":
		return goValue{}, fmt.Errorf("the value %s is not in the input; import the values of the chart together with the template", text)
	case slices.Contains([]string{"ProxyConfig", "MeshConfig", "DeploymentMeta", "Revision", "ProxyImage", "ProxyUID", "ProxyGID"}, names[0]):
		return goValue{}, fmt.Errorf("only Istio knows %s; write the value into the template, or leave this part to Istio", text)
	}
	return goValue{}, unknownAction(text)
}

// annotationParam returns the parameter for an annotation of the pod with a default.
func (t *goTemplate) annotationParam(c *parse.CommandNode) (goValue, error) {
	key, ok := c.Args[2].(*parse.StringNode)
	if !ok || c.Args[1].String() != ".ObjectMeta" {
		return goValue{}, unknownAction(c.String())
	}
	fallback, err := t.operandValue(c.Args[3])
	if err != nil {
		return goValue{}, err
	}
	if fallback.static == nil {
		name := t.d.annotationParam(key.Text, nil)
		return goValue{expression: "params.?" + name + ".orValue(" + fallback.asText() + ")"}, nil
	}
	text := fmt.Sprint(fallback.static)
	_, notNumber := strconv.Atoi(text)
	return goValue{expression: "params." + t.d.annotationParam(key.Text, &text), number: notNumber == nil}, nil
}

var notWord = regexp.MustCompile(`[^A-Za-z0-9]+`)

// annotationParam returns the name of the parameter for an annotation, which is made if it does not exist. Without a
// default, it is optional.
func (d *draft) annotationParam(key string, fallback *string) string {
	last := key[strings.LastIndexByte(key, '/')+1:]
	var name strings.Builder
	for i, word := range strings.Fields(notWord.ReplaceAllString(last, " ")) {
		runes := []rune(word)
		if i == 0 {
			runes[0] = unicode.ToLower(runes[0])
		} else {
			runes[0] = unicode.ToUpper(runes[0])
		}
		name.WriteString(string(runes))
	}
	base := "param" + name.String()
	if first := name.String(); first != "" && unicode.IsLower(rune(first[0])) {
		base = first
	}
	for i := 1; ; i++ {
		full := base
		if i > 1 {
			full += strconv.Itoa(i)
		}
		n := d.paramNamed(full)
		if n == nil {
			n = mapNode("name", textNode(full), "annotation", textNode(key), "overridableBy", textList("Pod"))
			if fallback != nil {
				setMember(n, "default", textNode(*fallback))
			} else {
				setMember(n, "optional", literalNode("!!bool", "true"))
			}
			d.params = append(d.params, n)
			return full
		}
		same := memberOf(n, "default") == nil && fallback == nil || fallback != nil && memberOf(n, "default") != nil && valueOf(n, "default") == *fallback
		if valueOf(n, "annotation") == key && same {
			return full
		}
	}
}

func (d *draft) paramNamed(name string) *yaml.Node {
	i := slices.IndexFunc(d.params, func(n *yaml.Node) bool { return valueOf(n, "name") == name })
	if i < 0 {
		return nil
	}
	return d.params[i]
}

// callFunction returns the value of a function of Istio's templates.
func callFunction(name string, args []goValue) (goValue, error) {
	unknown := fmt.Errorf("pillion import does not know the function %s of Istio's templates here; write what it does in CEL", name)
	for _, a := range args {
		if a.impossible != "" || a.fieldPath != "" || a.container {
			return goValue{}, unknown
		}
	}
	if len(args) == 0 {
		return goValue{}, unknown
	}
	constant := !slices.ContainsFunc(args, func(a goValue) bool { return a.static == nil })
	if constant {
		if v, ok := callConstant(name, args); ok {
			return goValue{static: v}, nil
		}
	}
	boolean := func(expression string) (goValue, error) { return goValue{expression: expression, isBool: true}, nil }
	switch {
	case name == "isset" && len(args) == 2 && args[0].isMap:
		return boolean(args[1].asText() + " in " + args[0].expression)
	case name == "index" && len(args) == 2 && args[0].isMap:
		return goValue{expression: args[0].expression + "[?" + args[1].asText() + "].orValue('')"}, nil
	case slices.ContainsFunc(args, func(a goValue) bool { return a.isMap }):
	case name == "not" && len(args) == 1:
		return boolean("!(" + args[0].asTest() + ")")
	case (name == "and" || name == "or") && len(args) > 1:
		return chooseArg(name, args), nil
	case name == "eq" && len(args) > 1:
		var tests []string
		for _, a := range args[1:] {
			tests = append(tests, args[0].asText()+" == "+a.asText())
		}
		return boolean(inParentheses(strings.Join(tests, " || "), true))
	case name == "ne" && len(args) == 2:
		return boolean(args[0].asText() + " != " + args[1].asText())
	case name == "contains" && len(args) == 2:
		return boolean(args[1].asText() + ".contains(" + args[0].asText() + ")")
	case (name == "valueOrDefault" || name == "default") && len(args) == 2:
		value, fallback := args[0], args[1]
		if name == "default" {
			value, fallback = args[1], args[0]
		}
		return goValue{expression: "(" + value.asText() + " != '' ? " + value.asText() + " : " + fallback.asText() + ")", number: value.number}, nil
	case (name == "toLower" || name == "lower") && len(args) == 1:
		return goValue{expression: args[0].asText() + ".lowerAscii()"}, nil
	case name == "quote" && len(args) == 1:
		return goValue{expression: args[0].asText()}, nil
	case name == "trim" && len(args) == 1:
		return goValue{expression: args[0].asText() + ".trim()"}, nil
	}
	return goValue{}, unknown
}

// chooseArg returns the value of and or or. That is one of the arguments: for or, the first one that is true.
func chooseArg(name string, args []goValue) goValue {
	tests := make([]string, len(args))
	value := args[len(args)-1].asText()
	for i, a := range slices.Backward(args) {
		tests[i] = a.asTest()
		switch {
		case i == len(args)-1:
		case name == "or":
			value = "(" + tests[i] + " ? " + a.asText() + " : " + value + ")"
		default:
			value = "(" + tests[i] + " ? " + value + " : " + a.asText() + ")"
		}
	}
	test := "(" + strings.Join(tests, map[string]string{"and": " && ", "or": " || "}[name]) + ")"
	if !slices.ContainsFunc(args, func(a goValue) bool { return !a.isBool }) {
		return goValue{expression: test, isBool: true}
	}
	return goValue{expression: value, test: test}
}

// callConstant returns the result of a function with constant arguments.
func callConstant(name string, args []goValue) (any, bool) {
	first := args[0].static
	if len(args) < 2 && slices.Contains([]string{"valueOrDefault", "default", "eq", "ne"}, name) {
		return nil, false
	}
	switch name {
	case "valueOrDefault":
		if first == "" {
			first = args[1].static
		}
		return first, true
	case "default":
		if !isTrue(args[1].static) {
			return first, true
		}
		return args[1].static, true
	case "quote":
		return strconv.Quote(fmt.Sprint(first)), true
	case "not":
		return !isTrue(first), true
	case "eq":
		return slices.ContainsFunc(args[1:], func(a goValue) bool { return fmt.Sprint(a.static) == fmt.Sprint(first) }), true
	case "ne":
		return fmt.Sprint(first) != fmt.Sprint(args[1].static), true
	case "and", "or":
		for _, a := range args {
			if isTrue(a.static) != (name == "and") {
				return a.static, true
			}
		}
		return args[len(args)-1].static, true
	case "toYaml":
		text, err := yaml.Marshal(first)
		return strings.TrimRight(string(text), "\n"), err == nil
	case "toJson", "toJSON":
		text, err := json.Marshal(first)
		return string(text), err == nil
	case "indent", "nindent":
		if n, ok := first.(int); ok && len(args) == 2 {
			text := strings.ReplaceAll(fmt.Sprint(args[1].static), "\n", "\n"+strings.Repeat(" ", n))
			if name == "nindent" {
				text = "\n" + strings.Repeat(" ", n) + text
			}
			return text, true
		}
	}
	return nil, false
}
