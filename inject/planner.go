// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// planner merges the fragment of one template, and what the template adds to app containers, into the pod.
type planner struct {
	// Input.
	subject   *subject
	t         *loaded
	fragment  *jsontree.Node // for the pod
	apps      []appContainer // for the user's containers
	placed    *v1alpha1.Placement
	owners    *owners
	wasMarked bool // see isMarked
	// wasInjected reports whether the pod's annotation records an injection. The API server may
	// then have dropped fields that are missing, see isGated.
	wasInjected bool

	// Output.
	journal   *jsontree.Journal // of the additions to the pod
	found     bool              // whether a part of the fragment is in the pod
	additions int               // how many things were added, without those that are left to the webhook
	// leftToWebhook is the number of additions that are not written to a file, see lefttowebhook.go.
	leftToWebhook  int
	outside        bool         // whether an addition is outside of the containers of the namespace's templates
	added          []Difference // only for Request.Detail and final pods
	kept           []Kept
	conflicts      []Obstacle
	failed         error      // why the template cannot be added, if that is no conflict
	lacks          []Obstacle // the missing volume, if failed is about one
	leavesSelector bool       // whether a label takes the pods out of the selector of their workload
	claimedPorts   nodePorts  // by planned additions
	// differedBefore are the names of the user's containers that differed from the template's before forEachContainer added to
	// them. If such a container is equal now, it is still the user's.
	differedBefore []string
	notes          []string

	// State while one container of the pod is merged.
	merged            *jsontree.Node // the container, or nil
	inApp             bool           // whether it is the user's
	inTenantContainer bool           // whether a template of the namespace added it
	keptVariables     []string       // of this container

	tentative bool // set while what is left to the webhook is merged

	indices map[string]map[string]int // see renderedIndex
	ranks   map[[2]string]int         // see rankOf
}

// reportConflict records a conflict, unless there are enough. Pod and fragment are the values at the place, or nil.
func (p *planner) reportConflict(at fmt.Stringer, pod, fragment *jsontree.Node, format string, args ...any) {
	if len(p.conflicts) < maxConflicts { // before at becomes a string, which takes a walk through a list
		p.reportConflictAt(newDifference(at.String(), pod, fragment), format, args...)
	}
}

func (p *planner) reportConflictAt(at Difference, format string, args ...any) {
	if len(p.conflicts) < maxConflicts {
		p.conflicts = append(p.conflicts, Obstacle{at, fmt.Sprintf(format, args...)})
	}
}

// findContributor returns the name of another template that brought something to the pod, or "" if the pod had it itself. The
// function has reports whether a template renders it. If no further conflict will be reported, it returns "" without a search.
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

// recordAddition records an addition. An empty object or list does not become a place in added, because it is only the parent of
// the additions that follow.
func (p *planner) recordAddition(at schema.Pointer, value *jsontree.Node) {
	if p.tentative {
		p.leftToWebhook++
		return
	}
	p.additions++
	p.outside = p.outside || !p.inTenantContainer
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
