// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Pointer is a JSON Pointer into the pod as received; nil is the pod itself. It becomes a string
// only if it is reported, because most places have nothing to report.
//
// Two pointers that continue the same one may share memory, so do not keep a Pointer.
type Pointer []step

// step goes to a member, or to an item of a list.
type step struct {
	name  string
	items []jsontree.Node // nil for a member
	index int
}

// Member continues the pointer to a member.
func (p Pointer) Member(name string) Pointer { return append(p, step{name: name}) }

// Item continues the pointer to an item of a list.
func (p Pointer) Item(items []jsontree.Node, i int) Pointer {
	return append(p, step{items: items, index: i})
}

// Name returns the name of a member in the pointer, counted from the end: before is the number of steps after it. The step must not go
// to an item.
func (p Pointer) Name(before int) string { return p[len(p)-1-before].name }

// Is reports whether the pointer goes through members with these names, and no items.
func (p Pointer) Is(names []string) bool {
	if len(p) != len(names) {
		return false
	}
	for i := range p {
		if p[i].items != nil || p[i].name != names[i] {
			return false
		}
	}
	return true
}

// In returns the object that contains the pointer's last member, or nil. The pointer's steps from first on lead from the value n to
// that member, through members only.
func (p Pointer) In(n *jsontree.Node, first int) *jsontree.Node {
	for _, s := range p[first : len(p)-1] {
		n = n.Get(s.name)
	}
	return n
}

// String returns the pointer as RFC 6901 defines it. The indices are those in the pod as received: they do not count items that
// templates have added, and such an item is "-".
func (p Pointer) String() string {
	var text []byte
	for _, s := range p {
		text = append(text, '/')
		switch {
		case s.items == nil:
			text = append(text, jsontree.Escape(s.name)...)
		case s.items[s.index].IsNew():
			text = append(text, '-')
		default:
			text = strconv.AppendInt(text, int64(countOriginal(s.items[:s.index])), 10)
		}
	}
	return string(text)
}

// countOriginal returns the number of items that no template has added.
func countOriginal(items []jsontree.Node) int {
	n := 0
	for i := range items {
		if !items[i].IsNew() {
			n++
		}
	}
	return n
}

// Unescape returns the name that a reference token of a JSON Pointer stands for.
func Unescape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
}
