// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
)

// Loop is a compiled ${forEach}.
type Loop struct {
	name  string // of its variable
	list  *Expression
	depth int // number of loops around it
}

// List returns the expression of the loop's list.
func (l *Loop) List() *Expression { return l.list }

// Depth returns the number of loops around the loop.
func (l *Loop) Depth() int { return l.depth }

// Each calls visit for each value of the loop, while the loop's variable has it. Before that, it calls begin with the number of
// values. An error is a [FaultError] of the list, which is at path, or that of visit, whose fault then also reads what the list reads.
func (l *Loop) Each(in *Input, path string, begin func(n int), visit func() error) error {
	list, n, err := l.evalList(in)
	if err != nil {
		return l.list.Fault(path, err)
	}
	begin(n)
	before := len(in.loops)
	defer func() { in.loops = in.loops[:before] }()
	for len(in.loops) < l.depth { // a preset is rendered without the loops around it
		in.loops = append(in.loops, loopValue{})
	}
	for i := range n {
		value := list.Get(types.Int(i))
		if types.IsError(value) {
			return l.list.Fault(path, fmt.Errorf("%v", value))
		}
		in.loops = append(in.loops[:l.depth], loopValue{l.name, value})
		if err := visit(); err != nil {
			if f, ok := errors.AsType[*FaultError](err); ok { // the value comes from the loop
				f.read = append(slices.Clip(f.read), l.list.params...)
			}
			return err
		}
	}
	return nil
}

// evalList returns the values of the loop for one pod.
func (l *Loop) evalList(in *Input) (traits.Lister, int, error) {
	out, err := l.list.evalValue(in)
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
		return nil, 0, fmt.Errorf("the template makes more than %d items by %s for this pod", maxLoops, ForEachKey)
	}
	return list, n, nil
}
