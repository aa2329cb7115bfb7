// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"regexp"
	"strings"
)

var identifier = regexp.MustCompile(`^[a-z][A-Za-z0-9_]{0,61}$`)

// IsIdentifier reports whether expressions can read a parameter or a variable of that name, and an annotation can set it. A word that
// CEL reserves is not excluded, see [IsReservedWord].
func IsIdentifier(name string) bool { return identifier.MatchString(name) }

// ValidNameHint returns a suggestion for an invalid name, such as logDir for log-dir.
func ValidNameHint(name string) string {
	var valid strings.Builder
	for i, part := range strings.FieldsFunc(name, func(r rune) bool { return !IsIdentifier("a" + string(r)) }) {
		if i > 0 {
			part = strings.ToUpper(part[:1]) + part[1:]
		} else {
			part = strings.ToLower(part[:1]) + part[1:]
		}
		valid.WriteString(part)
	}
	if s := valid.String(); s != name && IsIdentifier(s) && !IsReservedWord(s) {
		return fmt.Sprintf("; use %s", s)
	}
	return ""
}

// IsReservedWord reports whether a name is a reserved word in CEL's grammar.
func IsReservedWord(name string) bool {
	switch name {
	case "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in",
		"let", "loop", "package", "namespace", "null", "return", "true", "var", "void", "while":
		return true
	}
	return false
}
