// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"regexp"
	"strings"
)

// orThis returns a hint about the argument of orValue, given the type of the value and what follows it.
func orThis(function, of string) string {
	name := of[:strings.IndexAny(of+"(", "()")]
	if write := orZeroValueNamed(name); function == "orValue" && write != "" {
		return "; write " + strings.TrimPrefix(write, ".")
	}
	return ""
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
