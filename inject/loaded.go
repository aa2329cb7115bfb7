// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// loaded is a template with what need not be written anew for each pod: the keys
// of its annotations, and the sentences for pods that it does not match.
type loaded struct {
	*templates.Template
	prefix                 string // of its annotations' keys
	runs                   []templates.Runs
	injected, customize    string
	settable               []string   // what pods may set by the other ones
	protect                [][]string // the names in each protected path
	forNamespaces, forPods string
	audit                  string     // for a pod that has it
	revision               tree.Node  // of the record of the injection
	recorded               *tree.Node // its fragment with the record of the injection, or nil where it is not always the same
}

// record is a fragment with that annotation.
func (t *loaded) record(nodes *tree.Arena, fragment *tree.Node) tree.Node {
	metadata := fragment.Get("metadata")
	annotations := nodes.With(metadata.Get("annotations"), t.injected, t.revision)
	return nodes.With(fragment, "metadata", nodes.With(metadata, "annotations", annotations))
}
