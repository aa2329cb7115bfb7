// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/tree"
)

// plan compares the fragment with the pod and adds what is missing to the tree.
// A template is planned whole or not at all, so where there is a conflict all of
// it is taken back.
func (c *candidate) plan() {
	if err := c.renderApps(); err != nil {
		c.decision.Code, c.decision.Message = CodeRenderFailed, err.Error()
		return
	}
	// Both are about the pod as it came.
	noContainer, altered := (c.req.alone || c.req.Detail) && c.noContainer(), c.altered()
	p := &planner{
		candidate: c, log: &c.scratch.log, wasMarked: c.marked(c.t),
		wasInjected: c.annotation(c.t.injected) != nil,
	}
	p.eachAppContainer()
	p.object(c.pod, &c.fragment, c.schema, c.at)
	if p.additions > 0 {
		p.checkAnnotations()
		p.checkClaims()
	}
	switch {
	case p.failed != nil:
		c.decision.Code, c.decision.Message = CodeRenderFailed, p.failed.Error()
	case len(p.conflicts) > 0:
		c.decision.Code, c.decision.Message, c.decision.Obstacles = CodeConflict, messages(p.conflicts), p.conflicts
	default:
		c.pass(CodeRenderFailed, "every expression has a value that a pod can have")
		c.pass(CodeConflict, "nothing in the pod is in its way")
		c.decision.Kept, c.decision.Added, c.decision.Altered = p.kept, p.added, altered
		c.decision.Code = CodePresent
	}
	says := c.annotation(c.t.injected)
	other := says != nil && !says.IsText(c.t.Revision)
	if other && c.req.alone {
		c.decision.other = says.String()
	}
	c.decision.computed = c.t.Computed
	if c.decision.Code == CodePresent && p.additions > 0 {
		c.pass(CodePresent, "something of it is not in the pod")
		c.decision.Code, c.decision.Absent, c.decision.recorded = CodeInjected, p.absent(noContainer), p.wasInjected
		if other {
			c.decision.Notes = append(c.decision.Notes, fmt.Sprintf("the pod's own annotation %s stays, but revision %s was injected", c.t.injected, c.t.Revision))
		}
	}
	delete(c.marks, c.t) // which may say so by now
	if c.decision.Code == CodeInjected && !c.req.alone {
		p.log.Keep()
		c.added = true
		c.forget()
		return
	}
	if p.log.Undo(); p.additions > 0 {
		c.here = c.here[:0]
	}
}

// planner merges one fragment into the pod.
type planner struct {
	*candidate
	log       *tree.Log
	wasMarked bool // see marked
	// wasInjected: fields that are not there may have been dropped by the API server,
	// see gated.
	wasInjected bool
	found       bool // something that the fragment has is in the pod
	additions   int
	added       []Place // with Request.Detail, and of a final pod
	kept        []Place
	conflicts   []Obstacle
	failed      error
	claimed     nodePorts // by what is to be added
	theirs      []string  // containers of the pod's own, whatever is to be added to them
}

// maxConflicts bounds what is said about one template; the first is what has to
// be mended first.
const maxConflicts = 4

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

func messages(obstacles []Obstacle) string {
	all := make([]string, len(obstacles))
	for i := range obstacles {
		all[i] = obstacles[i].Message
	}
	return strings.Join(all, "; ")
}

func newPlace(at string, pod, fragment *tree.Node) Place {
	text := func(n *tree.Node) string {
		if n == nil {
			return "null"
		}
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(n.String())) != nil {
			return n.String()
		}
		return compact.String()
	}
	return Place{Path: at, Pod: text(pod), Template: text(fragment)}
}

func (p *planner) keep(at schema.Pointer, pod, fragment *tree.Node) {
	p.kept = append(p.kept, newPlace(at.String(), pod, fragment))
}

// addition notes that something is missing. The parent that has to be made for
// it is none by itself.
func (p *planner) addition(at schema.Pointer, value *tree.Node) {
	p.additions++
	if (p.req.Detail || p.req.alone) && (value.Kind() != tree.Object && value.Kind() != tree.Array || !schema.IsZero(value)) {
		p.added = append(p.added, newPlace(at.String(), nil, value))
	}
}

// add puts a new member into an object of the pod.
func (p *planner) add(pod *tree.Node, name string, value tree.Node, at schema.Pointer) *tree.Node {
	p.addition(at, &value)
	return p.log.Add(pod, name, value)
}

// object goes in key by key.
func (p *planner) object(pod, fragment *tree.Node, s *schema.Schema, at schema.Pointer) {
	members := fragment.Members()
	for i := range members {
		name, value := members[i].Name(), &members[i]
		if value.Kind() == tree.Null {
			continue
		}
		f, there := s.At(name), pod.Get(name)
		if p.excluded(pod, f, name, value) || there == nil && p.allExcluded(value, f.Schema) {
			p.keep(at.Member(name), there, value)
			continue
		}
		p.member(pod, there, f, value, at.Member(name))
	}
}

// allExcluded says whether nothing would come into an object that is made for it.
func (p *planner) allExcluded(fragment *tree.Node, s *schema.Schema) bool {
	members := fragment.Members()
	for i := range members {
		if name := members[i].Name(); !p.excluded(nil, s.At(name), name, &members[i]) {
			return false
		}
	}
	return len(members) > 0
}

func (p *planner) excluded(pod *tree.Node, f *schema.Field, name string, value *tree.Node) bool {
	return schema.Excludes(pod, p.pod, f, name, value) ||
		f.Gated && (p.req.alone || p.wasInjected)
}

// member goes into what is there of the pod, or nil, by the name of the fragment's value.
func (p *planner) member(pod, there *tree.Node, f *schema.Field, value *tree.Node, at schema.Pointer) {
	name := value.Name()
	switch {
	case there == nil && f.AbsentIsZero && schema.IsZero(value):
		return
	case f.Shape == schema.Unit && (there == nil || value.Kind() == tree.Array && isEmptyList(there)):
		p.add(pod, name, *value, at)
	case f.Shape == schema.Unit:
		if f.Contains(there, value) {
			p.found = true
		} else {
			p.keep(at, there, value)
		}
	case there != nil && there.Kind() != value.Kind():
		p.conflict(at, there, value, "the pod's %s is of another type than a pod has there", at.String())
	case len(value.Items()) == 0 && value.Kind() == tree.Array:
		return
	case f.Shape == schema.KeyedList || f.Shape == schema.Set:
		if there == nil || isEmptyList(there) {
			there = p.add(pod, name, tree.Items(p.nodes().Nodes(len(value.Items()))...), at)
		}
		p.list(there, value, f.Schema, at)
	case f.GoType == schema.ResourcesType() && there != nil:
		p.resources(there, value, f.Schema, at)
	case there == nil:
		before := len(p.added)
		p.object(p.add(pod, name, tree.Members(p.nodes().Nodes(len(value.Members()))...), at), value, f.Schema, at)
		if len(p.added) > before { // as one
			p.added = append(p.added[:before], newPlace(at.String(), nil, value))
		}
	default:
		p.object(there, value, f.Schema, at)
	}
}

// isEmptyList: such a list is in files alone, an API server keeps none.
func isEmptyList(n *tree.Node) bool {
	return n.Kind() == tree.Array && len(n.Items()) == 0
}

// list puts in the items whose key is new.
func (p *planner) list(pod, fragment *tree.Node, s *schema.Schema, at schema.Pointer) {
	items := fragment.Items()
	for i := range items {
		value := &items[i]
		if s.Key == "name" && s.Elem.GoType == schema.ContainerType() {
			p.container(pod, value, s, at)
			continue
		}
		if s.Elem.GoType == schema.VolumeType() && p.isClaim(value) {
			p.conflict(at, nil, value, "a claim of the StatefulSet's volumeClaimTemplates takes the place of the volume %s; give that one another name", value.Get("name").Text())
			continue
		}
		found := -1
		if s.Shape == schema.KeyedList {
			found = p.find(s, pod, value)
		}
		switch {
		case found >= 0:
			p.known(&pod.Items()[found], value, s, at.Item(pod.Items(), found))
		case s.Shape == schema.Set && s.Elem.Among(pod.Items(), value):
			p.found = true
		default:
			p.insert(pod, len(pod.Items()), *value, at)
		}
	}
}

// isClaim says of a volume, or of a mount of it, whether it is one that a StatefulSet gives the pod.
func (p *planner) isClaim(volume *tree.Node) bool {
	return p.claims[volume.Get("name").Text()]
}

func (p *planner) insert(pod *tree.Node, i int, value tree.Node, list schema.Pointer) {
	p.addition(list.Member("-"), &value)
	p.log.Insert(pod, i, value)
}

// known is an item whose key the pod has already: the pod's own counts. Where
// it stands for something else, the rest of the fragment would not work.
func (p *planner) known(pod, fragment *tree.Node, s *schema.Schema, at schema.Pointer) {
	if s.Elem.GoType == schema.VolumeType() {
		if p.sameVolume(pod, fragment, s.Elem, at) {
			p.found = true
		} else {
			p.conflict(at, pod, fragment, "the pod has another volume named %s; give that one another name", fragment.Get("name").Text())
		}
		return
	}
	if s.Elem.Contains(pod, fragment) {
		p.found = true
		return
	}
	switch s.Elem.GoType {
	case schema.VolumeMountType():
		if there := pod.Get("name").Text(); there != fragment.Get("name").Text() {
			p.conflict(at, pod, fragment, "another volume (%s) is mounted at %s; mount that one elsewhere", there, pod.Get("mountPath").Text())
			return
		}
		fallthrough
	default:
		p.keep(at, pod, fragment)
	}
}

// resources fills in a resource that neither requests nor limits of the pod
// name: a request of the template's beside a limit of the pod's could be more
// than the limit.
func (p *planner) resources(pod, fragment *tree.Node, s *schema.Schema, at schema.Pointer) {
	said := func(name string) bool {
		return pod.At("requests", name) != nil || pod.At("limits", name) != nil
	}
	free := *fragment
	for _, section := range []string{"requests", "limits"} {
		members := fragment.Get(section).Members()
		for i := range members {
			name := members[i].Name()
			if !said(name) {
				continue
			}
			there := pod.At(section, name)
			if !s.At(section).Elem.Contains(there, &members[i]) {
				p.keep(at.Member(section).Member(name), there, &members[i])
			}
			free = p.nodes().With(&free, section, p.nodes().Without(free.Get(section), name))
		}
	}
	p.object(pod, &free, s, at)
}
