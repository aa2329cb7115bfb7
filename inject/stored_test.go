// SPDX-License-Identifier: Apache-2.0

package inject_test

import "fmt"

// dropsZero reports whether storing a pod drops an empty string, false or 0, or what the API does not
// know in a container or volume. Only files have such pods: the engine keeps these values, and the
// stored pod lacks them.
func dropsZero(pod, stored any) bool {
	switch p := pod.(type) {
	case map[string]any:
		s, _ := stored.(map[string]any)
		for key, value := range p {
			there, ok := s[key]
			if !ok && isZeroJSON(value) || dropsZero(value, there) || compared[key] && dropsMember(value, there) {
				return true
			}
		}
	case []any:
		s, _ := stored.([]any)
		for i := range min(len(p), len(s)) {
			if dropsZero(p[i], s[i]) {
				return true
			}
		}
	}
	return false
}

// compared are the lists with items that must be as in the template: an unknown source of a volume,
// and an unknown field of a container that the template protects, differ from it.
var compared = map[string]bool{"volumes": true, "containers": true, "initContainers": true}

// dropsMember reports whether storing a list drops a member of an item.
func dropsMember(list, stored any) bool {
	p, _ := list.([]any)
	s, _ := stored.([]any)
	for i := range min(len(p), len(s)) {
		came, _ := p[i].(map[string]any)
		kept, _ := s[i].(map[string]any)
		for name := range came {
			if _, ok := kept[name]; !ok {
				return true
			}
		}
	}
	return false
}

func isZeroJSON(value any) bool {
	return value == "" || value == false || fmt.Sprint(value) == "0"
}
