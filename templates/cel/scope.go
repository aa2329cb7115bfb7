// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
)

// Scope is a place of expressions in a template: it has the variables that they may read.
type Scope struct {
	env   *cel.Env
	loops []*Loop // around the place, the innermost last
}

// Loop returns the loop around the place with a variable of that name, or nil.
func (s *Scope) Loop(variable string) *Loop {
	for _, l := range s.loops {
		if slices.Contains(l.names, variable) {
			return l
		}
	}
	return nil
}

// HasMeaning reports whether a name is that of a type, of a variable that is not a loop's, or of a library of functions.
func (s *Scope) HasMeaning(name string) bool {
	if _, isType := s.env.CELTypeProvider().FindIdent(name); isType || name == "container" || name == "serviceAccount" {
		return true
	}
	for function := range s.env.Functions() {
		if strings.HasPrefix(function, name+".") {
			return true
		}
	}
	return slices.ContainsFunc(s.env.Variables(), func(v *decls.VariableDecl) bool { return v.Name() == name })
}

// loopNames returns the names of the loops' variables.
func (s *Scope) loopNames() (names []string) {
	for _, l := range s.loops {
		names = append(names, l.names...)
	}
	return names
}
