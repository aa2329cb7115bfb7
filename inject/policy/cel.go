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

// paramVariable is the variable that has a parameter's value.
func paramVariable(name string) string { return "param_" + name }

// ownVariable is the variable that has the containers of a list that no template brought.
func ownVariable(list string) string { return "own_" + list }

// marked is the variable that is true if the pod says that the containers of a template's names are the template's.
func marked(t *templates.Template) string { return "marked_" + identifier(t.Name) }

// identifier turns a name of Kubernetes into a name of CEL.
func identifier(name string) string { return strings.ReplaceAll(name, "-", "_") }

func quote(text string) string { return strconv.Quote(text) }

// quoted are the items of a list of strings in CEL.
func quoted(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = quote(text)
	}
	return strings.Join(all, ", ")
}

// lists are the lists of containers that a template may add to.
func lists() []string { return []string{"initContainers", "containers"} }

// optional is a value that exists if the condition is true.
func optional(condition, value string) string {
	return fmt.Sprintf("(%s) ? optional.of(%s) : optional.none()", condition, value)
}

// all joins conditions that must all hold, one a line.
func all(conditions ...string) string { return joined(" &&\n", "true", conditions) }

// some joins conditions of which one is enough, one a line.
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
