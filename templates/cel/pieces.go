// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/templates/cel/diagnostics"
)

// Piece is a literal string, or an expression if Expression is not nil.
type Piece struct {
	Literal    string
	Expression *Expression
}

// CompilePieces splits a string with ${...} at a line into literals and expressions, in order. $${ is a literal ${. If whole is true,
// an expression may compute an object.
func (c *Compiler) CompilePieces(s *Scope, text string, line int, whole bool) ([]Piece, error) {
	var pieces []Piece
	var literal strings.Builder
	for {
		before, rest, escaped := cutLiteral(text)
		literal.WriteString(before)
		if text = rest; escaped {
			continue
		}
		if !strings.HasPrefix(text, "${") {
			break
		}
		source, rest, ok := diagnostics.CutExpression(text[2:])
		if !ok {
			return nil, fmt.Errorf("the ${ has no closing }; for a literal ${, write $${")
		}
		p, err := c.compileExpression(s, strings.TrimSpace(source), whole)
		if err != nil {
			return nil, err
		}
		if literal.Len() > 0 {
			pieces = append(pieces, Piece{Literal: literal.String()})
			literal.Reset()
		}
		p.line = line
		pieces, text = append(pieces, Piece{Expression: p}), rest
	}
	literal.WriteString(text)
	if literal.Len() > 0 || len(pieces) == 0 {
		pieces = append(pieces, Piece{Literal: literal.String()})
	}
	return pieces, nil
}
