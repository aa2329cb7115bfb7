// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// bounded makes CEL's functions that multiply strings return an error instead of a string that is
// too long for a leaf. CEL charges for a call only afterwards. That may be a gigabyte too late, for
// example if each letter of 16 KiB is replaced by 16 KiB.
func bounded(env *cel.Env) ([]cel.EnvOption, error) {
	var options []cel.EnvOption
	for name, size := range map[string]func(args []ref.Val) int{"replace": replacedSize, "join": joinedSize, "format": formattedSize} {
		f := env.Functions()[name]
		bindings, err := f.Bindings()
		if err != nil {
			return nil, err
		}
		made := map[string]*functions.Overload{}
		for _, b := range bindings {
			made[b.Operator] = b
		}
		var overloads []cel.FunctionOpt
		for _, o := range f.OverloadDecls() {
			call := callOf(made[o.ID()])
			overloads = append(overloads, cel.MemberOverload(o.ID(), o.ArgTypes(), o.ResultType(), cel.FunctionBinding(func(args ...ref.Val) ref.Val {
				if size(args) > maxOutput {
					return types.NewErr("%s() makes a string of more than %d bytes", name, maxOutput)
				}
				return call(args...)
			})))
		}
		options = append(options, cel.Function(name, overloads...))
	}
	return options, nil
}

// maxSteps is the maximum size of a pattern, both as a string and compiled. Each letter that it is
// matched against may take as many steps. maxWork is the maximum number of steps for a parameter's
// value.
const (
	maxSteps = 1_000
	maxWork  = 1 << 20
)

// checkPattern rejects a pattern of matches() that can take seconds. CEL charges for this call,
// too, only afterwards, and by the length of the pattern, which is a poor estimate.
func checkPattern(pattern ast.Expr) error {
	text, ok := pattern.AsLiteral().(types.String) // null if it is not a literal
	if !ok {
		return errors.New("matches() may take seconds if the pattern is computed; write the pattern as a string literal")
	}
	if n := steps(string(text)); n > maxSteps {
		return fmt.Errorf("the pattern of matches() takes %d steps, and at most %d are allowed; repeat less in it", n, maxSteps)
	}
	return nil
}

// steps returns the number of steps that a pattern takes for each letter. It does not compile a
// long pattern, and estimates the number. It returns 0 for an invalid pattern, which other code
// reports.
func steps(pattern string) int {
	if len(pattern) > maxSteps { // compiled, it may be a thousand times as large
		return len(pattern)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	prog, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0
	}
	return len(prog.Inst)
}

// callOf returns a function that calls the implementation of an overload, with any number of
// arguments.
func callOf(o *functions.Overload) functions.FunctionOp {
	switch {
	case o.Unary != nil:
		return func(args ...ref.Val) ref.Val { return o.Unary(args[0]) }
	case o.Binary != nil:
		return func(args ...ref.Val) ref.Val { return o.Binary(args[0], args[1]) }
	}
	return o.Function
}

// replacedSize returns the size of text.replace(old, new) and text.replace(old, new, times).
func replacedSize(args []ref.Val) int {
	text, old, by := textOf(args[0]), textOf(args[1]), textOf(args[2])
	times := strings.Count(text, old)
	if len(args) > 3 {
		if most, ok := args[3].(types.Int); ok && most >= 0 {
			times = int(min(int64(times), int64(most)))
		}
	}
	return len(text) + times*(len(by)-len(old))
}

// joinedSize returns the size of list.join() and list.join(separator).
func joinedSize(args []ref.Val) int {
	size := sizeOf(args[0], 0)
	if list, ok := args[0].(traits.Lister); ok && len(args) > 1 {
		if n, ok := list.Size().(types.Int); ok {
			size += int(n) * len(textOf(args[1]))
		}
	}
	return size
}

// formattedSize returns the size of text.format(list), which contains each item once.
func formattedSize(args []ref.Val) int { return sizeOf(args[0], sizeOf(args[1], 0)) }

func textOf(v ref.Val) string {
	text, _ := v.(types.String)
	return string(text)
}

// sizeOf adds the approximate length of a value as a string. It stops if that is too long for a
// leaf.
func sizeOf(v ref.Val, size int) int {
	switch v := v.(type) {
	case types.String:
		return size + len(v)
	case types.Bytes:
		return size + 4*len(v)
	case traits.Mapper:
		for it := v.Iterator(); size <= maxOutput && it.HasNext() == types.True; {
			key := it.Next()
			size = sizeOf(v.Get(key), sizeOf(key, size)) + 4
		}
		return size
	case traits.Lister:
		for it := v.Iterator(); size <= maxOutput && it.HasNext() == types.True; {
			size = sizeOf(it.Next(), size) + 2
		}
		return size
	}
	return size + 32
}
