// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"
	"regexp"
	"strings"
)

// paramName allows names that are both CEL identifiers and valid in annotation keys.
const paramName = `^[a-z][A-Za-z0-9_]{0,61}$`

var validParam = regexp.MustCompile(paramName)

// validNameHint returns a suggestion for an invalid name, such as logDir for log-dir.
func validNameHint(name string) string {
	var valid strings.Builder
	for i, part := range strings.FieldsFunc(name, func(r rune) bool { return !validParam.MatchString("a" + string(r)) }) {
		if i > 0 {
			part = strings.ToUpper(part[:1]) + part[1:]
		} else {
			part = strings.ToLower(part[:1]) + part[1:]
		}
		valid.WriteString(part)
	}
	if s := valid.String(); s != name && validParam.MatchString(s) && !isReservedWord(s) {
		return fmt.Sprintf("; use %s", s)
	}
	return ""
}

// isReservedWord reports whether a name is a reserved word in CEL's grammar.
func isReservedWord(name string) bool {
	switch name {
	case "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in",
		"let", "loop", "package", "namespace", "null", "return", "true", "var", "void", "while":
		return true
	}
	return false
}
