// SPDX-License-Identifier: Apache-2.0

package cel

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/pillion-dev/pillion/templates/cel/values"
)

// patterns are the functions with a pattern, and its place in their arguments.
var patterns = map[string]int{
	overloads.Matches:  -1, // the last one
	"find":             0,
	"findAll":          0,
	"regex.extract":    1,
	"regex.extractAll": 1,
	"regex.replace":    1,
}

// checkPattern rejects a pattern that can take seconds. CEL charges for matches(), too, only
// afterwards, and by the length of the pattern, which is a poor estimate.
func checkPattern(function string, args []ast.Expr) error {
	at, ok := patterns[function]
	if !ok {
		return nil
	}
	pattern := args[(at+len(args))%len(args)]
	text, ok := pattern.AsLiteral().(types.String) // null if it is not a literal
	if !ok {
		return fmt.Errorf("%s() may take seconds if the pattern is computed; write the pattern as a string literal", function)
	}
	if n := values.PatternSteps(string(text)); n > values.MaxPatternSteps {
		return fmt.Errorf("the pattern of %s() takes %d steps, and at most %d are allowed; repeat less in it", function, n, values.MaxPatternSteps)
	}
	re, err := regexp.Compile(string(text))
	if err != nil {
		return fmt.Errorf("the pattern of %s(): %w", function, err)
	}
	if strings.HasPrefix(function, "regex.extract") && re.NumSubexp() > 1 {
		return fmt.Errorf("the pattern of %s() has %d groups, and at most one is allowed; write (?:...) for the others", function, re.NumSubexp())
	}
	return nil
}

// replacedSize returns the size of text.replace(old, new) and text.replace(old, new, times).
func replacedSize(args []ref.Val) int {
	text, old, by := values.TextOf(args[0]), values.TextOf(args[1]), values.TextOf(args[2])
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
			size += int(n) * len(values.TextOf(args[1]))
		}
	}
	return size
}

// formattedSize returns the size of text.format(list), which contains each item once.
func formattedSize(args []ref.Val) int { return sizeOf(args[0], sizeOf(args[1], 0)) }

// sizeOf adds the approximate length of a value as a string. It stops if that is too long for a
// leaf.
func sizeOf(v ref.Val, size int) int {
	switch v := v.(type) {
	case types.String:
		return size + len(v)
	case types.Bytes:
		return size + 4*len(v)
	case traits.Mapper:
		for it := v.Iterator(); size <= values.MaxOutput && it.HasNext() == types.True; {
			key := it.Next()
			size = sizeOf(v.Get(key), sizeOf(key, size)) + 4
		}
		return size
	case traits.Lister:
		for it := v.Iterator(); size <= values.MaxOutput && it.HasNext() == types.True; {
			size = sizeOf(it.Next(), size) + 2
		}
		return size
	case *types.Optional:
		if v.HasValue() {
			return sizeOf(v.GetValue(), size+32)
		}
	}
	return size + 32
}
