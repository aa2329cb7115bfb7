// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/tree"
)

// planner merges what one template is to add into the pod.
type planner struct {
	// What it reads.
	subject   *subject
	t         *loaded
	fragment  *tree.Node     // for the pod
	apps      []appContainer // for the containers that the user wrote
	owners    *owners
	couplings []coupling
	wasMarked bool // see marked
	// wasInjected: fields that are not there may have been dropped by the API server,
	// see gated.
	wasInjected bool

	// What it writes.
	journal   *tree.Journal // of the additions to the pod
	found     bool          // something that the fragment has is in the pod
	additions int
	added     []Place // with Request.Detail, and of a final pod
	kept      []Place
	conflicts []Obstacle
	failed    error
	claimed   nodePorts // by what is to be added
	theirs    []string  // containers of the pod's own, whatever is to be added to them
}

func (p *planner) conflict(at fmt.Stringer, pod, fragment *tree.Node, format string, args ...any) {
	if len(p.conflicts) < maxConflicts { // a place takes a walk through its list
		p.conflictAt(newPlace(at.String(), pod, fragment), format, args...)
	}
}

func (p *planner) conflictAt(at Place, format string, args ...any) {
	if len(p.conflicts) < maxConflicts {
		p.conflicts = append(p.conflicts, Obstacle{at, fmt.Sprintf(format, args...)})
	}
}

func (p *planner) keep(at schema.Pointer, pod, fragment *tree.Node) {
	p.kept = append(p.kept, newPlace(at.String(), pod, fragment))
}

// addition notes that something is missing. The parent that has to be made for
// it is none by itself.
func (p *planner) addition(at schema.Pointer, value *tree.Node) {
	p.additions++
	if (p.subject.asked.detail || p.subject.asked.alone) && (value.Kind() != tree.Object && value.Kind() != tree.Array || !schema.IsZero(value)) {
		p.added = append(p.added, newPlace(at.String(), nil, value))
	}
}

// add puts a new member into an object of the pod.
func (p *planner) add(pod *tree.Node, name string, value tree.Node, at schema.Pointer) *tree.Node {
	p.addition(at, &value)
	return p.journal.Add(pod, name, value)
}

func (p *planner) insert(pod *tree.Node, i int, value tree.Node, list schema.Pointer) {
	p.addition(list.Member("-"), &value)
	p.journal.Insert(pod, i, value)
}

// isClaim says of a volume, or of a mount of it, whether it is one that a StatefulSet gives the pod.
func (p *planner) isClaim(volume *tree.Node) bool {
	return p.subject.claims[volume.Get("name").Text()]
}
