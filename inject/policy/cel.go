// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates"
)

// A field that a pod lacks reads as empty.
const (
	podLabels            = `object.metadata.?labels.orValue({})`
	podAnnotations       = `object.metadata.?annotations.orValue({})`
	podContainers        = `object.spec.?containers.orValue([])`
	podInits             = `object.spec.?initContainers.orValue([])`
	podVolumes           = `object.spec.?volumes.orValue([])`
	namespaceAnnotations = `namespaceObject.metadata.?annotations.orValue({})`
	bothLists            = `(variables.initContainers + variables.containers)`
)

// appVariable is the app container in rewritten expressions.
const appVariable = "app"

// paramVariable returns the name of the variable with a parameter's value.
func paramVariable(name string) string { return "param_" + name }

// namedVariable returns the name of the variable with the value of a template's variable.
func namedVariable(name string) string { return "variable_" + name }

// ownVariable returns the name of the variable with the containers of a list that no template
// brought.
func ownVariable(list string) string { return "own_" + list }

// marked returns the name of the variable that reports whether the pod marks the containers with a
// template's names as the template's.
func marked(t *templates.Template) string { return "marked_" + identifier(t.Name) }

// identifier turns a Kubernetes name into a CEL name.
func identifier(name string) string { return strings.ReplaceAll(name, "-", "_") }

func quote(text string) string { return strconv.Quote(text) }

// quoted returns the items of a list of strings in CEL.
func quoted(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = quote(text)
	}
	return strings.Join(all, ", ")
}

// lists returns the lists of containers that a template may add to.
func lists() []string { return []string{"initContainers", "containers"} }

// optional returns a value that exists if the condition is true.
func optional(condition, value string) string {
	return fmt.Sprintf("(%s) ? optional.of(%s) : optional.none()", condition, value)
}

// all joins conditions that must all be true, one per line.
func all(conditions ...string) string { return joined(" &&\n", "true", conditions) }

// some joins conditions of which one must be true, one per line.
func some(conditions ...string) string { return joined(" ||\n", "false", conditions) }

func joined(operator, none string, conditions []string) string {
	var once []string
	for _, c := range conditions {
		if c != "" && c != none && !slices.Contains(once, c) {
			once = append(once, c)
		}
	}
	switch len(once) {
	case 0:
		return none
	case 1:
		return once[0]
	}
	return "(" + strings.Join(once, ")"+operator+"(") + ")"
}
