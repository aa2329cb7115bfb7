// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// planner merges the additions of one template into the pod.
type planner struct {
	// Input.
	subject   *subject
	t         *loaded
	fragment  *jsontree.Node // for the pod
	apps      []appContainer // for the user's containers
	placed    *v1alpha1.Placement
	owners    *owners
	couplings []coupling
	wasMarked bool // see isMarked
	// wasInjected reports whether the pod's annotation records an injection. The API server may
	// then have dropped missing fields, see gated.
	wasInjected bool

	// Output.
	journal   *jsontree.Journal // of the additions to the pod
	found     bool              // whether a part of the fragment is in the pod
	additions int
	left      int          // additions that are left to the webhook
	outside   bool         // whether one of them is outside of the containers of the namespace's templates
	added     []Difference // only for Request.Detail and final pods
	kept      []Kept
	conflicts []Obstacle
	failed    error
	lacks     []Obstacle // the volume without which it failed
	leaves    bool       // whether a label takes the pods out of the selector of their workload
	claimed   nodePorts  // by planned additions
	theirs    []string   // containers that the pod already has, even if something is added to them

	merged        *jsontree.Node // the container of the pod, while it merges one
	inApp         bool           // while it merges a container of the user's
	inTheirs      bool           // while it merges one that a template of the namespace added
	keptVariables []string       // of this container
	tentative     bool           // while it merges what is left to the webhook
	notes         []string

	indices map[string]map[string]int // see renderedIndex
	ranks   map[[2]string]int         // see modeRank
}

func (p *planner) reportConflict(at fmt.Stringer, pod, fragment *jsontree.Node, format string, args ...any) {
	if len(p.conflicts) < maxConflicts { // a place costs a walk through its list
		p.reportConflictAt(newDifference(at.String(), pod, fragment), format, args...)
	}
}

func (p *planner) reportConflictAt(at Difference, format string, args ...any) {
	if len(p.conflicts) < maxConflicts {
		p.conflicts = append(p.conflicts, Obstacle{at, fmt.Sprintf(format, args...)})
	}
}

// findContributor returns the other template that brings something to the pod, or "" if the pod has it
// itself. It searches only for conflicts that are reported. The function has reports whether a template renders it.
func (p *planner) findContributor(has func(c *candidate) bool) string {
	if len(p.conflicts) == maxConflicts {
		return ""
	}
	for c := range p.owners.otherTemplates(p.t, true, func(*loaded) bool { return true }) {
		if c.t.Template != p.t.Template && has(c) {
			return c.t.Name
		}
	}
	return ""
}

// recordAddition records that something is missing. A parent that is created only to contain it does not
// count.
func (p *planner) recordAddition(at schema.Pointer, value *jsontree.Node) {
	if p.tentative {
		p.left++
		return
	}
	p.additions++
	p.outside = p.outside || !p.inTheirs
	if (p.subject.request.detail || p.subject.request.alone) && (value.Kind() != jsontree.Object && value.Kind() != jsontree.Array || !schema.IsZero(value)) {
		p.added = append(p.added, newDifference(at.String(), nil, value))
	}
}

// addMember adds a new member to an object of the pod.
func (p *planner) addMember(pod *jsontree.Node, name string, value jsontree.Node, at schema.Pointer) *jsontree.Node {
	p.recordAddition(at, &value)
	p.journal.Tentative = p.tentative
	return p.journal.Add(pod, name, value)
}

func (p *planner) insertItem(pod *jsontree.Node, i int, value jsontree.Node, list schema.Pointer) {
	p.recordAddition(list.Member("-"), &value)
	p.journal.Tentative = p.tentative
	p.journal.Insert(pod, i, value)
}

// isClaim reports whether a volume, or the volume of a mount, is one that a StatefulSet adds to the
// pod.
func (p *planner) isClaim(volume *jsontree.Node) bool {
	return p.subject.claims[volume.Get("name").Text()]
}
