// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/parser"
)

// Unparse returns the text of an expression, in one line. An optional value that was separated from its chain has an end that its
// author did not write, and that changes nothing.
func Unparse(e ast.Expr, info *ast.SourceInfo) (string, error) {
	text, err := parser.Unparse(e, info, parser.WrapOnColumn(1<<30))
	return strings.NewReplacer(".or(optional.none())", "", `.or(optional.ofNonZeroValue(dyn("")))`, "").Replace(text), err
}

// Suggest returns the text of an expression for a message that says what to write. Its strings have single quotes, because the
// expression is often within double quotes in YAML.
func Suggest(e ast.Expr, info *ast.SourceInfo) (string, error) {
	text, err := Unparse(e, info)
	if !strings.ContainsAny(text, `'\\`) {
		text = strings.ReplaceAll(text, `"`, "'")
	}
	return text, err
}
