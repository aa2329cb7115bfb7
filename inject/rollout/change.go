// SPDX-License-Identifier: Apache-2.0

// Package rollout finds out what running pods need to become current: the differences between a pod
// and what it would be if it were created now, whether they can be changed in place, and in which
// order pods get them. It also decides which pods may change now ([Decide]), from how they have been ([Watch]), and when a
// rollout must stop.
package rollout

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// How is how a running pod gets a change.
type How string

// The ways, from the least to the most disruptive one.
const (
	// Record changes only annotations that Pillion writes.
	Record How = "record"
	// Resize changes the CPU and memory of a running container.
	Resize How = "resize"
	// InPlace replaces the image of a running container, and restarts only that container.
	InPlace How = "in place"
	// NewPod needs a new pod, because Kubernetes does not allow the change in a running one.
	NewPod How = "new pod"
)

// Rank orders the ways.
func (h How) Rank() int { return slices.Index([]How{Record, Resize, InPlace, NewPod}, h) }

// Change is one difference between two states of a pod.
type Change struct {
	// Template is the template whose container or annotation it is, or "" if that is unknown.
	Template string `json:"template,omitempty"`
	// Path is a JSON Pointer with the names of keyed items instead of their indexes, for example
	// /spec/initContainers/log-agent/image.
	Path string          `json:"path"`
	From json.RawMessage `json:"from,omitempty"` // nil if it is absent
	To   json.RawMessage `json:"to,omitempty"`   // nil if it is absent
	How  How             `json:"how"`
}

// String returns the change for users, for example "image of log-agent".
func (c *Change) String() string {
	if list, name, field := c.container(); list != "" {
		if field == "" {
			return "container " + name
		}
		return schema.Where("/"+field) + " of " + name
	}
	return schema.Where(c.Path)
}

// container returns the list and the name of the container that the change is about, and the path of
// the field in it, or "" if it is about something else.
func (c *Change) container() (list, name, field string) {
	parts := strings.SplitN(strings.TrimPrefix(c.Path, "/"), "/", 4)
	if len(parts) < 3 || parts[0] != "spec" || parts[1] != "initContainers" && parts[1] != "containers" {
		return "", "", ""
	}
	if len(parts) == 4 {
		field = parts[3]
	}
	return parts[1], schema.Unescape(parts[2]), field
}

// Changes compares the labels, the annotations and the spec of two states of a pod, both as JSON. It
// ignores differences without a meaning, for example 1 and 1000m, or defaults of the API server. The
// templates are those of either state; their containers may change in place.
func Changes(from, to []byte, all ...*templates.Template) ([]Change, error) {
	a, err := jsontree.Parse(from)
	if err != nil {
		return nil, fmt.Errorf("the pod is not JSON: %w", err)
	}
	b, err := jsontree.Parse(to)
	if err != nil {
		return nil, fmt.Errorf("the pod is not JSON: %w", err)
	}
	c := &comparison{templates: all, was: membersOf(a.At("metadata", "annotations")), is: membersOf(b.At("metadata", "annotations"))}
	c.stay = c.stayingTemplates()
	pod := schema.Pod()
	for _, name := range []string{"labels", "annotations"} {
		at := place{path: "/metadata/" + name, field: pod.At("metadata").At(name), name: name}
		c.compareMembers(at, a.At("metadata", name), b.At("metadata", name))
	}
	c.compareMembers(place{path: "/spec", field: pod.At("spec"), name: "spec"}, a.Get("spec"), b.Get("spec"))
	return c.all, nil
}

// comparison collects the differences between two pods.
type comparison struct {
	templates []*templates.Template
	was, is   members           // the annotations of the pods
	stay      map[string]string // see stayingTemplates
	all       []Change
}

// place is a place in both pods.
type place struct {
	path  string
	field *schema.Field
	name  string
	a, b  *jsontree.Node // the objects that contain it
}

func (p place) member(name string, a, b *jsontree.Node) place {
	return place{path: p.path + "/" + jsontree.Escape(name), field: p.field.At(name), name: name, a: a, b: b}
}

// compareValue compares one place.
func (c *comparison) compareValue(p place, a, b *jsontree.Node) {
	if b == nil && p.meansAbsent(p.a, a) || a == nil && p.meansAbsent(p.b, b) {
		return
	}
	switch {
	case p.isOpen() && (a == nil || a.Kind() == jsontree.Object) && (b == nil || b.Kind() == jsontree.Object):
		c.compareMembers(p, a, b)
	case p.field.Shape == schema.KeyedList && (a == nil || b == nil):
		c.compareItems(p, orEmpty(a), orEmpty(b))
	case a == nil || b == nil:
		c.addChange(p, a, b)
	case a.Kind() == jsontree.Object && b.Kind() == jsontree.Object:
		c.compareMembers(p, a, b)
	case a.Kind() == jsontree.Array && b.Kind() == jsontree.Array:
		c.compareItems(p, a, b)
	case !p.field.EqualScalars(a, b):
		c.addChange(p, a, b)
	}
}

// isOpen reports whether an absent object means the same as an empty one, so that its members are
// reported one by one: the resources of a container.
func (p place) isOpen() bool {
	return p.field.GoType == schema.ResourcesType() || p.field.Elem != nil && p.field.Elem.Quantity
}

// meansAbsent reports whether a value means the same as its absence. Object contains it.
func (p place) meansAbsent(object, n *jsontree.Node) bool {
	switch {
	case n == nil || n.Kind() == jsontree.Null:
		return true
	case (p.field.AbsentIsZero || p.field.AlwaysSent) && schema.IsZero(n):
		return true
	case p.field.Parent == nil:
		return false
	}
	switch of := p.field.Parent.Name() + "." + p.name; of {
	case "Container.imagePullPolicy", "ImageVolumeSource.pullPolicy": // the default depends on the image
		return n.IsText(string(corev1.PullAlways)) || n.IsText(string(corev1.PullIfNotPresent))
	case "ContainerPort.hostPort": // on the network of the node
		return object.Get("containerPort") != nil && schema.SameNumber(n, object.Get("containerPort"))
	default:
		value, ok := schema.Default(of)
		return ok && n.String() == value
	}
}

func (c *comparison) compareMembers(p place, a, b *jsontree.Node) {
	was, is := orLimits(p, p.a, a), orLimits(p, p.b, b)
	for _, of := range [2]*jsontree.Node{a, b} {
		all := of.Members()
		for i := range all {
			name := all[i].Name()
			if of == b && was.members.get(name) != nil {
				continue
			}
			c.compareValue(p.member(name, a, b), was.get(name), is.get(name))
		}
	}
}

// limited are the members of an object, or what is used for those that are absent.
type limited struct{ members, limits members }

// orLimits returns the members of an object. A request that is absent is the limit of the resource, also if one of the
// pods states it.
func orLimits(p place, resources, object *jsontree.Node) limited {
	l := limited{members: membersOf(object)}
	if p.name == "requests" && p.field.Parent == schema.ResourcesType() {
		l.limits = membersOf(resources.Get("limits"))
	}
	return l
}

func (l limited) get(name string) *jsontree.Node {
	if n := l.members.get(name); n != nil {
		return n
	}
	return l.limits.get(name)
}

// compareItems compares lists, by their keys if they have some.
func (c *comparison) compareItems(p place, a, b *jsontree.Node) {
	was, is := a.Items(), b.Items()
	elem := p.field.Elem
	switch {
	case elem == nil || p.field.Shape != schema.KeyedList && len(was) != len(is):
		c.addChange(p, a, b)
		return
	case p.field.Shape == schema.Set:
		same := map[string]bool{}
		for i := range was {
			same[sortedText(&was[i])] = true
		}
		for i := range is {
			if !same[sortedText(&is[i])] && !elem.Among(was, &is[i]) {
				c.addChange(p, a, b)
				return
			}
		}
		return
	case p.field.Shape != schema.KeyedList:
		for i := range is {
			if c.valuesDiffer(elem, &was[i], &is[i]) {
				c.addChange(p, a, b)
				return
			}
		}
		return
	}
	inWas, inIs := p.field.Index(was), p.field.Index(is)
	var order []int // positions of the items that both have
	for i := range was {
		at := place{path: p.path + "/" + jsontree.Escape(pathKey(p.field, &was[i])), field: elem.AsField()}
		if k := inIs.Find(&was[i]); k >= 0 {
			order = append(order, k)
			c.compareValue(at, &was[i], &is[k])
		} else {
			c.addChange(at, &was[i], nil)
		}
	}
	for i := range is {
		if inWas.Find(&is[i]) < 0 {
			c.addChange(place{path: p.path + "/" + jsontree.Escape(pathKey(p.field, &is[i])), field: elem.AsField()}, nil, &is[i])
		}
	}
	// Init containers run one after another.
	if (p.name == "initContainers" || p.name == "env" && (schema.DependsOnOrder(was) || schema.DependsOnOrder(is))) && !slices.IsSorted(order) {
		c.addChange(p, pathKeys(p.field, was), pathKeys(p.field, is))
	}
}

// orEmpty returns a list. The items of an absent one are reported one by one, too.
func orEmpty(list *jsontree.Node) *jsontree.Node {
	if list == nil {
		return new(jsontree.Items())
	}
	return list
}

// valuesDiffer reports whether two values differ.
func (*comparison) valuesDiffer(elem *schema.Schema, a, b *jsontree.Node) bool {
	part := &comparison{}
	part.compareValue(place{field: elem.AsField()}, a, b)
	return len(part.all) > 0
}

// pathKey returns the key of an item, for a path.
func pathKey(list *schema.Field, item *jsontree.Node) string {
	if text, ok := list.TextKey(item); ok {
		return text
	}
	text := item.Get(list.Key).String()
	if protocol := schema.Protocol(item); list.Key == "containerPort" && protocol != string(corev1.ProtocolTCP) {
		text += "-" + protocol
	}
	return text
}

func pathKeys(list *schema.Field, items []jsontree.Node) *jsontree.Node {
	all := jsontree.Items()
	for i := range items {
		all.Append(jsontree.Text(pathKey(list, &items[i])))
	}
	return &all
}

func (c *comparison) addChange(p place, a, b *jsontree.Node) {
	change := Change{Path: p.path, From: rawJSON(a), To: rawJSON(b), How: NewPod}
	change.Template = c.templateOf(&change)
	change.How = c.howToChange(&change)
	c.removeEndedRecord(&change)
	c.all = append(c.all, change)
}

func rawJSON(n *jsontree.Node) json.RawMessage {
	if n == nil {
		return nil
	}
	return n.AppendTo(nil)
}

// templateOf returns the template that a change belongs to, or "".
func (c *comparison) templateOf(change *Change) string {
	list, name, _ := change.container()
	key, isAnnotation := strings.CutPrefix(change.Path, "/metadata/annotations/")
	for _, t := range c.templates {
		if list != "" && t.Brings(name) || isAnnotation && strings.HasPrefix(schema.Unescape(key), t.Annotation("")) {
			return t.Name
		}
	}
	return ""
}

// howToChange returns how a running pod gets a change. Only containers that a template has brought change in
// place, as the pod's record shows, but not those that the user wrote for a template to complete. If a
// pod loses a template, it needs a new pod, because a running one keeps its containers.
func (c *comparison) howToChange(change *Change) How {
	if change.recordKey() != "" && change.To != nil {
		return Record
	}
	annotations := func(of members) func(string) string {
		return func(key string) string { return of.get(key).Text() }
	}
	if list, name, field := change.container(); list != "" && change.To != nil && broughtByTemplate(c.templates, annotations(c.was), name) && broughtByTemplate(c.templates, annotations(c.is), name) {
		switch {
		case field == "image":
			return InPlace
		case change.ofResources():
			return Resize
		}
	}
	return NewPod
}

// removeEndedRecord lets a running pod lose the record of a template that had replaced another one in it, and does so no longer.
// The other one has a record of the same revision, and stays. If the first one no longer exists, the change is of the
// other one.
func (c *comparison) removeEndedRecord(change *Change) {
	record := change.recordKey()
	if record == "" || change.To != nil {
		return
	}
	template, ok := c.stay[c.was.get(record).Text()]
	if !ok {
		return
	}
	if change.How = Record; change.Template == "" {
		change.Template = template
	}
}

// stayingTemplates returns a template for each revision that the running pod records and that has a record in the other pod, too,
// or "".
func (c *comparison) stayingTemplates() map[string]string {
	all := map[string]string{}
	records := c.was.object.Members()
	for i := range records {
		key := records[i].Name()
		if !isRecord(key) || c.is.get(key) == nil {
			continue
		}
		revision := records[i].Text()
		name, _, ok := templates.SplitAnnotation(key)
		if ok && all[revision] == "" {
			all[revision] = name
		} else if _, known := all[revision]; !known {
			all[revision] = ""
		}
	}
	return all
}

// ofResources reports whether a change is of the CPU or memory of a template's container.
func (c *Change) ofResources() bool {
	_, _, field := c.container()
	return c.Template != "" && slices.Contains([]string{"resources/limits/cpu", "resources/limits/memory", "resources/requests/cpu", "resources/requests/memory"}, field)
}

// recordKey returns the annotation that a change is about, if Pillion writes it, or "".
func (c *Change) recordKey() string {
	key, ok := strings.CutPrefix(c.Path, "/metadata/annotations/")
	if key = schema.Unescape(key); !ok || !isRecord(key) {
		return ""
	}
	return key
}

// whyNewPod returns why a change needs a new pod.
func (c *Change) whyNewPod() string {
	switch {
	case c.To == nil && c.recordKey() != "":
		return "a new pod would not get " + strings.TrimSuffix(c.recordKey(), "."+templates.Domain+"/"+templates.AnnotationInjected) + ", and a running pod keeps its containers"
	case c.From == nil:
		return "the pod lacks the " + c.String()
	case c.To == nil:
		return "a new pod would not have the " + c.String()
	}
	return "a new pod differs in the " + c.String()
}
