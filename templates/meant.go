// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// unknown matches CEL's error for an unknown name.
var unknown = regexp.MustCompile(`^(undefined field|undeclared reference to) '([^']*)'( \(in container ''\))?$`)

// explained returns a CEL error in Pillion's words, with a hint about what the author probably
// meant.
func explained(env *cel.Env, source, message string) (text, hint string) {
	if message == "reserved identifier: namespace" {
		return message, ": the pod's namespace is called ns here"
	}
	found := unknown.FindStringSubmatch(message)
	if found == nil {
		return unusual(message)
	}
	kind, name := found[1], found[2]
	text = fmt.Sprintf("%s '%s'", kind, name)
	switch {
	case kind != "undefined field" && name == "container":
		return text, ": it exists only in forEachContainer; a condition and a variable have one value for each pod"
	case kind != "undefined field" && name == "when":
		return text, ": " + whenHint
	case kind != "undefined field" && name == "forEach":
		return text, ": " + forEachHint
	case kind != "undefined field" && slices.ContainsFunc(env.Macros(), func(m cel.Macro) bool { return m.Function() == name }):
		return name + "() has other arguments", ": " + macroHint
	case kind != "undefined field":
		return text, cmp.Or(inLibrary(env, name), DidYouMean(name, declared(env)))
	case slices.Contains([]string{"name", "uid", "creationTimestamp", "resourceVersion", "nodeName", "managedFields", "status"}, name):
		return text, ": it is not set yet when a pod is admitted; give the container the value through the downward API (env valueFrom.fieldRef)"
	}
	return text, DidYouMean(name, fieldsBeside(env, source, name))
}

const macroHint = "the first one names the item, as in list.exists(x, x.name == 'a')"

var (
	mismatch  = regexp.MustCompile(`^found no matching overload for '(.*)' applied to '(.*)'$`)
	itemField = regexp.MustCompile(`^type 'list\((.*)\)' does not support field selection$`)
	notBool   = regexp.MustCompile(`^expected type '(.*)' but found '(.*)'$`)
	oneEquals = "Syntax error: token recognition error at: '= "
)

// unusual is explained for errors other than unknown names.
func unusual(message string) (text, hint string) {
	if found := mismatch.FindStringSubmatch(message); found != nil {
		name, isOperator := operators.FindReverse(found[1])
		switch {
		case isOperator && name != "":
			return fmt.Sprintf("%s does not work with %s", name, found[2]), "; convert one of them, for example with string(...) or int(...)"
		case strings.HasPrefix(found[2], "("):
			return fmt.Sprintf("%s() does not take %s", found[1], found[2]), ""
		}
		of, args, _ := strings.Cut(found[2], ".(")
		if args == ")" {
			return fmt.Sprintf("%s() does not work on a %s", found[1], of), ""
		}
		return fmt.Sprintf("%s() of a %s does not take (%s", found[1], of, args), ""
	}
	if found := itemField.FindStringSubmatch(message); found != nil {
		return fmt.Sprintf("this is a list of type %s, and only its items have fields", found[1]), "; write [0] for the first item, .exists(x, ...) for a condition or .map(x, ...) for all items"
	}
	if found := notBool.FindStringSubmatch(message); found != nil {
		return fmt.Sprintf("this is of type %s, and %s is needed", found[2], found[1]), ""
	}
	if strings.HasPrefix(message, oneEquals) {
		return "= is no operator", "; to compare, write =="
	}
	return message, ""
}

// inLibrary returns a hint if name is the first part of functions' names, or the last one.
func inLibrary(env *cel.Env, name string) string {
	var parts, whole []string
	for f := range env.Functions() {
		switch first, last, ok := strings.Cut(f, "."); {
		case ok && first == name && !strings.Contains(last, "@"):
			parts = append(parts, f+"()")
		case ok && last == name:
			whole = append(whole, f+"()")
		}
	}
	slices.Sort(parts)
	slices.Sort(whole)
	switch {
	case len(whole) > 0:
		return "; did you mean " + strings.Join(whole, " or ") + "?"
	case len(parts) > 0:
		return "; its functions are " + strings.Join(parts, ", ")
	}
	return ""
}

// declared returns the names of an environment's variables, functions and macros.
func declared(env *cel.Env) []string {
	names := slices.Collect(maps.Keys(env.Functions()))
	for _, v := range env.Variables() {
		names = append(names, v.Name())
	}
	for _, m := range env.Macros() {
		names = append(names, m.Function())
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.ContainsAny(name, "_@!.") })
}

// fieldsBeside returns the fields of the type that lacks a field with that name. It learns the type
// from the type checker.
func fieldsBeside(env *cel.Env, source, name string) []string {
	r := &recorder{Provider: env.CELTypeProvider(), field: name}
	again, err := env.Extend(cel.CustomTypeProvider(r))
	if err != nil {
		return nil
	}
	_, _ = again.Compile(source) // it failed before
	names, _ := r.FindStructFieldNames(r.lacks)
	return names
}

// recorder records the type in which a type checker did not find a field.
type recorder struct {
	types.Provider
	field, lacks string
}

// FindStructFieldType implements types.Provider.
func (r *recorder) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	t, ok := r.Provider.FindStructFieldType(name, field)
	if !ok && field == r.field && r.lacks == "" {
		r.lacks = name
	}
	return t, ok
}

// whenHint explains ${when}.
const whenHint = `"${when}" is a key of objects; for a list of strings, make the whole list one expression, such as ${params.debug ? ['--debug'] : []}`

// forEachHint explains ${forEach}.
const forEachHint = `"${forEach}" is a key of list items that are objects; for a list of strings, make the whole list one expression, such as ${params.names.split(',').map(n, '--name=' + n)}`
