// SPDX-License-Identifier: Apache-2.0

// Package drift finds out whether a part of a pod is still what a template renders. It ignores what Kubernetes itself sets or drops,
// and what other webhooks commonly add.
package drift

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// Difference is a place where the pod and a fragment differ.
type Difference struct {
	At            string         // JSON Pointer into the pod as received
	Pod, Fragment *jsontree.Node // the values there, or nil
}

// Pod is what a [Comparison] needs to know about the pod.
type Pod struct {
	OnHost  bool            // whether it uses the node's network
	Nodes   *jsontree.Arena // memory for new nodes
	Volumes Volumes
}

// Volumes knows the volumes of a pod.
type Volumes interface {
	// IsTokenVolume reports whether a volume with that name projects the pod's API token.
	IsTokenVolume(name string) bool
}

// Comparison is a place at which the pod is compared with a fragment, and how.
type Comparison struct {
	Pod   *Pod
	At    schema.Pointer
	Field *schema.Field
	name  string         // of the field at this place
	in    *jsontree.Node // the pod's object with this field
	// Stored is set to compare the pod as the API server stores it, which may drop fields because a feature gate is off. So it is no
	// difference if only the pod has such a field.
	Stored bool
	// open is set for a list to which other webhooks may add items.
	open bool
	// Besides are the values that other templates add at this place. It is no difference if the pod has them and the fragment lacks them.
	Besides []*jsontree.Node
	// Again is set if the fragment is a whole pod: the result of injecting the same pod again. Then items must have the same
	// positions. Resources are compared, too, because they may be the user's own.
	Again bool
	// Unfinished is set if the template can still add what the pod lacks. So that is no difference.
	Unfinished bool
}

func (d Comparison) differenceHere(pod, fragment *jsontree.Node) *Difference {
	return &Difference{d.At.String(), pod, fragment}
}

// FindAtPath returns the first difference at or below a protected path, or nil.
func (d Comparison) FindAtPath(pod, fragment *jsontree.Node, path []string) *Difference {
	if len(path) == 0 {
		return d.FindDifference(pod, fragment)
	}
	return d.atMember(path[0], pod).FindAtPath(pod.Get(path[0]), fragment.Get(path[0]), path[1:])
}

// FindEachProtected calls add with the first difference in each protected field of a container.
func (d Comparison) FindEachProtected(t *templates.Template, pod, fragment *jsontree.Node, add func(*Difference)) {
	for _, of := range [2]*jsontree.Node{fragment, pod} {
		members := of.Members()
		for i := range members {
			name := members[i].Name()
			if !t.Protects(name) || of == pod && fragment.Get(name) != nil {
				continue
			}
			add(d.FindProtected(t, name, pod, fragment))
		}
	}
}

// FindProtected returns the first difference in a field of a container that a template protects, or nil. If the template protects all
// fields and does not name this one, other webhooks may add to it, unless that changes the user.
func (d Comparison) FindProtected(t *templates.Template, name string, pod, fragment *jsontree.Node) *Difference {
	if t.LeavesOpen(name) {
		return d.findBeside(name, pod, fragment, hardensSameUser)
	}
	return d.atMember(name, pod).FindDifference(pod.Get(name), fragment.Get(name))
}

// FindBesideOthers returns the first difference in a field of a container, or nil. It ignores what other webhooks often add to this field
// of all containers.
func (d Comparison) FindBesideOthers(name string, pod, fragment *jsontree.Node) *Difference {
	return d.findBeside(name, pod, fragment, hardensContainer)
}

// findBeside implements FindBesideOthers and FindProtected. The function hardens reports whether other webhooks may add a field to a
// security context.
func (d Comparison) findBeside(name string, pod, fragment *jsontree.Node, hardens func(*jsontree.Node) bool) *Difference {
	there, ours := pod.Get(name), fragment.Get(name)
	switch {
	case name == "securityContext":
		there = withoutHardening(d.Pod.Nodes, there, ours, hardens)
	case name == "terminationMessagePolicy" && ours == nil && there.IsText(string(corev1.TerminationMessageFallbackToLogsOnError)):
		return nil
	}
	member := d.atMember(name, pod)
	member.open = templates.IsOpen(name)
	return member.FindDifference(there, ours)
}

func (d Comparison) atMember(name string, in *jsontree.Node) Comparison {
	member := Comparison{Pod: d.Pod, At: d.At.Member(name), Field: d.Field.At(name), name: name, in: in, Stored: d.Stored, Again: d.Again, Unfinished: d.Unfinished}
	for _, n := range d.Besides {
		if value := n.Get(name); value != nil {
			member.Besides = append(member.Besides, value)
		}
	}
	return member
}

// FindDifference returns the first place at or below d where the pod lacks something of the fragment, has another value or has more, or
// nil. It ignores what Kubernetes itself sets or drops.
func (d Comparison) FindDifference(pod, fragment *jsontree.Node) *Difference {
	if d.Field.AbsentIsZero && fragment != nil && schema.IsZero(fragment) {
		fragment = nil // for the API server, a zero value is the same as no value
	}
	if pod.Kind() == jsontree.Null {
		pod = nil
	}
	if fragment != nil && d.Field.Shape == schema.Unit {
		d.Besides = nil // nothing is added to a unit
	}
	switch {
	case pod == nil && fragment == nil:
		return nil
	case fragment == nil && d.open && pod.Kind() == jsontree.Array:
		return d.findItem(pod, new(jsontree.Items()))
	case fragment == nil || fragment.Kind() == jsontree.Null:
		if pod == nil || (d.Field.AbsentIsZero || d.Field.AlwaysSent) && schema.IsZero(pod) || d.mayBeDefault(pod) || d.Stored && d.Field.Droppable(pod) {
			return nil
		}
		return d.findExtra(pod)
	case pod == nil:
		if d.Unfinished || d.Field.Droppable(fragment) || d.Field.Implies(d.in, fragment, d.Pod.OnHost) ||
			d.name == "imagePullPolicy" && d.Field.Default(d.in).IsText(string(corev1.PullAlways)) {
			return nil
		}
		return d.differenceHere(pod, fragment)
	case pod.Kind() != fragment.Kind():
		if d.Field.Quantity && d.Field.EqualScalars(pod, fragment) {
			return nil
		}
		return d.differenceHere(pod, fragment)
	case fragment.Kind() == jsontree.Object:
		return d.findMember(pod, fragment)
	case fragment.Kind() == jsontree.Array:
		return d.findItem(pod, fragment)
	case d.Field.EqualScalars(pod, fragment) || d.name == "imagePullPolicy" && pod.IsText(string(corev1.PullAlways)):
		return nil // the AlwaysPullImages admission plugin sets it
	}
	return d.differenceHere(pod, fragment)
}

// findExtra returns the first place at or below d with something in the pod that other templates do not add, or nil. The fragment has
// nothing at d. If several templates can add to the place, each part of the pod's value must come from one of them. Otherwise, the whole
// value must.
func (d Comparison) findExtra(pod *jsontree.Node) *Difference {
	alone := d
	alone.Besides = nil
	switch shape := d.Field.Shape; {
	case len(d.Besides) == 0:
	case shape == schema.KeyedList && pod.Kind() == jsontree.Array:
		return d.findItem(pod, new(jsontree.Items()))
	case shape != schema.KeyedList && shape != schema.Unit && shape != schema.Set && pod.Kind() == jsontree.Object:
		return d.findMember(pod, new(jsontree.Members()))
	case slices.ContainsFunc(d.Besides, func(n *jsontree.Node) bool { return alone.FindDifference(pod, n) == nil }):
		return nil
	}
	return d.differenceHere(pod, nil)
}

func (d Comparison) findMember(pod, fragment *jsontree.Node) *Difference {
	if d.Field.GoType == schema.ResourcesType() {
		pod = schema.WithRequests(pod, fragment)
	}
	members := fragment.Members()
	for i := range members {
		name := members[i].Name()
		if found := d.atMember(name, pod).FindDifference(pod.Get(name), &members[i]); found != nil {
			return found
		}
	}
	members = pod.Members()
	for i := range members {
		name := members[i].Name()
		if fragment.Get(name) != nil {
			continue
		}
		if found := d.atMember(name, pod).FindDifference(&members[i], nil); found != nil {
			return found
		}
	}
	return nil
}

// findItem compares two lists. It compares lists without a key item by item. In lists with a key, it compares
// the items with equal keys, and each key may occur only once.
func (d Comparison) findItem(pod, fragment *jsontree.Node) *Difference {
	theirs, own := pod.Items(), fragment.Items()
	elem := d.Field.Elem
	if elem == nil {
		elem = &schema.Schema{}
	}
	if d.open && d.Field.Shape != schema.KeyedList {
		return d.findInOrder(theirs, own, elem)
	}
	if d.Field.Shape != schema.KeyedList || d.Again && len(theirs) == len(own) {
		if len(theirs) != len(own) {
			return d.differenceHere(pod, fragment)
		}
		for i := range own {
			if found := d.atItem(elem, theirs, i).FindDifference(&theirs[i], &own[i]); found != nil {
				return found
			}
		}
		return nil
	}
	next, used := 0, make([]bool, len(own))
	for i := range theirs {
		at := d.Field.Find(own, &theirs[i])
		switch {
		case at < 0 && (d.open && !theirs[i].Get("mountPath").IsText(validation.TokenPath) || d.isTokenMount(&theirs[i])):
			continue
		case at < 0 || used[at]: // an item that the fragment lacks, or a second one with its key, which takes effect, too
			if found := d.atExtraItem(elem, theirs, i).findExtra(&theirs[i]); found != nil {
				return found
			}
			continue
		case at < next && (d.Again || d.name == "env" && schema.DependsOnOrder(own)):
			return d.differenceHere(pod, fragment)
		}
		next, used[at] = at, true
		if found := d.atItem(elem, theirs, i).FindDifference(&theirs[i], &own[at]); found != nil {
			return found
		}
	}
	for i := range own {
		if !used[i] && !d.Unfinished {
			return &Difference{d.At.Member("-").String(), nil, &own[i]}
		}
	}
	return nil
}

// findInOrder returns the first item of a list without a key that the pod lacks. Others may have added items before and
// after it.
func (d Comparison) findInOrder(theirs, own []jsontree.Node, elem *schema.Schema) *Difference {
	next := 0
	for i := range own {
		for next < len(theirs) && d.atItem(elem, theirs, next).FindDifference(&theirs[next], &own[i]) != nil {
			next++
		}
		if next == len(theirs) {
			return &Difference{d.At.Member("-").String(), nil, &own[i]}
		}
		next++
	}
	return nil
}

func (d Comparison) atItem(elem *schema.Schema, items []jsontree.Node, i int) Comparison {
	return Comparison{Pod: d.Pod, At: d.At.Item(items, i), Field: elem.AsField(), Stored: d.Stored, Again: d.Again, Unfinished: d.Unfinished}
}

// atExtraItem is atItem for an item that the fragment lacks. Other templates may have added it. They never add a second item with
// the same key, so only the first one can be theirs.
func (d Comparison) atExtraItem(elem *schema.Schema, items []jsontree.Node, i int) Comparison {
	item := d.atItem(elem, items, i)
	for _, list := range d.Besides {
		others := list.Items()
		if found := d.Field.Find(others, &items[i]); found >= 0 && d.Field.Find(items[:i], &items[i]) < 0 {
			item.Besides = append(item.Besides, &others[found])
		}
	}
	return item
}

// isTokenMount reports whether an item of a list is the mount of the API token that the ServiceAccount plugin adds, or the mount that
// Pillion adds in its place.
func (d Comparison) isTokenMount(mount *jsontree.Node) bool {
	volume := mount.Get("name")
	return d.name == "volumeMounts" && volume != nil && len(mount.Members()) == 3 &&
		mount.Get("readOnly").Kind() == jsontree.True && mount.Get("mountPath") != nil && mount.Get("mountPath").IsText(validation.TokenPath) &&
		(volume.IsText(validation.NoTokenVolume) || d.Pod.Volumes.IsTokenVolume(volume.Text()))
}

// mayBeDefault reports whether Kubernetes itself may have set a value that the template lacks: a default,
// the ServiceAccount plugin's mount, or a LimitRange's resources.
func (d Comparison) mayBeDefault(pod *jsontree.Node) bool {
	if d.Field.Parent == nil {
		return d.Field.Quantity && !d.Again // the quantity of a resource
	}
	switch field := d.Field.Parent.Name() + "." + d.name; field {
	case "ResourceRequirements.requests":
		return !d.Again || d.in != nil && d.Field.Contains(cmp.Or(d.in.Get("limits"), pod), pod) // requests default to limits
	case "Container.resources", "ResourceRequirements.limits":
		return !d.Again
	case "Container.imagePullPolicy", "ImageVolumeSource.pullPolicy":
		return pod.IsText(string(corev1.PullAlways)) || pod.IsText(string(corev1.PullIfNotPresent))
	case "Container.volumeMounts":
		mounts := pod.Items()
		return len(mounts) == 1 && d.isTokenMount(&mounts[0])
	case "ContainerPort.hostPort":
		return d.Pod.OnHost && d.in != nil && schema.SameNumber(pod, cmp.Or(d.in.Get("containerPort"), pod))
	default:
		value, ok := schema.Default(field)
		return ok && pod.String() == value
	}
}
