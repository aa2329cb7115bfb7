// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// readPart is a part of the pod that templates depend on: all of it, the set of its items, one member,
// or the members with a prefix.
type readPart struct {
	path   []string
	items  bool
	key    string
	prefix string
}

// newRead parses a part, see [templates.Template.Reads].
func newRead(part string) (r readPart) {
	path, within, ok := strings.Cut(part, "[")
	if ok {
		r.key = strings.TrimSuffix(within, "]")
		r.items = r.key == ""
		if prefix, ok := strings.CutSuffix(r.key, "*"); ok {
			r.key, r.prefix = "", prefix
		}
	}
	if path != "*" {
		r.path = strings.Split(path, ".")
	}
	return r
}

// addedIn reports whether something was added at that path, or a parent was.
func (r readPart) addedIn(n *jsontree.Node) bool {
	for path := r.path; len(path) > 0 && n != nil && !n.Added(); path = path[1:] {
		n = n.Get(path[0])
	}
	switch {
	case n == nil || n.Added():
		return n != nil
	case r.key != "":
		return n.Get(r.key).Added()
	case r.prefix != "":
		return slices.ContainsFunc(n.Members(), func(m jsontree.Node) bool { return m.Added() && strings.HasPrefix(m.Name(), r.prefix) })
	case r.items:
		return slices.ContainsFunc(n.Items(), func(item jsontree.Node) bool { return item.Added() })
	}
	return n.AddedSize() > 0
}
