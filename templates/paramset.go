// SPDX-License-Identifier: Apache-2.0

package templates

import "github.com/google/cel-go/common/ast"

// paramSet is a set of parameters, by their indexes in the declaration.
type paramSet uint64

// maxPreset is the maximum number of parameters in a set. Parts that depend on later parameters are
// rendered for each pod.
const maxPreset = 64

// paramsOf returns the parameters that an expression reads. It returns ok false if the expression
// may read anything else.
func paramsOf(checked *ast.AST, params []Param) (all paramSet, ok bool) {
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.KindMatcher(ast.IdentKind)) {
		parent, ok := e.Parent()
		if e.AsIdent() != "params" || !ok || parent.Kind() != ast.SelectKind {
			return 0, false
		}
		i := 0
		for i < len(params) && params[i].Name != parent.AsSelect().FieldName() {
			i++
		}
		if i >= min(len(params), maxPreset) {
			return 0, false
		}
		all |= 1 << i
	}
	return all, true
}
