// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Users decide how long the lists and objects of a pod are, up to the 1 MiB of an object. So the work for a plan may
// only grow with the size of the pod.

// members finds the members of an object by their names.
type members struct {
	object *jsontree.Node
	at     map[string]*jsontree.Node // nil if the object is small
}

func membersOf(object *jsontree.Node) members {
	m := members{object: object}
	all := object.Members()
	if len(all) <= 16 {
		return m
	}
	m.at = make(map[string]*jsontree.Node, len(all))
	for i := range all {
		m.at[all[i].Name()] = &all[i] // the last one of several counts, as in jsontree.Node
	}
	return m
}

func (m members) get(name string) *jsontree.Node {
	if m.at == nil {
		return m.object.Get(name)
	}
	if n := m.at[name]; n.Kind() != jsontree.Null {
		return n
	}
	return nil
}

// paths is a set of JSON Pointers. It has those that are equal to one of them, or below it, or above it.
type paths struct{ exact, above map[string]bool }

func pathsOf(all []string) paths {
	p := paths{map[string]bool{}, map[string]bool{}}
	for _, path := range all {
		for p.exact[path] = true; path != "" && !p.above[path]; path = parentPath(path) {
			p.above[path] = true
		}
	}
	return p
}

func parentPath(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

func (p paths) hasPath(path string) bool {
	if p.above[path] {
		return true
	}
	for ; path != ""; path = parentPath(path) {
		if p.exact[path] {
			return true
		}
	}
	return false
}

// sortedText returns the text of a value with sorted members.
func sortedText(n *jsontree.Node) string {
	all := n.Members()
	if len(all) == 0 {
		return n.String()
	}
	sorted := map[string]string{}
	for i := range all {
		sorted[all[i].Name()] = sortedText(&all[i])
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sorted)) {
		b.WriteString(jsontree.Escape(name) + "/" + sorted[name] + ",")
	}
	return b.String()
}
