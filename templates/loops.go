// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"fmt"

	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// forEachKey in an object that is a list item makes one item for each value of a list.
const forEachKey = "${forEach}"

// These limit the items that loops make: of one loop in one list, of all loops of a template for
// one pod, and the bytes of their strings.
const (
	maxLoop       = 100
	maxLoops      = 1_000
	maxLoopOutput = 1 << 20
)

// evalList returns the values of the loop for one pod.
func (l *loop) evalList(in *Input) (traits.Lister, int, error) {
	out, err := l.list.evalCEL(in)
	if err != nil {
		return nil, 0, err
	}
	list, ok := out.(traits.Lister)
	if !ok {
		return nil, 0, fmt.Errorf("%q gives no list", l.list.source)
	}
	n := countItems(list)
	if n > maxLoop {
		return nil, 0, fmt.Errorf("%q has %d values, and at most %d are allowed", l.list.source, n, maxLoop)
	}
	if in.looped += n; in.looped > maxLoops {
		return nil, 0, fmt.Errorf("the template makes more than %d items by %s for this pod", maxLoops, forEachKey)
	}
	return list, n, nil
}

var errLoopOutput = fmt.Errorf("the items of %s have more than %d bytes", forEachKey, maxLoopOutput)

// chargeOutput counts the bytes of a string in a loop.
func (in *Input) chargeOutput(n *jsontree.Node) error {
	if len(in.loops) == 0 {
		return nil
	}
	if in.output += n.Size(); in.output > maxLoopOutput {
		return errLoopOutput
	}
	return nil
}
