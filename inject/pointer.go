// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates/tree"
)

// pointer is a JSON Pointer into the pod as it came; nil is the pod. It becomes
// a text only where somebody reads it, for most places have nothing to tell.
//
// One that goes further may lie where its brother lay, so none is kept.
type pointer []step

// step goes to a member, or to an item of a list.
type step struct {
	name  string
	items []tree.Node // nil for a member
	index int
}

// listPointer is the pointer of a list of the pod's spec, beside all others.
func listPointer(list string) pointer {
	return append(make(pointer, 0, 8), step{name: "spec"}, step{name: list})
}

func (p pointer) member(name string) pointer { return append(p, step{name: name}) }

func (p pointer) item(items []tree.Node, i int) pointer {
	return append(p, step{items: items, index: i})
}

// name is that of the last member in it but so many.
func (p pointer) name(before int) string { return p[len(p)-1-before].name }

// String is the pointer by RFC 6901. Of a list's items those that templates have
// added by now do not count.
func (p pointer) String() string {
	var text []byte
	for _, s := range p {
		text = append(text, '/')
		switch {
		case s.items == nil:
			text = append(text, tree.Escape(s.name)...)
		case s.items[s.index].Added():
			text = append(text, '-')
		default:
			text = strconv.AppendInt(text, int64(came(s.items[:s.index])), 10)
		}
	}
	return string(text)
}

// came is how many of the items no template has added.
func came(items []tree.Node) int {
	n := 0
	for i := range items {
		if !items[i].Added() {
			n++
		}
	}
	return n
}

func unescape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
}
