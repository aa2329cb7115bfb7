// SPDX-License-Identifier: Apache-2.0

// Package diagnostics has CEL's errors in words for authors of templates, each with what to write instead.
package diagnostics

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/cel/values"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// unknownName matches CEL's error for an unknown name.
var unknownName = regexp.MustCompile(`^(undefined field|undeclared reference to) '([^']*)'( \(in container ''\))?$`)

// Explain returns a CEL error in Pillion's words. Hint is the end of the message: what the author probably meant, or "".
func Explain(env *cel.Env, source string, issue *cel.Error) (text, hint string) {
	message := unknownType.ReplaceAllString(issue.Message, "dyn")
	if text, hint := syntaxWords(source, message); text != "" && !strings.HasPrefix(message, oneEquals) {
		return text, hint
	}
	if text, hint := ofMacro(macroAt(source, issue.Location), message); text != "" {
		return text, hint
	}
	found := unknownName.FindStringSubmatch(message)
	if found == nil {
		return ExplainMessage(source, message)
	}
	kind, name := found[1], strings.TrimPrefix(found[2], ".")
	if kind == "undefined field" {
		fields, typeName := fieldsBeside(env, source, name)
		text = fmt.Sprintf("%s %q", ownerWords(typeName), name)
		if slices.Contains([]string{"uid", "creationTimestamp", "resourceVersion", "nodeName", "managedFields", "status"}, name) {
			return text, ": it is not set yet when a pod is admitted; give the container the value through the downward API (env valueFrom.fieldRef)"
		}
		if values.Gated(typeName, name) {
			return fmt.Sprintf("expressions cannot read %q", name), ": an API server drops it if its feature gate is off"
		}
		if instead := podFieldPlace(typeName, name); instead != "" {
			return text, "; write " + instead
		}
		return text, problem.DidYouMean(name, fields)
	}
	what := "variable"
	if regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\s*\(`).MatchString(source) {
		what = "function"
	}
	text = fmt.Sprintf("there is no %s %q", what, name)
	switch instead := foreignWords[name]; {
	case what == "variable" && hasField(env, values.ParamsType, name):
		return text, "; write params." + name
	case what == "variable" && hasField(env, values.VariablesType, name):
		return text, "; write variables." + name
	case name == "container":
		return text + " here", ": it exists only in forEachContainer; a condition and a variable have one value for each pod"
	case name == "when" && what == "variable":
		return text, ": " + WhenHint
	case name == "forEach":
		return text, ": " + ForEachHint
	case slices.ContainsFunc(env.Macros(), func(m cel.Macro) bool { return m.Function() == name }):
		return name + "() has other arguments", ": " + macroHint(name)
	case instead != "":
		return text, "; " + instead
	}
	if what == "variable" {
		return text, cmp.Or(shellVariableHint(source, name), nameInMacro(source, name), similarVariableHint(env, name), asString(source, name), inLibrary(env, name), problem.DidYouMean(name, declaredNames(env)))
	}
	return text, cmp.Or(inLibrary(env, name), problem.DidYouMean(name, declaredNames(env)))
}

// similarVariableHint returns a hint if name is nearly that of a variable, a parameter or one of the template's own variables.
func similarVariableHint(env *cel.Env, name string) string {
	written := map[string]string{}
	for from, typeName := range map[string]string{"params.": values.ParamsType, "variables.": values.VariablesType} {
		fields, _ := env.CELTypeProvider().FindStructFieldNames(typeName)
		for _, field := range fields {
			written[field] = from + field
		}
	}
	for _, v := range env.Variables() {
		if !strings.ContainsAny(v.Name(), "_@!.") {
			written[v.Name()] = v.Name()
		}
	}
	if closest := problem.Closest(name, slices.Sorted(maps.Keys(written))); closest != "" && len(name) > 2 {
		return fmt.Sprintf("; did you mean %q?", written[closest])
	}
	return ""
}

// asString returns a hint if name is compared with something: it is probably a string without quotes.
func asString(source, name string) string {
	quoted := regexp.QuoteMeta(name)
	if regexp.MustCompile(`[=!]=\s*` + quoted + `\s*($|[^\w\s.(\[])|(^|[^\w\s.])\s*` + quoted + `\s*[=!]=`).MatchString(source) {
		return fmt.Sprintf("; for a string, write '%s'", name)
	}
	return ""
}

// macroAt returns the name of the macro whose ( is at a place, or "". CEL reports errors in what it
// makes of a macro at that place.
func macroAt(source string, at common.Location) string {
	text, column, _ := lineAt(source, at)
	line := []rune(text)
	if column >= len(line) || line[column] != '(' {
		return ""
	}
	return lastWord.FindString(string(line[:column]))
}

var lastWord = regexp.MustCompile(`\w+$`)

// ofMacro is [Explain] for errors in what CEL makes of a macro: operators and functions that the
// author did not write. It returns "" for others.
func ofMacro(macro, message string) (text, hint string) {
	found := mismatch.FindStringSubmatch(message)
	if found == nil || macro == "" {
		return "", ""
	}
	switch found[1] {
	case "cel.@mapInsert":
		return macro + "() needs a map here", "; for example list." + macro + "(i, x, {x: i})"
	case operators.Conditional:
		of, _, _ := strings.Cut(argumentWords(found[2]), ", ")
		example := map[string]string{"map": "list.map(x, x != 'a', x)", "when": "when(params.level == 'debug', '--debug')"}[macro]
		return fmt.Sprintf("%s() needs a condition here, and this is %s", macro, of), "; for example " + cmp.Or(example, "list."+macro+"(x, x != 'a')")
	case "@sortByAssociatedKeys":
		_, keys, _ := strings.Cut(found[2], ".(list(")
		return macro + "() cannot sort by " + typeWords(strings.TrimSuffix(keys, "))")), "; sort by a string or a number, as in list.sortBy(x, x.name)"
	}
	return "", ""
}

// macroHint returns a hint about the arguments of a macro.
func macroHint(macro string) string {
	switch macro {
	case "transformList", "transformMap":
		return "the first two name the key and the value, as in map." + macro + "(k, v, v + '!'); in a list, the key is the index"
	case "transformMapEntry":
		return "the first two name the key and the value, as in map.transformMapEntry(k, v, {v: k}); in a list, the key is the index"
	case "when":
		return "a condition, and the value that is there if it is true, as in when(params.debug, '--debug')"
	}
	return "the first one names the item, as in list.exists(x, x.name == 'a')"
}

var (
	mismatch  = regexp.MustCompile(`^found no matching overload for '(.*)' applied to '(.*)'$`)
	itemField = regexp.MustCompile(`^type 'list\((.*)\)' does not support field selection$`)
	notBool   = regexp.MustCompile(`^expected type '(.*)' but found '(.*)'$`)
	notRange  = regexp.MustCompile(`^expression of type '(.*)' cannot be range of a comprehension`)
	// unknownType is what CEL calls a type that nothing decides.
	unknownType = regexp.MustCompile(`\b_var\d+\b`)
	oneEquals   = "Syntax error: token recognition error at: '= "
)

// ExplainMessage is [Explain] for the message of an error that is not about an unknown name.
func ExplainMessage(source, message string) (text, hint string) {
	if found := mismatch.FindStringSubmatch(message); found != nil {
		name, isOperator := operators.FindReverse(found[1])
		switch {
		case found[1] == operators.Conditional && strings.Contains(found[2], "null"):
			return "? does not work with " + argumentWords(found[2]), "; for a value that is left out otherwise, write when(condition, value)"
		case found[1] == operators.Conditional:
			return "? does not work with " + argumentWords(found[2]), "; before ? write a condition, such as params.level == 'debug'; both results must have the same type"
		case found[1] == operators.Index && strings.HasPrefix(found[2], "(pillion."):
			return "this object has no [...]", "; read a field of it, such as params.NAME"
		case found[1] == operators.Index:
			return "[...] does not work with " + argumentWords(found[2]), ""
		case found[1] == operators.OptIndex || found[1] == operators.OptSelect:
			return "[?...] does not work with " + argumentWords(found[2]), "; for a field that may be missing, write .?field"
		case found[1] == operators.In:
			return "in does not work with " + argumentWords(found[2]), "; after in, write a list or a map; for a part of a string, write text.contains('...')"
		case isOperator && name != "":
			return fmt.Sprintf("%s does not work with %s", name, argumentWords(found[2])), ofOperator(name, found[2])
		case strings.HasPrefix(found[2], "("):
			return fmt.Sprintf("%s() does not take %s", found[1], argumentWords(found[2])), ofCall(found[1])
		}
		of, args, _ := strings.Cut(found[2], ".(")
		if value, ok := strings.CutPrefix(of, "optional_type("); ok && strings.HasPrefix(found[1], "or") {
			return fmt.Sprintf("%s() does not take %s here", found[1], argumentWords("("+args)), "; without it, the value is " + typeWords(strings.TrimSuffix(value, ")")) + orThis(found[1], value)
		}
		if args == ")" {
			return fmt.Sprintf("%s() does not work on %s", found[1], typeWords(of)), cmp.Or(ofMember(source, found[1], of), withoutCall(found[1], of))
		}
		return fmt.Sprintf("%s() of %s does not take %s", found[1], typeWords(of), argumentWords("("+args)), ofMember(source, found[1], of)
	}
	if found := itemField.FindStringSubmatch(message); found != nil {
		return fmt.Sprintf("this is %s, and only its items have fields", typeWords("list("+found[1]+")")), "; write [0] for the first item, .exists(x, ...) for a condition or .map(x, ...) for all items"
	}
	if found := notBool.FindStringSubmatch(message); found != nil {
		return fmt.Sprintf("this is %s, and %s is needed", typeWords(found[2]), typeWords(found[1])), ofCondition(source, found[1], found[2])
	}
	if found := notRange.FindStringSubmatch(message); found != nil {
		return fmt.Sprintf("this is %s, and a list or a map is needed", typeWords(found[1])), ofRange(found[1])
	}
	if found := noFields.FindStringSubmatch(message); found != nil {
		return fmt.Sprintf("this is %s, which has no fields", typeWords(found[1])), ""
	}
	if strings.HasPrefix(message, oneEquals) {
		return "= is no operator", "; to compare, write =="
	}
	return message, ""
}

// ofOperator returns a hint about an operator that does not take values of these types.
func ofOperator(name, of string) string {
	left, right, _ := strings.Cut(strings.Trim(of, "()"), ", ")
	isList, isMap := strings.HasPrefix(left, "list("), strings.HasPrefix(left, "map(")
	switch {
	case strings.HasSuffix(name, "=") && (of == "(bool, string)" || of == "(string, bool)"):
		return "; a boolean is a condition itself, so leave out the comparison, or compare it with true"
	case name == "+" && (isMap && (strings.Contains(of, "), map(") || strings.HasSuffix(of, "), dyn)")) || left == "dyn" && strings.HasPrefix(right, "map(")):
		return "; write the keys of both in one map, or first.merge(second), in which the values of the first win"
	case name == "+" && isList && !strings.HasPrefix(right, "list("):
		return "; to add an item, write + [item]"
	}
	return "; convert one of them, for example with string(...) or int(...)"
}

// ofCall returns a hint about a function that was called with a value that it belongs to.
func ofCall(function string) string {
	if function == "format" {
		return "; write '%s'.format([...])"
	}
	return ""
}

// withoutCall returns a hint about a function without arguments that the type lacks.
func withoutCall(function, of string) string {
	switch {
	case function == "flatten" && of == "list(string)":
		return "; no item is a list, so leave it out, or make lists first, as in list.map(x, x.split(',')).flatten()"
	case function == "flatten" && strings.HasPrefix(of, "list("):
		return "; no item is a list, so leave it out"
	}
	return ""
}

// ofMember returns a hint about a function that the type lacks.
func ofMember(source, function, of string) string {
	if function == "orValue" {
		return "; only a value that may be missing has it" + withOptional(source, of)
	}
	if function == "merge" && strings.HasPrefix(of, "map(") {
		return "; it merges maps whose values have the same type"
	}
	if function == "join" && strings.HasPrefix(of, "list(") {
		return "; it joins strings, so write .map(x, string(x)) before it"
	}
	if function == "contains" && (strings.HasPrefix(of, "list(") || strings.HasPrefix(of, "map(")) {
		return "; to find an item, write 'a' in list"
	}
	return ""
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

// declaredNames returns the names of an environment's variables, functions and macros.
func declaredNames(env *cel.Env) []string {
	names := slices.Collect(maps.Keys(env.Functions()))
	for _, v := range env.Variables() {
		names = append(names, v.Name())
	}
	for _, m := range env.Macros() {
		names = append(names, m.Function())
	}
	return slices.DeleteFunc(names, func(name string) bool { return strings.ContainsAny(name, "_@!.") })
}

// podFieldPlace returns where a field is that a Pod lacks, or "".
func podFieldPlace(typeName, name string) string {
	switch {
	case typeName != reflect.TypeFor[corev1.Pod]().Name():
		return ""
	case name == "serviceAccount":
		return "serviceAccount, which has name, labels and annotations"
	case isPodSpecField(name):
		return "pod.spec." + name
	case name == "labels" || name == "annotations" || name == "name":
		return "pod.metadata." + name
	}
	return ""
}

func isPodSpecField(name string) bool {
	_, ok := jsontree.StructFieldOf(reflect.TypeFor[corev1.PodSpec](), name)
	return ok
}

// fieldsBeside returns the fields of the type that lacks a field with that name, and its name. It learns
// the type from the type checker.
func fieldsBeside(env *cel.Env, source, name string) (fields []string, typeName string) {
	r := &recorder{Provider: env.CELTypeProvider(), field: name}
	again, err := env.Extend(cel.CustomTypeProvider(r))
	if err != nil {
		return nil, ""
	}
	_, _ = again.Compile(source) // it failed before
	names, _ := r.FindStructFieldNames(r.lacks)
	return names, r.lacks
}

func hasField(env *cel.Env, typeName, name string) bool {
	_, ok := env.CELTypeProvider().FindStructFieldType(typeName, name)
	return ok
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

// WhenHint explains where "${when}" is allowed, in messages.
const WhenHint = `"${when}" is a key of objects; for a string in a list, write one expression that gives a list of strings, such as ${params.debug ? ['--debug'] : []}`

// ForEachHint explains where "${forEach}" is allowed, in messages.
const ForEachHint = `"${forEach}" is a key of list items that are objects; for strings in a list, write one expression that gives a list of strings, such as ${params.names.split(',').map(n, '--name=' + n)}`

// LoopHint returns the end of a message about an expression of a ${forEach} with these variables: what it must give, and what to write
// instead.
func LoopHint(out *types.Type, source string, variables []string) string {
	switch {
	case out.Kind() == types.MapKind:
		return fmt.Sprintf("; for its keys and values, which are in the order of the keys, write {\"k, v\": %q}", source)
	case len(variables) > 1:
		return ", but a map or a list is needed here"
	case out.Kind() == types.StringKind:
		return fmt.Sprintf(", but a list is needed here; write %s.split(','), or give a parameter the type list", Operand(source))
	case out.Kind() == types.DynKind:
		return fmt.Sprintf(", but a list is needed here; if it is a list, write %s.map(x, x), and if it is a map, {\"k, v\": %q}", Operand(source), source)
	}
	if out.String() == "optional_type(dyn)" {
		return fmt.Sprintf(", but a list is needed here; if it is a list, write %s.orValue([]).map(x, x), and if it is a map, {\"k, v\": \"%s.orValue({})\"}", Operand(source), Operand(source))
	}
	return ", but a list is needed here"
}
