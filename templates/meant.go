// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
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
		return message, ""
	}
	kind, name := found[1], found[2]
	text = fmt.Sprintf("%s '%s'", kind, name)
	switch {
	case kind != "undefined field" && name == "container":
		return text, ": it exists only in forEachContainer; a condition and a variable have one value for each pod"
	case kind != "undefined field" && name == "when":
		return text, ": " + whenHint
	case kind != "undefined field":
		return text, DidYouMean(name, declared(env))
	case slices.Contains([]string{"name", "uid", "creationTimestamp", "resourceVersion", "nodeName", "managedFields", "status"}, name):
		return text, ": it is not set yet when a pod is admitted; give the container the value through the downward API (env valueFrom.fieldRef)"
	}
	return text, DidYouMean(name, fieldsBeside(env, source, name))
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
const whenHint = `"${when}" is a key of items that are objects; for a list of strings, make the whole list one expression, such as ${params.debug ? ['--debug'] : []}`
