// SPDX-License-Identifier: Apache-2.0

package exposure

import (
	"slices"
)

// combineItems returns the alternatives of a list, given those of its items. The first one has the first alternative of each item. Each
// further one has another alternative of one item. If alone is true, it has only this item, because checks inspect each item by itself.
func combineItems(items [][]alternative, path string, alone bool) []alternative {
	build := func(of, chosen int) []any {
		list := []any{}
		for i, all := range items {
			use := 0
			if i == of {
				use = chosen
			} else if of >= 0 && alone {
				continue
			}
			if use >= len(all) || all[use].absent {
				continue
			}
			if several, ok := all[use].value.([]any); ok { // of an expression that gives a list; no field has lists of lists
				list = append(list, several...)
			} else {
				list = append(list, all[use].value)
			}
		}
		return list
	}
	all := []alternative{{value: build(-1, 0), path: path}}
	for i := range items {
		for j := 1; j < len(items[i]); j++ {
			a := items[i][j]
			a.value, a.absent = build(i, j), false
			all = append(all, a)
		}
	}
	return all
}

// addToPod adds a partial Pod to a pod.
func addToPod(pod map[string]any, value any) {
	more, _ := value.(map[string]any)
	spec, _ := more["spec"].(map[string]any)
	to, _ := pod["spec"].(map[string]any)
	if to == nil {
		return
	}
	for _, list := range []string{"initContainers", "containers", "volumes"} {
		added, _ := spec[list].([]any)
		had, _ := to[list].([]any)
		if len(added) > 0 {
			to[list] = append(slices.Clone(had), added...)
		}
	}
	metadata, _ := more["metadata"].(map[string]any)
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		mergeMissing(memberOf(memberOf(pod, "metadata"), "annotations"), annotations)
	}
}

// addToContainers adds a partial Container to the containers of a pod, where they lack its fields.
func addToContainers(pod map[string]any, value any, initContainers bool) {
	more, _ := value.(map[string]any)
	spec, _ := pod["spec"].(map[string]any)
	for _, list := range []string{"containers", "initContainers"} {
		if list == "initContainers" && !initContainers {
			continue
		}
		containers, _ := spec[list].([]any)
		for _, c := range containers {
			if c, ok := c.(map[string]any); ok {
				mergeMissing(c, cloneJSON(more).(map[string]any))
			}
		}
	}
}

// mergeMissing adds what an object lacks, as the engine does (inject/schema): lists become longer, and the fields of a container's
// securityContext and lifecycle are added one by one. Anything else is added as a whole.
func mergeMissing(to, from map[string]any) {
	for name, value := range from {
		had, there := to[name]
		switch value := value.(type) {
		case map[string]any:
			if had, ok := had.(map[string]any); ok && (name == "securityContext" || name == "lifecycle") {
				mergeMissing(had, value)
				continue
			}
		case []any:
			if had, ok := had.([]any); ok {
				to[name] = append(slices.Clone(had), value...)
				continue
			}
		}
		if !there {
			to[name] = value
		}
	}
}

// memberOf returns an object in an object, which it adds if there is none.
func memberOf(of map[string]any, name string) map[string]any {
	member, ok := of[name].(map[string]any)
	if !ok {
		member = map[string]any{}
		of[name] = member
	}
	return member
}

func cloneJSON(value any) any {
	switch value := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(value))
		for name, member := range value {
			made[name] = cloneJSON(member)
		}
		return made
	case []any:
		made := make([]any, len(value))
		for i := range value {
			made[i] = cloneJSON(value[i])
		}
		return made
	}
	return value
}

// unionOfNames returns the names of both lists, sorted.
func unionOfNames(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
