// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"maps"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// requested is the content of the annotation pillion.dev/templates.
type requested struct {
	exact bool            // whether the pod gets no default templates that are not named
	names map[string]bool // the named templates; false if the pod does not want the template
}

// parseRequested parses the annotation, which is nil if the pod does not have it.
func parseRequested(n *jsontree.Node) requested {
	if n == nil {
		return requested{}
	}
	r := requested{exact: true, names: map[string]bool{}}
	text := strings.TrimSpace(n.Text())
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "-") {
		r.exact = false
	}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		bare := strings.TrimLeft(name, "+-")
		if bare != "" {
			r.names[bare] = !strings.HasPrefix(name, "-")
		}
	}
	return r
}

func (r requested) sortedNames() []string {
	if len(r.names) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(r.names))
}

// lookupName reports whether the annotation names a template, and whether the pod wants it.
func (r requested) lookupName(name string) (named, wanted bool) {
	wanted, named = r.names[name]
	return named, wanted
}
