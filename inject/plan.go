// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// plan compares the fragment with the pod and adds what is missing to the tree.
// It goes through twice: a template is planned whole or not at all, so nothing
// is added before all conflicts are known.
func (c *candidate) plan() {
	if err := c.renderApps(); err != nil {
		c.decision.Code, c.decision.Message = CodeRenderFailed, err.Error()
		return
	}
	dry := &planner{candidate: c, dry: true}
	dry.all()
	switch {
	case dry.failed != nil:
		c.decision.Code, c.decision.Message = CodeRenderFailed, dry.failed.Error()
		return
	case len(dry.conflicts) > 0:
		c.decision.Code, c.decision.Message, c.decision.Obstacles = CodeConflict, messages(dry.conflicts), dry.conflicts
		return
	}
	c.pass(CodeRenderFailed, always("every expression has a value that a pod can have"))
	c.pass(CodeConflict, always("nothing in the pod is in its way"))
	c.decision.Kept, c.decision.Added = dry.kept, dry.added
	c.decision.Altered = c.altered()
	if dry.additions == 0 {
		c.decision.Code = CodePresent
		return
	}
	c.pass(CodePresent, always("something of it is not in the pod"))
	c.decision.Code, c.decision.Absent = CodeInjected, c.absent()
	key := c.t.Annotation(templates.AnnotationInjected)
	if says := c.annotation(key); says != nil && !says.IsText(c.t.Revision) {
		c.decision.Notes = append(c.decision.Notes, fmt.Sprintf("the pod's own annotation %s stays, but revision %s was injected", key, c.t.Revision))
	}
	if c.req.alone {
		return
	}
	(&planner{candidate: c}).all()
	c.added = true
}

// planner merges one fragment into the pod.
type planner struct {
	*candidate
	dry       bool // only look
	additions int
	added     []Place // with Request.Detail, and of a final pod
	kept      []Place
	conflicts []Obstacle
	failed    error
	claimed   []nodePort // by what is to be added
}

func (p *planner) all() {
	p.eachAppContainer()
	p.object(p.pod, &p.fragment, p.schema, "")
}

// maxConflicts bounds what is said about one template; the first is what has to
// be mended first.
const maxConflicts = 4

func (p *planner) conflict(at string, pod, fragment *tree.Node, format string, args ...any) {
	if len(p.conflicts) == maxConflicts {
		return
	}
	p.conflicts = append(p.conflicts, Obstacle{newPlace(at, pod, fragment), fmt.Sprintf(format, args...)})
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

// item is the pointer of a list's item in the pod as it came: what templates
// have added by now does not count.
func item(list string, items []tree.Node, i int) string {
	if items[i].Added() {
		return list + "/-"
	}
	came := 0
	for j := range items[:i] {
		if !items[j].Added() {
			came++
		}
	}
	return list + "/" + strconv.Itoa(came)
}

func (p *planner) keep(at string, pod, fragment *tree.Node) {
	if p.dry {
		p.kept = append(p.kept, newPlace(at, pod, fragment))
	}
}

// addition notes that something is missing. The parent that has to be made for
// it is none by itself.
func (p *planner) addition(at string, value *tree.Node) {
	p.additions++
	if p.dry && (p.req.Detail || p.req.alone) && (value.Kind() != tree.Object && value.Kind() != tree.Array || !isZero(value)) {
		p.added = append(p.added, newPlace(at, nil, value))
	}
}

// add puts a new member into an object of the pod, which is nil where the object
// is itself still to be added.
func (p *planner) add(pod *tree.Node, name string, value tree.Node, at string) *tree.Node {
	p.addition(at, &value)
	if p.dry {
		return nil
	}
	return pod.Add(name, value)
}

// object goes in key by key.
func (p *planner) object(pod, fragment *tree.Node, s *schema, at string) {
	members := fragment.Members()
	for i := range members {
		name, value := members[i].Name(), &members[i].Node
		if value.Kind() == tree.Null {
			continue
		}
		f := s.at(name)
		p.member(pod, f, name, value, at+"/"+tree.Escape(name))
	}
}

func (p *planner) member(pod *tree.Node, f *field, name string, value *tree.Node, at string) {
	there := pod.Get(name)
	if excludes(pod, f, name, value) {
		p.keep(at, there, value)
		return
	}
	switch {
	case there == nil && f.absentIsZero && isZero(value):
		return
	case f.shape == unit && there == nil:
		p.add(pod, name, *value, at)
	case f.shape == unit:
		if !f.contains(there, value) {
			p.keep(at, there, value)
		}
	case there != nil && there.Kind() != value.Kind():
		p.conflict(at, there, value, "the pod's %s is of another type than a pod has there", at)
	case len(value.Items()) == 0 && value.Kind() == tree.Array:
		return
	case f.shape == keyedList || f.shape == set:
		if len(there.Items()) == 0 {
			there = p.add(pod, name, tree.Items(), at)
		}
		p.list(there, value, f.schema, at)
	case f.goType == resourceRequirements() && there != nil:
		p.resources(there, value, f.schema, at)
	case there == nil:
		before := len(p.added)
		p.object(p.add(pod, name, tree.Members(), at), value, f.schema, at)
		if len(p.added) > before { // as one
			p.added = append(p.added[:before], newPlace(at, nil, value))
		}
	default:
		p.object(there, value, f.schema, at)
	}
}

// list puts in the items whose key is new.
func (p *planner) list(pod, fragment *tree.Node, s *schema, at string) {
	items := fragment.Items()
	for i := range items {
		value := &items[i]
		if s.key == "name" && s.elem.goType == container() {
			p.container(pod, value, s, at)
			continue
		}
		found := -1
		if s.shape == keyedList {
			found = s.find(pod.Items(), value)
		}
		switch {
		case found >= 0:
			p.known(&pod.Items()[found], value, s, item(at, pod.Items(), found))
		case s.shape == set && s.elem.among(pod.Items(), value):
		default:
			p.insert(pod, len(pod.Items()), *value, at)
		}
	}
}

func (p *planner) insert(pod *tree.Node, i int, value tree.Node, list string) {
	p.addition(list+"/-", &value)
	if !p.dry {
		pod.Insert(i, value)
	}
}

// known is an item whose key the pod has already: the pod's own counts. Where
// it stands for something else, the rest of the fragment would not work.
func (p *planner) known(pod, fragment *tree.Node, s *schema, at string) {
	if s.elem.goType == volume() {
		if !p.sameVolume(pod, fragment, s.elem) {
			p.conflict(at, pod, fragment, "the pod has another volume named %s; give that one another name", fragment.Get("name").Text())
		}
		return
	}
	if s.elem.contains(pod, fragment) {
		return
	}
	switch s.elem.goType {
	case volumeMount():
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
func (p *planner) resources(pod, fragment *tree.Node, s *schema, at string) {
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
			if !s.at(section).elem.contains(there, &members[i].Node) {
				p.keep(at+"/"+section+"/"+tree.Escape(name), there, &members[i].Node)
			}
			free = free.With(section, free.Get(section).Without(name))
		}
	}
	p.object(pod, &free, s, at)
}

// appContainer is a container that the user wrote, and what it is to get.
type appContainer struct {
	list      string
	index     int
	fragments []tree.Node
}

// maxContainers bounds what a pod can cost: no node runs as many, and the API
// server asks before it has looked at the pod.
const maxContainers = 500

// renderApps renders what the template adds to each container that the user
// wrote: once, so that looking and adding go by the very same.
func (c *candidate) renderApps() error {
	if !c.t.HasForEach() {
		return nil
	}
	for _, list := range containerLists() {
		items := c.pod.At("spec", list).Items()
		if len(items) > maxContainers {
			return fmt.Errorf("the pod has more than %d %s", maxContainers, list)
		}
		for i := range items {
			if items[i].Kind() != tree.Object || items[i].Added() || c.brought(&items[i]) {
				continue
			}
			fragments, err := c.t.ForEach(&c.input, c.values, &items[i], list == "initContainers")
			if err != nil {
				return err
			}
			if c.podResources() {
				for j := range fragments {
					fragments[j] = c.withoutResources(fragments[j], items[i].Get("name").Text())
				}
			}
			c.apps = append(c.apps, appContainer{list, i, fragments})
		}
	}
	return nil
}

// eachAppContainer merges what the template adds to each app container. Nothing
// has been inserted before them yet.
func (p *planner) eachAppContainer() {
	elem := p.schema.at("spec").at("containers").elem
	for i := range p.apps {
		app := &p.apps[i]
		existing := p.pod.At("spec", app.list).Items()
		at := item("/spec/"+app.list, existing, app.index)
		p.checkClashes(app.fragments, elem, at)
		for j := range app.fragments {
			p.checkContainer(app.list, &existing[app.index], &app.fragments[j], at)
			p.object(&existing[app.index], &app.fragments[j], elem, at)
		}
	}
}

// brought says whether a container of the pod is a template's and not the
// user's. A template that no longer wants this pod counts too, for what it added
// itself may be why. What a required template gives to every container, none
// escapes by an annotation alone: it must run what the template's container runs
// that it is said to be.
func (c *candidate) brought(existing *tree.Node) bool {
	name := existing.Get("name").Text()
	for _, t := range c.flipped {
		if slices.Contains(t.Containers, name) && c.marked(t) && !c.t.Spec.Required {
			return true
		}
	}
	for _, other := range c.candidates {
		if !slices.Contains(other.t.Containers, name) {
			continue
		}
		if c.t.Spec.Required && !other.sameProgram(existing) {
			continue
		}
		if other.same(existing) || c.marked(other.t) {
			return true
		}
	}
	return false
}

// sameProgram says whether a container runs what the template's does.
func (c *candidate) sameProgram(existing *tree.Node) bool {
	own := c.own(existing)
	if own == nil {
		return false
	}
	for _, field := range []string{"image", "command", "args"} {
		there, ours := existing.Get(field), own.Get(field)
		if (there == nil) != (ours == nil) || there != nil && !c.schema.at("spec").at("containers").elem.at(field).contains(there, ours) {
			return false
		}
	}
	return true
}

// marked says whether the pod says that a container of the name that a template
// brings is the template's: because it was injected, or is to be filled in. The
// annotation proves nothing, and need not: all that it lets happen is that what
// the container lacks is added.
func (r *run) marked(t *templates.Template) bool {
	return r.annotation(t.Annotation(templates.AnnotationInjected)) != nil ||
		r.annotation(t.Annotation(templates.AnnotationCustomize)).IsText("true")
}

// same says whether a container has all that the template's container of that
// name would have.
func (c *candidate) same(existing *tree.Node) bool {
	own := c.own(existing)
	return own != nil && c.schema.at("spec").at("containers").elem.contains(existing, own)
}

// own is the template's container of that name, or nil.
func (c *candidate) own(existing *tree.Node) *tree.Node {
	for _, list := range containerLists() {
		items := c.fragment.At("spec", list).Items()
		if i := c.schema.at("spec").at(list).find(items, existing); i >= 0 {
			return &items[i]
		}
	}
	return nil
}
