// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// difference is a place where the pod and a fragment differ.
type difference struct {
	at            string
	pod, fragment *jsontree.Node
}

// comparedPod is what a comparison needs to know about the pod.
type comparedPod interface {
	// UsesHostNetwork reports whether the pod uses the node's network.
	UsesHostNetwork() bool
	// IsTokenVolume reports whether a volume of the pod with that name projects the pod's API token.
	IsTokenVolume(name string) bool
	// Arena returns memory for new nodes.
	Arena() *jsontree.Arena
}

// comparison is a place at which the pod is compared with a fragment, and how.
type comparison struct {
	pod  comparedPod
	at   schema.Pointer
	f    *schema.Field
	name string         // of the field at this place
	in   *jsontree.Node // the pod's object with this field
	// stored: the API server may drop some fields, so it is no difference if only the pod has one of these.
	stored bool
	// open: the place is a list to which other webhooks may add items.
	open bool
	// besides are what other templates add here. The pod may have it, although the fragment does not.
	besides []*jsontree.Node
	// again: a whole pod is compared with the result of injecting it again. Items must keep their
	// positions. Resources are compared, too, because they may be the user's own.
	again bool
	// unfinished: it is no difference if the pod lacks something, because it can be added.
	unfinished bool
}

func (d comparison) differenceHere(pod, fragment *jsontree.Node) *difference {
	return &difference{d.at.String(), pod, fragment}
}

// findAtPath returns the first difference at or below a protected path, or nil.
func (d comparison) findAtPath(pod, fragment *jsontree.Node, path []string) *difference {
	if len(path) == 0 {
		return d.findDifference(pod, fragment)
	}
	return d.atMember(path[0], pod).findAtPath(pod.Get(path[0]), fragment.Get(path[0]), path[1:])
}

// findEachProtected calls add with the first difference in each protected field of a container.
func (d comparison) findEachProtected(t *templates.Template, pod, fragment *jsontree.Node, add func(*difference)) {
	for _, of := range [2]*jsontree.Node{fragment, pod} {
		members := of.Members()
		for i := range members {
			name := members[i].Name()
			if !t.Protects(name) || of == pod && fragment.Get(name) != nil {
				continue
			}
			add(d.findProtected(t, name, pod, fragment))
		}
	}
}

// findProtected is findDifference for a field of a container that a template protects.
func (d comparison) findProtected(t *templates.Template, name string, pod, fragment *jsontree.Node) *difference {
	if t.LeavesOpen(name) {
		return d.findBeside(name, pod, fragment, hardensSameUser)
	}
	return d.atMember(name, pod).findDifference(pod.Get(name), fragment.Get(name))
}

// findBesideOthers is findDifference for a field of a container. It ignores what other webhooks often add to this field of all
// containers.
func (d comparison) findBesideOthers(name string, pod, fragment *jsontree.Node) *difference {
	return d.findBeside(name, pod, fragment, hardensContainer)
}

// findBeside is findBesideOthers. Hardens reports whether a field of a security context is such an addition.
func (d comparison) findBeside(name string, pod, fragment *jsontree.Node, hardens func(*jsontree.Node) bool) *difference {
	there, ours := pod.Get(name), fragment.Get(name)
	switch {
	case name == "securityContext":
		there = withoutHardening(d.pod.Arena(), there, ours, hardens)
	case name == "terminationMessagePolicy" && ours == nil && there.IsText(string(corev1.TerminationMessageFallbackToLogsOnError)):
		return nil
	}
	member := d.atMember(name, pod)
	member.open = templates.IsOpen(name)
	return member.findDifference(there, ours)
}

func (d comparison) atMember(name string, in *jsontree.Node) comparison {
	member := comparison{pod: d.pod, at: d.at.Member(name), f: d.f.At(name), name: name, in: in, stored: d.stored, again: d.again, unfinished: d.unfinished}
	for _, n := range d.besides {
		if value := n.Get(name); value != nil {
			member.besides = append(member.besides, value)
		}
	}
	return member
}

// findDifference returns the first place at or below d where the pod lacks, changes or exceeds the fragment.
// It ignores what Kubernetes itself sets or drops.
func (d comparison) findDifference(pod, fragment *jsontree.Node) *difference {
	if d.f.AbsentIsZero && fragment != nil && schema.IsZero(fragment) {
		fragment = nil // for the API server, a zero value is the same as no value
	}
	if pod.Kind() == jsontree.Null {
		pod = nil
	}
	if fragment != nil && d.f.Shape == schema.Unit {
		d.besides = nil // nothing is added to a unit
	}
	switch {
	case pod == nil && fragment == nil:
		return nil
	case fragment == nil && d.open && pod.Kind() == jsontree.Array:
		return d.findItem(pod, new(jsontree.Items()))
	case fragment == nil || fragment.Kind() == jsontree.Null:
		if pod == nil || (d.f.AbsentIsZero || d.f.AlwaysSent) && schema.IsZero(pod) || d.mayBeDefault(pod) || d.stored && d.f.Droppable(pod) {
			return nil
		}
		return d.findExtra(pod)
	case pod == nil:
		if d.unfinished || d.f.Droppable(fragment) || d.f.Implies(d.in, fragment, d.pod.UsesHostNetwork()) ||
			d.name == "imagePullPolicy" && d.f.Default(d.in).IsText(string(corev1.PullAlways)) {
			return nil
		}
		return d.differenceHere(pod, fragment)
	case pod.Kind() != fragment.Kind():
		if d.f.Quantity && d.f.EqualScalars(pod, fragment) {
			return nil
		}
		return d.differenceHere(pod, fragment)
	case fragment.Kind() == jsontree.Object:
		return d.findMember(pod, fragment)
	case fragment.Kind() == jsontree.Array:
		return d.findItem(pod, fragment)
	case d.f.EqualScalars(pod, fragment) || d.name == "imagePullPolicy" && pod.IsText(string(corev1.PullAlways)):
		return nil // the AlwaysPullImages admission plugin sets it
	}
	return d.differenceHere(pod, fragment)
}

// findExtra returns the first place at or below d with more in the pod than other templates add. If the place is merged as a
// whole, its value must be what one of them adds.
func (d comparison) findExtra(pod *jsontree.Node) *difference {
	alone := d
	alone.besides = nil
	switch shape := d.f.Shape; {
	case len(d.besides) == 0:
	case shape == schema.KeyedList && pod.Kind() == jsontree.Array:
		return d.findItem(pod, new(jsontree.Items()))
	case shape != schema.KeyedList && shape != schema.Unit && shape != schema.Set && pod.Kind() == jsontree.Object:
		return d.findMember(pod, new(jsontree.Members()))
	case slices.ContainsFunc(d.besides, func(n *jsontree.Node) bool { return alone.findDifference(pod, n) == nil }):
		return nil
	}
	return d.differenceHere(pod, nil)
}

func (d comparison) findMember(pod, fragment *jsontree.Node) *difference {
	if d.f.GoType == schema.ResourcesType() {
		pod = schema.WithRequests(pod, fragment)
	}
	members := fragment.Members()
	for i := range members {
		name := members[i].Name()
		if found := d.atMember(name, pod).findDifference(pod.Get(name), &members[i]); found != nil {
			return found
		}
	}
	members = pod.Members()
	for i := range members {
		name := members[i].Name()
		if fragment.Get(name) != nil {
			continue
		}
		if found := d.atMember(name, pod).findDifference(&members[i], nil); found != nil {
			return found
		}
	}
	return nil
}

// findItem compares two lists. It compares lists without a key item by item. In lists with a key, it compares
// the items with equal keys, and each key may occur only once.
func (d comparison) findItem(pod, fragment *jsontree.Node) *difference {
	theirs, own := pod.Items(), fragment.Items()
	elem := d.f.Elem
	if elem == nil {
		elem = &schema.Schema{}
	}
	if d.open && d.f.Shape != schema.KeyedList {
		return d.findInOrder(theirs, own, elem)
	}
	if d.f.Shape != schema.KeyedList || d.again && len(theirs) == len(own) {
		if len(theirs) != len(own) {
			return d.differenceHere(pod, fragment)
		}
		for i := range own {
			if found := d.atItem(elem, theirs, i).findDifference(&theirs[i], &own[i]); found != nil {
				return found
			}
		}
		return nil
	}
	next, used := 0, make([]bool, len(own))
	for i := range theirs {
		at := d.f.Find(own, &theirs[i])
		switch {
		case at < 0 && (d.open && !theirs[i].Get("mountPath").IsText(validation.TokenPath) || d.isTokenMount(&theirs[i])):
			continue
		case at < 0 || used[at]: // an additional item, which would take effect
			if found := d.atExtraItem(elem, theirs, i).findExtra(&theirs[i]); found != nil {
				return found
			}
			continue
		case at < next && (d.again || d.name == "env" && schema.DependsOnOrder(own)):
			return d.differenceHere(pod, fragment)
		}
		next, used[at] = at, true
		if found := d.atItem(elem, theirs, i).findDifference(&theirs[i], &own[at]); found != nil {
			return found
		}
	}
	for i := range own {
		if !used[i] && !d.unfinished {
			return &difference{d.at.Member("-").String(), nil, &own[i]}
		}
	}
	return nil
}

// findInOrder returns the first item of a list without a key that the pod lacks. Others may have added items before and
// after it.
func (d comparison) findInOrder(theirs, own []jsontree.Node, elem *schema.Schema) *difference {
	next := 0
	for i := range own {
		for next < len(theirs) && d.atItem(elem, theirs, next).findDifference(&theirs[next], &own[i]) != nil {
			next++
		}
		if next == len(theirs) {
			return &difference{d.at.Member("-").String(), nil, &own[i]}
		}
		next++
	}
	return nil
}

func (d comparison) atItem(elem *schema.Schema, items []jsontree.Node, i int) comparison {
	return comparison{pod: d.pod, at: d.at.Item(items, i), f: elem.AsField(), stored: d.stored, again: d.again, unfinished: d.unfinished}
}

// atExtraItem is atItem for an item that the fragment lacks. Other templates may have added it. They never add a second item with
// the same key, so only the first one can be theirs.
func (d comparison) atExtraItem(elem *schema.Schema, items []jsontree.Node, i int) comparison {
	item := d.atItem(elem, items, i)
	for _, list := range d.besides {
		others := list.Items()
		if found := d.f.Find(others, &items[i]); found >= 0 && d.f.Find(items[:i], &items[i]) < 0 {
			item.besides = append(item.besides, &others[found])
		}
	}
	return item
}

// isTokenMount reports whether an item of a list is the mount of the API token that the ServiceAccount plugin adds, or the mount that
// Pillion adds in its place.
func (d comparison) isTokenMount(mount *jsontree.Node) bool {
	volume := mount.Get("name")
	return d.name == "volumeMounts" && volume != nil && len(mount.Members()) == 3 &&
		mount.Get("readOnly").Kind() == jsontree.True && mount.Get("mountPath") != nil && mount.Get("mountPath").IsText(validation.TokenPath) &&
		(volume.IsText(validation.NoTokenVolume) || d.pod.IsTokenVolume(volume.Text()))
}

// mayBeDefault reports whether Kubernetes itself may have set a value that the template lacks: a default,
// the ServiceAccount plugin's mount, or a LimitRange's resources.
func (d comparison) mayBeDefault(pod *jsontree.Node) bool {
	if d.f.Parent == nil {
		return d.f.Quantity && !d.again // the quantity of a resource
	}
	switch field := d.f.Parent.Name() + "." + d.name; field {
	case "ResourceRequirements.requests":
		return !d.again || d.in != nil && d.f.Contains(cmp.Or(d.in.Get("limits"), pod), pod) // requests default to limits
	case "Container.resources", "ResourceRequirements.limits":
		return !d.again
	case "Container.imagePullPolicy", "ImageVolumeSource.pullPolicy":
		return pod.IsText(string(corev1.PullAlways)) || pod.IsText(string(corev1.PullIfNotPresent))
	case "Container.volumeMounts":
		mounts := pod.Items()
		return len(mounts) == 1 && d.isTokenMount(&mounts[0])
	case "ContainerPort.hostPort":
		return d.pod.UsesHostNetwork() && d.in != nil && schema.SameNumber(pod, cmp.Or(d.in.Get("containerPort"), pod))
	default:
		value, ok := schema.Default(field)
		return ok && pod.String() == value
	}
}
