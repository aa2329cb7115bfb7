// SPDX-License-Identifier: Apache-2.0

package diagnostics

import (
	"fmt"
	"regexp"
)

// nameInMacro returns a hint about a name that is unknown because of its place: it is the second name of a macro with one name, or a
// key of a map without quotes.
func nameInMacro(source, name string) string {
	quoted := regexp.QuoteMeta(name)
	if regexp.MustCompile(`\.map\(\s*\w+\s*,\s*` + quoted + `\s*,`).MatchString(source) {
		return "; map() has one name; for keys and values, write transformList(k, v, ...)"
	}
	if regexp.MustCompile(`[{,]\s*` + quoted + `\s*:[^:]`).MatchString(source) {
		return fmt.Sprintf("; a key of a map needs quotes: write '%s'", name)
	}
	return ""
}
