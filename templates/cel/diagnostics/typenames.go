// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// TypeName returns the name of a type for users, for example "a list of strings".
func TypeName(t *cel.Type) string {
	switch t.Kind() {
	case types.DynKind:
		return "a value of unknown type"
	case types.OpaqueKind:
		if strings.HasPrefix(t.String(), "optional_type(") {
			return "an optional value (end it with .orValue(...))"
		}
	}
	return typeWords(t.String())
}

// typeWords returns the name of a type for users, given CEL's name.
func typeWords(name string) string {
	if of, ok := strings.CutPrefix(name, "list("); ok {
		if of == "dyn)" {
			return "a list"
		}
		return "a list of " + pluralWords(strings.TrimSuffix(of, ")"))
	}
	if strings.HasPrefix(name, "map(") {
		return "a map"
	}
	if name == "optional_type(dyn)" {
		return "an optional value (end it with .orValue(...))"
	}
	if of, ok := strings.CutPrefix(name, "optional_type("); ok {
		return "an optional value (" + strings.TrimSuffix(of, ")") + "; end it with .orValue(...))"
	}
	switch name {
	case "int", "uint":
		return "an integer"
	case "double":
		return "a number"
	case "bool":
		return "true or false"
	case "dyn":
		return "a value of unknown type"
	case "null_type":
		return "null"
	case "bytes":
		return "bytes"
	case "google.protobuf.Duration":
		return "a duration"
	case "google.protobuf.Timestamp":
		return "a timestamp"
	case values.ParamsType:
		return "all parameters"
	case values.NamespaceType, values.ServiceAccountType, values.RequestType, values.VariablesType:
		return "an object"
	case "ObjectMeta":
		return "metadata"
	case "PodSpec":
		return "pod.spec"
	}
	name = strings.TrimPrefix(name, "kubernetes.")
	if name != "" && strings.ContainsRune("aeiouE", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// pluralWords returns words for values of a type, given CEL's name.
func pluralWords(name string) string {
	switch words := typeWords(name); {
	case strings.HasPrefix(name, "list("):
		return "lists"
	case name == "bool":
		return "booleans"
	case strings.HasPrefix(name, "optional_type("):
		return "optional values"
	case name == "string" || name == "int" || name == "uint" || name == "double" || strings.HasPrefix(name, "map("):
		return strings.TrimPrefix(strings.TrimPrefix(words, "a "), "an ") + "s"
	default:
		return strings.TrimPrefix(strings.TrimPrefix(words, "a "), "an ") + " values"
	}
}

// argumentWords returns words for CEL's list of types, for example (int, string).
func argumentWords(types string) string {
	var all []string
	depth, begin := 0, 0
	types = strings.TrimSuffix(strings.TrimPrefix(types, "("), ")")
	for i, r := range types + "," {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			if text := strings.TrimSpace(types[begin:i]); text != "" {
				all = append(all, typeWords(text))
			}
			begin = i + 1
		}
	}
	switch len(all) {
	case 0:
		return "no argument"
	case 1:
		return all[0]
	}
	return strings.Join(all[:len(all)-1], ", ") + " and " + all[len(all)-1]
}

// ownerWords returns words for an object that lacks a field, given the name of its type.
func ownerWords(typeName string) string {
	switch typeName {
	case values.ParamsType:
		return "the template has no parameter"
	case values.VariablesType:
		return "the template has no variable"
	case values.NamespaceType:
		return "a namespace has no field"
	case values.ServiceAccountType:
		return "serviceAccount has no field"
	case values.RequestType:
		return "request has no field"
	case "":
		return "there is no field"
	}
	return typeWords(typeName) + " has no field"
}

// foreignWords are words of other languages and what templates have instead.
var foreignWords = map[string]string{
	"len": "write size(...)", "length": "write size(...)", "count": "write size(...)",
	"get": "write [?'key'].orValue('...')", "default": "write .orValue('...')", "coalesce": "write .orValue('...')",
	"toUpper": "write upperAscii()", "upper": "write upperAscii()", "toLower": "write lowerAscii()", "lower": "write lowerAscii()",
	"hasKey": "write 'key' in map", "includes": "write contains(...)", "any": "write exists(x, ...)", "some": "write exists(x, ...)", "every": "write all(x, ...)",
	"toJson": "write json.marshal(...)", "toYaml": "write json.marshal(...); JSON is YAML", "b64enc": "write base64.encode(bytes(...))",
	"and": "write &&", "or": "write ||", "not": "write !", "if": "for a choice, write condition ? a : b", "then": "for a choice, write condition ? a : b", "else": "for a choice, write condition ? a : b",
	"now": "the result must be the same each time, so there is no clock", "env": "the result must be the same for each replica, so there is no environment",
	"random": "the result must be the same each time, so there is no randomness", "lookup": "expressions see only the pod, its namespace and the request",
	"Values": "write params.NAME", "self": "write pod", "object": "write pod", "namespaceObject": "write ns", "namespace": "the pod's namespace is called ns here",
}

var (
	reservedWord = regexp.MustCompile(`^reserved identifier: (\w+)$`)
	noFields     = regexp.MustCompile(`^type '(.*)' does not support field selection$`)
	wrongStart   = regexp.MustCompile(`^Syntax error: (?:mismatched|extraneous) input '(.*)' expecting`)
	missingToken = regexp.MustCompile(`^Syntax error: missing '(.*)' at`)
	wrongToken   = regexp.MustCompile(`^Syntax error: token recognition error at: '(.*)`)
	noAlternate  = regexp.MustCompile(`^Syntax error: no viable alternative at input '(.*)'$`)
)

// conditionWithoutElse matches a condition with one result.
var conditionWithoutElse = regexp.MustCompile(`[^.[]\?[^?:]*:?\s*$`)

// syntaxWords returns words for a message about the form of an expression, or "".
func syntaxWords(source, message string) (text, hint string) {
	read := func(found []string) (string, string) {
		token := strings.TrimSuffix(strings.TrimSpace(found[1]), "'")
		switch {
		case strings.TrimSpace(source) == "":
			return "the expression is empty", ""
		case strings.HasPrefix(token, "$") && strings.Contains(source, "${"):
			return "${ is not expected here: this is an expression already", "; write " + FirstExpression(source) + " without ${ }"
		case isShellExpansion(source):
			return "${...} is an expression, and not a shell's variable", fmt.Sprintf("; for the shell, write $${%s}", source)
		case token == "<EOF>" && conditionWithoutElse.MatchString(source):
			return "the expression ends too early", "; write condition ? a : b, or when(condition, a) for a value that is left out otherwise"
		case token == "<EOF>":
			return "the expression ends too early", ""
		case token == ":" && strings.Contains(source, ":-"):
			return ":- is no operator", "; for a value that may be missing, write .orValue('...'), as in params.?name.orValue('...')"
		case token == ":" && strings.Contains(source, "?:"):
			return "?: is no operator", "; for a value that may be missing, write .orValue('...'), as in params.?name.orValue('...')"
		case token == "?" && strings.Contains(source, "??"):
			return "?? is no operator", "; write .orValue('...') after an optional value such as [?'key']"
		case strings.HasPrefix(token, "|"):
			return "| is no operator", "; call functions as value.function(), and write || for or"
		case strings.HasPrefix(token, "&"):
			return "& is no operator", "; write && for and"
		}
		for word := range strings.FieldsSeq(source) {
			if instead := foreignWords[word]; instead != "" && word != "Values" {
				return fmt.Sprintf("the word %q means nothing here", word), "; " + instead
			}
		}
		return fmt.Sprintf("%q is not expected here", token), ""
	}
	switch {
	case reservedWord.MatchString(message):
		word := reservedWord.FindStringSubmatch(message)[1]
		if instead := foreignWords[word]; instead != "" {
			return fmt.Sprintf("the word %q is reserved", word), "; " + instead
		}
		return fmt.Sprintf("the word %q is reserved", word), ""
	case wrongStart.MatchString(message):
		return read(wrongStart.FindStringSubmatch(message))
	case wrongToken.MatchString(message):
		return read(wrongToken.FindStringSubmatch(message))
	case noAlternate.MatchString(message):
		return read(noAlternate.FindStringSubmatch(message))
	case missingToken.MatchString(message):
		return fmt.Sprintf("a %s is missing", missingToken.FindStringSubmatch(message)[1]), ""
	}
	return "", ""
}
