// SPDX-License-Identifier: Apache-2.0

package templates

import "github.com/google/cel-go/common/ast"

// paramSet is a set of parameters, by their indexes in the declaration.
type paramSet uint64

// maxPreset is the maximum number of parameters in a set. Parts that depend on later parameters are
// rendered for each pod.
const maxPreset = 64

// note records what an expression reads, for one of its identifiers.
func (p *program) note(ident ast.NavigableExpr, params []Param) {
	parent, ok := ident.Parent()
	field := ok && parent.Kind() == ast.SelectKind
	switch ident.AsIdent() {
	case "pod":
		p.ofPod = true
	case "params":
		p.pure = p.pure && field
		for i := range params {
			if field && params[i].Name != parent.AsSelect().FieldName() {
				continue // without a field, it may read any of them
			}
			p.params = append(p.params, params[i].Name)
			if p.given |= 1 << i; i >= maxPreset {
				p.pure = false
			}
		}
		return
	}
	p.pure = false
}
