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

// markedVariable returns the name of the variable that reports whether the pod marks the containers with a
// template's names as the template's.
func markedVariable(t *templates.Template) string { return "marked_" + celIdentifier(t.Name) }

// celIdentifier turns a Kubernetes name into a CEL name.
func celIdentifier(name string) string { return strings.ReplaceAll(name, "-", "_") }

func quoteString(text string) string { return strconv.Quote(text) }

// quoteList returns the items of a list of strings in CEL.
func quoteList(texts []string) string {
	all := make([]string, len(texts))
	for i, text := range texts {
		all[i] = quoteString(text)
	}
	return strings.Join(all, ", ")
}

// containerLists returns the lists of containers that a template may add to.
func containerLists() []string { return []string{"initContainers", "containers"} }

// optionalValue returns a value that exists if the condition is true.
func optionalValue(condition, value string) string {
	return fmt.Sprintf("(%s) ? optional.of(%s) : optional.none()", condition, value)
}

// allTrue joins conditions that must all be true, one per line.
func allTrue(conditions ...string) string { return joinConditions(" &&\n", "true", conditions) }

// anyTrue joins conditions of which one must be true, one per line.
func anyTrue(conditions ...string) string { return joinConditions(" ||\n", "false", conditions) }

func joinConditions(operator, none string, conditions []string) string {
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
