// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"regexp"
	"strings"
)

// orThis returns a hint about the argument of orValue, given the type of the value and what follows it.
func orThis(function, of string) string {
	name := of[:strings.IndexAny(of+"(", "()")]
	switch write := orZeroValueNamed(name); {
	case function == "orValue" && write != "":
		return "; write " + strings.TrimPrefix(write, ".")
	case function == "or":
		return "; or(...) takes another value that may be missing, so write orValue(...) here"
	}
	return ""
}

// ofCondition returns a hint about a value in place of a condition, given CEL's names of the needed type and of the value's.
func ofCondition(source, needed, found string) string {
	of, isOptional := strings.CutPrefix(found, "optional_type(")
	switch of = strings.TrimSuffix(of, ")"); {
	case needed != "bool":
		return ""
	case isOptional && of == "bool":
		return "; write .orValue(false) after it"
	case isOptional && strings.Contains(source, "||"):
		return "; for another value if it is missing, write .orValue(...) instead of ||"
	case isOptional:
		return "; to see whether it has a value, write .hasValue() after it"
	case found == "string" && strings.Contains(source, "&&"):
		return "; to compare it, write == '...', and for a value that is there if a condition is true, when(condition, value)"
	case found == "string" && strings.Contains(source, "||"):
		return "; to compare it, write == '...', and for a choice, condition ? a : b"
	}
	return ""
}

// ofRange returns a hint about a macro on a value that is no list and no map, given CEL's name of its type.
func ofRange(found string) string {
	of, isOptional := strings.CutPrefix(found, "optional_type(")
	switch {
	case !isOptional:
		return ""
	case strings.HasPrefix(of, "list("):
		return "; write .orValue([]) before the macro"
	case strings.HasPrefix(of, "map("):
		return "; write .orValue({}) before the macro"
	case strings.HasPrefix(of, "dyn"):
		return "; if it is a list, write .orValue([]) before the macro, otherwise .optMap(x, ...)"
	}
	return "; for a value that may be missing, write .optMap(x, ...)"
}

// readBefore matches the field or the key that is read before orValue.
var readBefore = regexp.MustCompile(`(?:\.([A-Za-z_]\w*)|\[('[^']*'|"[^"]*"|\w+)\])\.orValue\(`)

// withOptional returns a hint: the expression before orValue with .? or [?...], given CEL's name of its type.
func withOptional(source, of string) string {
	name := of[:strings.IndexAny(of+"(", "()")]
	at := readBefore.FindStringSubmatch(source)
	switch {
	case at == nil || orZeroValueNamed(name) == "":
		return ""
	case at[1] != "":
		return ", so write .?" + at[1] + orZeroValueNamed(name)
	}
	return ", so write [?" + at[2] + "]" + orZeroValueNamed(name)
}
