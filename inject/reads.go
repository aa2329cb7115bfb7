// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// readPart is a part of the pod that templates depend on: the value at a path, or only which items it has (items), one member of it
// (key), or the members with a prefix.
type readPart struct {
	path   []string // nil for the whole pod
	items  bool
	key    string
	prefix string
}

// parseReadPart parses an item of [templates.Template.Reads].
func parseReadPart(part string) (r readPart) {
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

// addedIn reports whether a template added something to the part, or an object or list that contains it.
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
