// SPDX-License-Identifier: Apache-2.0

package reviews

import "strconv"

// Lost returns the path of the first value of before that after lacks at this place: a key's value,
// or a list's items in order. Null and [] may get content.
func Lost(before, after any, at string) string {
	switch b := before.(type) {
	case nil:
		return ""
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok {
			return at
		}
		for k, v := range b {
			there, ok := a[k]
			if !ok && v != nil {
				return at + "/" + k
			}
			if l := Lost(v, there, at+"/"+k); l != "" {
				return l
			}
		}
		return ""
	case []any:
		a, ok := after.([]any)
		if !ok {
			return at
		}
		next := 0
		for i, v := range b {
			for next < len(a) && Lost(v, a[next], "x") != "" {
				next++
			}
			if next == len(a) {
				return at + "/" + strconv.Itoa(i)
			}
			next++
		}
		return ""
	}
	if before != after {
		return at
	}
	return ""
}
