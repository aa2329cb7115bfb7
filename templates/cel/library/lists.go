// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// ListFunctions returns the options that declare the functions of the API server's library of lists, see
// https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-list-library. They are a part of [Functions].
func ListFunctions() []cel.EnvOption {
	item := cel.TypeParamType("A")
	options := []cel.EnvOption{
		declareMethod("indexOf", "list_a_index_of_int", takesTypes(cel.ListType(item), item), cel.IntType, indexOf),
		declareMethod("lastIndexOf", "list_a_last_index_of_int", takesTypes(cel.ListType(item), item), cel.IntType, lastIndexOf),
	}
	for _, zero := range []ref.Val{types.Int(0), types.Uint(0), types.Double(0), types.Duration{}} {
		of := zero.Type().(*cel.Type)
		options = append(options, declareMethod("sum", listOverload(of, "sum", of), takesTypes(cel.ListType(of)), of, sumFunc(zero)))
	}
	for _, of := range []*cel.Type{cel.IntType, cel.UintType, cel.DoubleType, cel.BoolType, cel.DurationType, cel.TimestampType, cel.StringType, cel.BytesType} {
		list := takesTypes(cel.ListType(of))
		options = append(options,
			declareMethod("isSorted", listOverload(of, "is_sorted", cel.BoolType), list, cel.BoolType, isSorted),
			declareMethod("min", listOverload(of, "min", of), list, of, extremeFunc("min", types.IntOne)),
			declareMethod("max", listOverload(of, "max", of), list, of, extremeFunc("max", types.IntNegOne)))
	}
	return options
}

// listOverload returns the API server's name of the function of lists of a type, with the type of its result.
func listOverload(of *cel.Type, function string, result *cel.Type) string {
	return fmt.Sprintf("list_%s_%s_%s", shortTypeName(of), function, shortTypeName(result))
}

func shortTypeName(t *cel.Type) string {
	switch t {
	case cel.DurationType:
		return "duration"
	case cel.TimestampType:
		return "timestamp"
	}
	return t.TypeName()
}

// sumFunc is list.sum(), given the sum of an empty list.
func sumFunc(zero ref.Val) implementation {
	return func(args ...ref.Val) ref.Val {
		sum := zero
		for it := args[0].(traits.Lister).Iterator(); it.HasNext() == types.True; {
			if sum = sum.(traits.Adder).Add(it.Next()); types.IsUnknownOrError(sum) {
				return sum
			}
		}
		return sum
	}
}

// extremeFunc implements list.min() or list.max(). The result is the first item, replaced by each later item with which a comparison
// of the result gives worse.
func extremeFunc(name string, worse types.Int) implementation {
	return func(args ...ref.Val) ref.Val {
		var found ref.Val
		for it := args[0].(traits.Lister).Iterator(); it.HasNext() == types.True; {
			item := it.Next()
			switch order := compareItems(found, item); {
			case types.IsUnknownOrError(order):
				return order
			case found == nil || order == worse:
				found = item
			}
		}
		if found == nil {
			return types.NewErr("%s called on empty list", name)
		}
		return found
	}
}

// isSorted is list.isSorted().
func isSorted(args ...ref.Val) ref.Val {
	var before ref.Val
	for it := args[0].(traits.Lister).Iterator(); it.HasNext() == types.True; {
		item := it.Next()
		switch order := compareItems(before, item); {
		case types.IsUnknownOrError(order):
			return order
		case order == types.IntOne:
			return types.False
		}
		before = item
	}
	return types.True
}

// compareItems compares an item of a list with the next one. The first one of a list has none before it, and counts as equal to
// itself. The result is an error if an item is one.
func compareItems(before, item ref.Val) ref.Val {
	if before == nil {
		before = item
	}
	if comparer, ok := before.(traits.Comparer); ok {
		return comparer.Compare(item)
	}
	return types.MaybeNoSuchOverloadErr(before)
}

// indexOf is list.indexOf(item).
func indexOf(args ...ref.Val) ref.Val {
	list := args[0].(traits.Lister)
	n, _ := list.Size().(types.Int)
	for i := range n {
		if types.Equal(list.Get(i), args[1]) == types.True {
			return i
		}
	}
	return types.IntNegOne
}

// lastIndexOf is list.lastIndexOf(item).
func lastIndexOf(args ...ref.Val) ref.Val {
	list := args[0].(traits.Lister)
	n, _ := list.Size().(types.Int)
	for i := n - 1; i >= 0; i-- {
		if types.Equal(list.Get(i), args[1]) == types.True {
			return i
		}
	}
	return types.IntNegOne
}
