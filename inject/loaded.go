// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// loaded is a template with data that is the same for each pod: the keys of its annotations, and
// the sentences for pods that it does not match.
type loaded struct {
	*templates.Template
	prefix                 string // of its annotations' keys
	runs                   []templates.Runs
	injected, customize    string
	settable               []string    // names of the other annotations that pods may set
	products               productKeys // annotations of other products that it reads
	protect                [][]string  // the elements of each protected path
	forNamespaces, forPods string
	audit                  string     // audit annotation of a pod that has the template
	revision               tree.Node  // value of the annotation that records the injection
	recorded               *tree.Node // the fragment with that annotation, or nil if it differs between pods
}

// record returns a fragment with the annotation that records the injection.
func (t *loaded) record(nodes *tree.Arena, fragment *tree.Node) tree.Node {
	metadata := fragment.Get("metadata")
	annotations := nodes.With(metadata.Get("annotations"), t.injected, t.revision)
	return nodes.With(fragment, "metadata", nodes.With(metadata, "annotations", annotations))
}
