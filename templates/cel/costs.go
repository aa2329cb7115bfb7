// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"math/bits"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/pillion-dev/pillion/templates/cel/library"
	"github.com/pillion-dev/pillion/templates/cel/values"
)

// costs returns the cost of a call of each function whose cost is not just the weight of its arguments.
var costs = map[string]func(args []ref.Val) int{
	"@sortByAssociatedKeys": func(args []ref.Val) int { return addReadCost(args[0], sortCost(args[1])) },
	"distinct":              func(args []ref.Val) int { return cappedProduct(addReadCost(args[0], 0), countItems(args[0])) },
	"find":                  matchCost,
	"findAll":               matchCost,
	"indexOf":               searchCost,
	"lastIndexOf":           searchCost,
	"lists.range":           func(args []ref.Val) int { n, _ := args[0].(types.Int); return int(min(max(n, 0), MaxCost+1)) },
	library.Merge:           func(args []ref.Val) int { return addKeysCost(args[1], addKeysCost(args[0], 0)) },
	library.MapInsert:       insertCost,
	"regex.extract":         matchCost,
	"regex.extractAll":      matchCost,
	"regex.replace":         matchCost,
	"sets.contains":         pairwiseCost,
	"sets.equivalent":       func(args []ref.Val) int { return 2 * pairwiseCost(args) },
	"sets.intersects":       pairwiseCost,
	"sort":                  func(args []ref.Val) int { return sortCost(args[0]) },
}

// sizes returns the size of the result of a call of each function that multiplies strings.
var sizes = map[string]func(args []ref.Val) int{
	"format":        formattedSize,
	"join":          joinedSize,
	"regex.replace": replacedByPattern,
	"replace":       replacedSize,
}

// perUnit is the number of bytes, or of steps of a pattern, that cost one unit. Each item of a list
// costs one.
const perUnit = 10

// perIteration is what an item costs in addition in all() and exists(), and in macros that make a map: once for each call that only they
// have. CEL's own accounting searches all that it has kept of the items before, so the time grows with the square of their number.
const perIteration = 8

func isBounded(function string) bool { return costs[function] != nil || sizes[function] != nil }

// costOf returns the cost of a call. If it is above MaxCost, it may be inexact.
func costOf(function string, args []ref.Val) int {
	if cost := costs[function]; cost != nil {
		return 1 + cost(args)
	}
	sum := 1
	for _, arg := range args {
		sum = addReadCost(arg, sum)
	}
	return sum
}

// stopCostlyCall ends an evaluation before a call that costs too much. It returns an error, which an
// expression may handle, if the result would be too long for a leaf.
func stopCostlyCall(function string, args []ref.Val) ref.Val {
	if size := sizes[function]; size != nil && size(args) > values.MaxOutput {
		return types.NewErr("%s() makes a string of more than %d bytes", function, values.MaxOutput)
	}
	if cost := costOf(function, args); cost > MaxCost {
		panic(tooMuch(function))
	}
	return nil
}

func tooMuch(function string) error {
	name, isOperator := operators.FindReverse(function)
	if !isOperator {
		name = function + "()"
	}
	return interpreter.EvalCancelledError{
		Cause:   interpreter.CostLimitExceeded,
		Message: fmt.Sprintf("%s would cost more than %d, the limit of an expression; reduce its arguments", name, MaxCost),
	}
}

// charges reports for which overloads a call costs what [costOf] returns.
type charges map[string]bool

// CallCost implements interpreter.ActualCostEstimator. It returns nil for the functions for which
// CEL has a good estimate.
func (c charges) CallCost(function, overload string, args []ref.Val, result ref.Val) *uint64 {
	cost := 0
	switch {
	case c[overload]:
		cost = costOf(function, args)
	case overload == overloads.NotStrictlyFalse:
		cost = 1 + perIteration
	case overload == overloads.AddList: // it takes no time, but what reads the list does
		if _, ok := args[0].(traits.MutableLister); ok {
			return nil // one item of map() or filter()
		}
		cost = 1 + countItems(result)
	case (overload == overloads.Equals || overload == overloads.NotEquals || overload == overloads.InList) && isNested(args[1]):
		cost = comparisonCost(function, args)
	case readers[overload]:
		cost = 1 + countItems(args[0]) + len(values.TextOf(args[0]))/perUnit
	default:
		return nil
	}
	n := uint64(cost) //nolint:gosec // it is not negative
	return &n
}

// comparisonCost returns the cost of comparing lists, or a value with the items of a list.
func comparisonCost(function string, args []ref.Val) int {
	if function == operators.In {
		return addReadCost(args[1], 1)
	}
	return min(addReadCost(args[0], 1), addReadCost(args[1], 1))
}

// readers are the overloads that read the whole of a string, or each item of a list or a map. CEL
// charges one unit for them.
var readers = map[string]bool{
	"optional_unwrap":           true,
	"optional_unwrapOpt":        true,
	overloads.SizeMap:           true,
	overloads.SizeMapInst:       true,
	overloads.SizeString:        true,
	overloads.SizeStringInst:    true,
	overloads.StringToBool:      true,
	overloads.StringToDouble:    true,
	overloads.StringToDuration:  true,
	overloads.StringToInt:       true,
	overloads.StringToString:    true,
	overloads.StringToTimestamp: true,
	overloads.StringToUint:      true,
}

// weighed is a value that is not a part of CEL, with the number of bytes that reading it costs.
type weighed interface{ Weight() int }

func isNested(v ref.Val) bool {
	switch v := v.(type) {
	case traits.Lister, traits.Mapper, weighed:
		return true
	case *types.Optional:
		return v.HasValue()
	}
	return false
}

// limitOptions returns the options of a program that limit its cost.
func (c charges) limitOptions(checked *ast.AST) []cel.ProgramOption {
	return append(append(comparisonOptions(checked), orderedMaps(checked)...), cel.CostTracking(c), cel.CostLimit(MaxCost))
}

// comparisonOptions returns an option for the comparisons of values that may contain the same value many
// times. It stops a comparison that costs too much before it begins.
func comparisonOptions(checked *ast.AST) []cel.ProgramOption {
	deep := map[int64]bool{}
	for _, e := range ast.MatchDescendants(ast.NavigateAST(checked), ast.KindMatcher(ast.CallKind)) {
		switch call := e.AsCall(); call.FunctionName() {
		case operators.Equals, operators.NotEquals, operators.In:
			if mayRepeat(checked.GetType(call.Args()[1].ID())) {
				deep[e.ID()] = true
			}
		}
	}
	if len(deep) == 0 {
		return nil
	}
	return []cel.ProgramOption{cel.CustomDecoratorV2(func(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
		call, ok := i.(interpreter.InterpretableCall)
		if !ok || !deep[i.ID()] {
			return i, nil
		}
		function := call.Function()
		return interpreter.NewCall(i.ID(), function, call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
			if comparisonCost(function, args) > MaxCost {
				panic(tooMuch(function))
			}
			switch function {
			case operators.Equals:
				return types.Equal(args[0], args[1])
			case operators.NotEquals:
				return types.Bool(types.Equal(args[0], args[1]) != types.True)
			}
			return args[1].(traits.Container).Contains(args[0])
		}), nil
	})}
}

// mayRepeat reports whether a value of the type may contain a list, an object or an optional value
// many times. Its size is then the square of the cost of making it, or more.
func mayRepeat(t *types.Type) bool {
	switch t.Kind() {
	case types.DynKind:
		return true
	case types.ListKind, types.MapKind:
		return slices.ContainsFunc(t.Parameters(), func(of *types.Type) bool { return !isScalarKind(of) })
	}
	return slices.ContainsFunc(t.Parameters(), mayRepeat)
}

func isScalarKind(t *types.Type) bool {
	switch t.Kind() {
	case types.BoolKind, types.BytesKind, types.DoubleKind, types.DurationKind, types.IntKind, types.StringKind, types.TimestampKind, types.UintKind:
		return true
	}
	return false
}

// addReadCost adds the cost of reading a value. It stops above MaxCost.
func addReadCost(v ref.Val, sum int) int {
	switch v := v.(type) {
	case types.String:
		return sum + 1 + len(v)/perUnit
	case types.Bytes:
		return sum + 1 + len(v)/perUnit
	case weighed:
		return sum + 1 + v.Weight()/perUnit
	case traits.Mapper:
		return addMapCost(v, sum)
	case traits.Lister:
		for it := v.Iterator(); sum <= MaxCost && it.HasNext() == types.True; {
			sum = addReadCost(it.Next(), sum)
		}
	case *types.Optional:
		if v.HasValue() {
			return addReadCost(v.GetValue(), sum+1)
		}
	}
	return sum + 1
}

// addMapCost is addReadCost for a map.
func addMapCost(m traits.Mapper, sum int) int {
	for key, value := range values.Entries(m) {
		if sum = addReadCost(value, addReadCost(key, sum)); sum > MaxCost {
			break
		}
	}
	return sum + 1
}

// addKeysCost adds the cost of reading the keys of a map, and nothing else of it. It stops above MaxCost.
func addKeysCost(v ref.Val, sum int) int {
	m, ok := v.(traits.Mapper)
	if !ok {
		return sum
	}
	for it := m.Iterator(); sum <= MaxCost && it.HasNext() == types.True; {
		sum = addReadCost(it.Next(), sum)
	}
	return sum
}

// insertCost returns the cost of [library.MapInsert], which is called once for each item. It changes the map that a macro makes, and reads only the new keys.
func insertCost(args []ref.Val) int {
	if len(args) == 2 {
		return addKeysCost(args[1], perIteration)
	}
	return addReadCost(args[1], perIteration)
}

// searchCost returns the cost of finding a string in another one, or an item in a list.
func searchCost(args []ref.Val) int {
	if _, ok := args[0].(traits.Lister); ok {
		return addReadCost(args[0], 0)
	}
	return cappedProduct(len(values.TextOf(args[0])), 1+len(values.TextOf(args[1]))) / perUnit
}

// countItems returns the number of items of a list or a map.
func countItems(v ref.Val) int {
	switch v := v.(type) {
	case traits.Lister:
		return lengthOf(v)
	case traits.Mapper:
		return lengthOf(v)
	}
	return 0
}

func lengthOf(v traits.Sizer) int {
	n, _ := v.Size().(types.Int)
	return int(min(n, MaxCost+1))
}

// cappedProduct multiplies without overflow.
func cappedProduct(a, b int) int {
	high, low := bits.Mul64(uint64(a), uint64(b)) //nolint:gosec // they are not negative
	if high > 0 || low > 1<<60 {
		return 1 << 60
	}
	return int(low)
}

// sortCost returns the cost of sorting a list.
func sortCost(v ref.Val) int { return cappedProduct(addReadCost(v, 0), bits.Len(uint(countItems(v)))) } //nolint:gosec // it is not negative

// pairwiseCost returns the cost of comparing the items of a list with those of another one.
func pairwiseCost(args []ref.Val) int {
	return max(cappedProduct(addReadCost(args[0], 0), countItems(args[1])), cappedProduct(addReadCost(args[1], 0), countItems(args[0])))
}

// matchCost returns the cost of compiling a pattern and of matching it.
func matchCost(args []ref.Val) int {
	n := values.PatternSteps(values.TextOf(args[1]))
	return n + cappedProduct(1+len(values.TextOf(args[0])), n)/perUnit
}

// replacedByPattern returns the size of regex.replace(text, pattern, new) at most.
func replacedByPattern(args []ref.Val) int {
	text, by := values.TextOf(args[0]), values.TextOf(args[2])
	if re, err := regexp.Compile(values.TextOf(args[1])); err == nil && matchCost(args) <= MaxCost {
		groups := strings.Count(by, `\`) // each of which is at most the whole text, over all matches
		return len(text) + cappedProduct(len(re.FindAllStringIndex(text, -1)), len(by)) + cappedProduct(groups, len(text))
	}
	return 0
}
