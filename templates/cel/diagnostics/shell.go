// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	shellVariable  = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)
	shellExpansion = regexp.MustCompile(`^(?:#|!)?[A-Z_][A-Z0-9_]*(?:\[[@*]\]|:?[-+=?]|%|#|/|\^|,).*$|^[#!][A-Z_][A-Z0-9_]*$`)
)

// shellVariableHint returns a hint if an expression is the name of an environment variable. Scripts of a shell write it in the same way.
func shellVariableHint(source, name string) string {
	if !shellVariable.MatchString(name) || strings.TrimSpace(source) != name {
		return ""
	}
	return fmt.Sprintf("; for an environment variable, write $${%s} in a script of a shell, and $(%s) elsewhere", name, name)
}

// isShellExpansion reports whether an expression is what a shell makes from a variable, for example NAME:-default.
func isShellExpansion(source string) bool {
	return shellExpansion.MatchString(source)
}
