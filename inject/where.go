// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Where is a JSON Pointer as people write places: spec.containers[0].env; of a new
// item the list.
func Where(pointer string) string {
	var b strings.Builder
	for _, name := range strings.Split(strings.TrimSuffix(pointer, "/-"), "/")[1:] {
		name = unescape(name)
		_, err := strconv.ParseUint(name, 10, 64)
		switch {
		case err == nil:
			b.WriteString("[" + name + "]")
		case strings.ContainsAny(name, "./[]\" "):
			fmt.Fprintf(&b, "[%q]", name)
		case b.Len() > 0:
			b.WriteString("." + name)
		default:
			b.WriteString(name)
		}
	}
	return b.String()
}

// Named says whether a sentence names the annotation or label that a JSON Pointer
// leads to, so that people need not be told the place too.
func Named(pointer, sentence string) bool {
	place, key := path.Split(pointer)
	return (place == "/metadata/annotations/" || place == "/metadata/labels/") && strings.Contains(sentence, unescape(key))
}
