// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/fragment"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// takenVariable is a variable of a template that the container has with another value. The template declares that this is a conflict.
type takenVariable struct {
	own      int // index of the container's variable
	variable jsontree.Node
}

// resolveVariables resolves [fragment.IfSetKey] in what a template adds to a container: a variable that the container has already
// with another value gets the other name, or is a conflict. It returns the addition without the key, and the conflicts.
func (s *subject) resolveVariables(container *jsontree.Node, partial jsontree.Node) (resolvedFragment jsontree.Node, taken []takenVariable) {
	env := partial.Get("env").Items()
	if len(env) == 0 {
		return partial, nil
	}
	resolved := append(s.nodes.Nodes(len(env)), env...)
	for i := range resolved {
		other, conflict := fragment.IfSet(&env[i])
		if other == "" && !conflict {
			continue
		}
		resolved[i] = s.nodes.Without(&env[i], fragment.IfSetKey)
		own := s.findVariable(container, &resolved[i])
		switch {
		case own < 0 || s.holdsVariable(&container.Get("env").Items()[own], &resolved[i]):
		case conflict:
			taken = append(taken, takenVariable{own, resolved[i]})
		default:
			resolved[i] = s.nodes.With(&resolved[i], "name", jsontree.Text(other))
		}
	}
	return s.nodes.With(&partial, "env", jsontree.Items(resolved...)), taken
}

// findVariable returns the index of a container's variable with the same name, or -1.
func (s *subject) findVariable(container, variable *jsontree.Node) int {
	env := container.Get("env")
	if env == nil {
		return -1
	}
	return s.findByKey(s.variableSchema(), env, variable)
}

// variableSchema is the schema of a container's variables.
func (s *subject) variableSchema() *schema.Schema {
	return s.schema.At("spec").At("containers").Elem.At("env").Schema
}

// holdsVariable reports whether a container's variable equals the template's, or contains the template's value as a sequence of
// words. Words are separated by spaces, commas, semicolons or colons.
func (s *subject) holdsVariable(pod, fragment *jsontree.Node) bool {
	return s.variableSchema().Elem.Contains(pod, fragment) || holdsWord(pod, fragment)
}

func holdsWord(pod, fragment *jsontree.Node) bool {
	there, ours := pod.Get("value"), fragment.Get("value")
	if there == nil || ours == nil || ours.IsText("") {
		return false
	}
	words := func(n *jsontree.Node) string {
		return " " + strings.Join(strings.FieldsFunc(n.Text(), separatesWords), " ") + " "
	}
	return strings.Contains(words(there), words(ours))
}

func separatesWords(r rune) bool { return strings.ContainsRune(" \t\n,;:", r) }
