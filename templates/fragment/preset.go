// SPDX-License-Identifier: Apache-2.0

package fragment

import (
	"github.com/pillion-dev/pillion/templates/cel"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Most pods set no parameter, so most parts that depend only on parameters are the same for them.
// These are rendered once, when the template is loaded.

// RenderPresets sets the preset of a part and of its children. A part that has an error with the
// defaults gets none. The error is reported for each pod that keeps the defaults.
func (p *Node) RenderPresets(in *cel.Input) {
	for _, child := range p.parts {
		child.RenderPresets(in)
	}
	if p.kind == staticPart {
		return
	}
	p.pure = true
	note := func(program *cel.Expression) (free uint32) {
		if program == nil {
			return 0
		}
		only, given, free := program.ReadsOnlyParams()
		p.pure, p.params = p.pure && only, p.params|given
		return free
	}
	for _, child := range p.parts {
		p.pure, p.params = p.pure && (child.kind == staticPart || child.pure), p.params|child.params
		free := child.free | note(child.when)
		if child.loop != nil {
			free = free&^child.loop.Variables() | note(child.loop.List())
		}
		p.free |= free
	}
	for _, piece := range p.pieces {
		p.free |= note(piece.Expression)
	}
	if !p.pure || p.free != 0 || in.IsGiven(p.params) {
		return
	}
	in.ResetLoops()
	var n jsontree.Node
	if p.renderAs(in, &n) == nil {
		n.Seal()
		p.preset = &n
	}
}
