// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// Loop is a compiled ${forEach}.
type Loop struct {
	names []string // of its variables: the value's, or the key's and the value's
	list  *Expression
	depth int // number of variables of the loops around it
}

// List returns the expression of the loop's list or map.
func (l *Loop) List() *Expression { return l.list }

// IsValue reports whether a variable of the loop has the value, not the key.
func (l *Loop) IsValue(variable string) bool { return l.names[len(l.names)-1] == variable }

// Variables returns the loop's variables, as in [Expression.ReadsOnlyParams].
func (l *Loop) Variables() uint32 { return (1<<len(l.names) - 1) << l.depth }

// Each calls visit for each value of the loop, while the loop's variables have it and its key. Before that, it calls begin with the
// number of values. The keys of a map are in order; the key of an item of a list is its index. An error is a [FaultError] of the list,
// which is at path, or that of visit, whose fault then also reads what the list reads.
func (l *Loop) Each(in *Input, path string, begin func(n int), visit func() error) error {
	pairs, n, err := l.evalPairs(in)
	if err != nil {
		return l.list.Fault(path, err)
	}
	begin(n)
	before := len(in.loops)
	defer func() { in.loops = in.loops[:before] }()
	for len(in.loops) < l.depth { // a preset is rendered without the loops around it
		in.loops = append(in.loops, loopValue{})
	}
	for key, value := range pairs {
		if types.IsError(value) {
			return l.list.Fault(path, fmt.Errorf("%v", value))
		}
		in.loops = in.loops[:l.depth]
		if len(l.names) > 1 {
			in.loops = append(in.loops, loopValue{l.names[0], key})
		}
		in.loops = append(in.loops, loopValue{l.names[len(l.names)-1], value})
		if err := visit(); err != nil {
			if f, ok := errors.AsType[*FaultError](err); ok { // the value comes from the loop
				f.read = append(slices.Clip(f.read), l.list.params...)
			}
			return err
		}
	}
	return nil
}

// Bindings yields the values of the loop's variables by name, for each item of a list or a map that its expression gives. It yields
// nothing for another value.
func (l *Loop) Bindings(of ref.Val) iter.Seq[map[string]ref.Val] {
	var pairs iter.Seq2[ref.Val, ref.Val]
	switch of := of.(type) {
	case traits.Lister:
		pairs = values.Indexed(of)
	case traits.Mapper:
		pairs = values.Entries(of)
	default:
		return func(func(map[string]ref.Val) bool) {}
	}
	return func(yield func(map[string]ref.Val) bool) {
		for key, value := range pairs {
			if !yield(map[string]ref.Val{l.names[0]: key, l.names[len(l.names)-1]: value}) { // one variable has the value
				return
			}
		}
	}
}

// evalPairs returns the keys and the values of the loop for one pod, and their number.
func (l *Loop) evalPairs(in *Input) (iter.Seq2[ref.Val, ref.Val], int, error) {
	out, err := l.list.evalValue(in)
	if err != nil {
		return nil, 0, err
	}
	list, isList := out.(traits.Lister)
	entries, isMap := out.(traits.Mapper)
	switch l.list.out.Kind() {
	case types.ListKind:
		if !isList {
			return nil, 0, fmt.Errorf("%q gives no list", l.list.source)
		}
	default:
		if !isMap {
			return nil, 0, fmt.Errorf("%q gives no map", l.list.source)
		}
	}
	n := countItems(out)
	if n > maxLoop {
		return nil, 0, fmt.Errorf("%q has %d values, and at most %d are allowed", l.list.source, n, maxLoop)
	}
	if in.looped += n; in.looped > maxLoops {
		return nil, 0, fmt.Errorf("the template makes more than %d items by %s for this pod", maxLoops, ForEachKey)
	}
	if isMap {
		return values.Entries(entries), n, nil
	}
	return values.Indexed(list), n, nil
}
