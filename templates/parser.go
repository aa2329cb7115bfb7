// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/fragment"
)

// parser reads a document of a template. The checker walks the document along Go types; the parser knows which part of it means what,
// and checks what belongs together.
type parser struct {
	*fragment.Checker

	compiler *cel.Compiler
}

func newParser(file string) *parser { return &parser{Checker: fragment.NewChecker(file)} }
