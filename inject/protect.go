// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/tree"
)

// noContainer reports whether none of the template's containers is in the pod, unless it
// is the pod's own.
func (c *candidate) noContainer() bool {
	return c.annotation(c.t.customize).IsText("true") || !slices.ContainsFunc(c.t.Containers, c.has)
}

// absent reports whether nothing in the pod shows that the template was ever injected.
// The record of the injection alone does not: it may be forged, or copied from another
// pod. Nor does the record of another template.
func (p *planner) absent(noContainer bool) bool {
	return noContainer && p.moreThanRecord() && (!p.wasInjected || !p.found)
}

// moreThanRecord reports whether something besides the record of the injection is missing.
func (p *planner) moreThanRecord() bool {
	record := annotationPath(p.t.injected)
	alone := fmt.Sprintf("{%q:%q}", p.t.injected, p.t.Revision) // if the pod has no annotations
	return slices.ContainsFunc(p.added, func(at Place) bool { return at.Path != record && at.Template != alone })
}

// altered are the protected fields of the template's containers that differ
// from the template, the first place of each.
func (c *candidate) altered() []Place {
	if len(c.t.protect) == 0 {
		return nil
	}
	var all []Place
	for _, list := range containerLists() {
		own, existing := c.fragment.At("spec", list).Items(), c.pod.At("spec", list).Items()
		if len(existing) == 0 {
			continue
		}
		containers := c.schema.At("spec").At(list)
		for i := range own {
			if found := containers.Find(existing, &own[i]); found >= 0 { // else it is missing, which says it all
				all = append(all, c.alteredIn(&existing[found], &own[i], c.beside.Member("spec").Member(list).Item(existing, found))...)
			}
		}
	}
	return all
}

// alteredIn is altered of one container.
func (c *candidate) alteredIn(existing, own *tree.Node, at schema.Pointer) []Place {
	var all []Place
	add := func(d *difference) {
		if d != nil && !slices.ContainsFunc(all, func(p Place) bool { return p.Path == d.at }) {
			all = append(all, newPlace(d.at, d.pod, d.fragment))
		}
	}
	container := comparison{candidate: c, at: at, f: c.schema.At("spec").At("containers").Elem.AsField()}
	for _, path := range c.t.protect {
		if path[0] == templates.ProtectAll {
			container.everything(existing, own, add)
		} else {
			add(container.within(existing, own, path))
		}
	}
	return all
}

// difference is a place where the pod and a fragment differ.
type difference struct {
	at            string
	pod, fragment *tree.Node
}

// comparison is of one place of the pod and the fragment.
type comparison struct {
	*candidate
	at   schema.Pointer
	f    *schema.Field
	name string     // of the place in the object that it is a field of
	in   *tree.Node // the pod's object that it is a field of
	// stored: what the API server may drop of the pod does not count, as if it had.
	stored bool
	// again: of a whole pod and what injecting it again makes. Items keep their places, and
	// resources count, for they may be the user's own.
	again bool
}

func (d comparison) differ(pod, fragment *tree.Node) *difference {
	return &difference{d.at.String(), pod, fragment}
}

// within goes down a protected path and gives the first difference there, or nil.
func (d comparison) within(pod, fragment *tree.Node, path []string) *difference {
	if len(path) == 0 {
		return d.find(pod, fragment)
	}
	return d.member(path[0]).within(pod.Get(path[0]), fragment.Get(path[0]), path[1:])
}

// everything gives the first difference in each protected field of a container.
func (d comparison) everything(pod, fragment *tree.Node, add func(*difference)) {
	for _, of := range [2]*tree.Node{fragment, pod} {
		members := of.Members()
		for i := range members {
			name := members[i].Name()
			if !d.t.Protects(name) || of == pod && fragment.Get(name) != nil {
				continue
			}
			add(d.member(name).find(pod.Get(name), fragment.Get(name)))
		}
	}
}

func (d comparison) member(name string) comparison {
	return comparison{candidate: d.candidate, at: d.at.Member(name), f: d.f.At(name), name: name, stored: d.stored, again: d.again}
}

// find is the first place at or below d where the pod is not what the fragment
// says, or says more. What Kubernetes itself fills in, or drops, does not count.
func (d comparison) find(pod, fragment *tree.Node) *difference {
	if d.f.AbsentIsZero && fragment != nil && schema.IsZero(fragment) {
		fragment = nil // which the API server takes for nothing, too
	}
	if pod.Kind() == tree.Null {
		pod = nil
	}
	switch {
	case pod == nil && fragment == nil:
		return nil
	case fragment == nil || fragment.Kind() == tree.Null:
		if pod == nil || (d.f.AbsentIsZero || d.f.AlwaysSent) && schema.IsZero(pod) || d.fills(pod) || d.stored && d.f.Droppable(pod) {
			return nil
		}
		return d.differ(pod, fragment)
	case pod == nil:
		if d.f.Droppable(fragment) {
			return nil
		}
		return d.differ(pod, fragment)
	case pod.Kind() != fragment.Kind():
		if d.f.Quantity && d.f.EqualScalars(pod, fragment) {
			return nil
		}
		return d.differ(pod, fragment)
	case fragment.Kind() == tree.Object:
		return d.findMember(pod, fragment)
	case fragment.Kind() == tree.Array:
		return d.findItem(pod, fragment)
	case d.f.EqualScalars(pod, fragment) || d.name == "imagePullPolicy" && pod.IsText(string(corev1.PullAlways)):
		return nil // AlwaysPullImages
	}
	return d.differ(pod, fragment)
}

func (d comparison) findMember(pod, fragment *tree.Node) *difference {
	members := fragment.Members()
	for i := range members {
		name := members[i].Name()
		if found := d.member(name).find(pod.Get(name), &members[i]); found != nil {
			return found
		}
	}
	members = pod.Members()
	for i := range members {
		name := members[i].Name()
		if fragment.Get(name) != nil {
			continue
		}
		extra := d.member(name)
		extra.in = pod
		if found := extra.find(&members[i], nil); found != nil {
			return found
		}
	}
	return nil
}

// findItem compares lists: those without a key item by item, the others by their
// keys, each of which may stand there once.
func (d comparison) findItem(pod, fragment *tree.Node) *difference {
	theirs, own := pod.Items(), fragment.Items()
	elem := d.f.Elem
	if elem == nil {
		elem = &schema.Schema{}
	}
	if d.f.Shape != schema.KeyedList || d.again && len(theirs) == len(own) {
		if len(theirs) != len(own) {
			return d.differ(pod, fragment)
		}
		for i := range own {
			if found := d.item(elem, theirs, i).find(&theirs[i], &own[i]); found != nil {
				return found
			}
		}
		return nil
	}
	next, used := 0, make([]bool, len(own))
	for i := range theirs {
		at := d.f.Find(own, &theirs[i])
		switch {
		case at < 0 && d.isTokenMount(&theirs[i]):
			continue
		case at < 0 || used[at]: // one more, which would win
			return d.item(elem, theirs, i).differ(&theirs[i], nil)
		case (d.name == "env" || d.again) && at < next:
			return d.differ(pod, fragment) // a variable may refer to those before it
		}
		next, used[at] = at, true
		if found := d.item(elem, theirs, i).find(&theirs[i], &own[at]); found != nil {
			return found
		}
	}
	for i := range own {
		if !used[i] {
			return &difference{d.at.Member("-").String(), nil, &own[i]}
		}
	}
	return nil
}

func (d comparison) item(elem *schema.Schema, items []tree.Node, i int) comparison {
	return comparison{candidate: d.candidate, at: d.at.Item(items, i), f: elem.AsField(), stored: d.stored, again: d.again}
}

// isTokenMount says whether an item of a list is what the ServiceAccount plugin
// adds, or what Pillion put in its place.
func (d comparison) isTokenMount(mount *tree.Node) bool {
	volume := mount.Get("name")
	return d.name == "volumeMounts" && volume != nil && len(mount.Members()) == 3 &&
		mount.Get("readOnly").Kind() == tree.True && mount.Get("mountPath") != nil && mount.Get("mountPath").IsText(templates.TokenPath) &&
		(volume.IsText(templates.NoTokenVolume) || d.isTokenVolume(volume.Text()))
}

// isTokenVolume says whether the volume of that name projects the pod's API token:
// its name alone anyone can give to a volume.
func (r *run) isTokenVolume(name string) bool {
	if r.volumes == nil {
		r.volumes = map[string]bool{}
		volumes := r.pod.At("spec", "volumes").Items()
		for i := range volumes {
			name := volumes[i].Get("name").Text()
			if _, twice := r.volumes[name]; !twice && strings.HasPrefix(name, templates.TokenVolumePrefix) {
				sources := volumes[i].At("projected", "sources").Items()
				r.volumes[name] = slices.ContainsFunc(sources, func(s tree.Node) bool { return s.Get("serviceAccountToken") != nil })
			}
		}
	}
	return r.volumes[name]
}

// sameVolume says whether the pod's volume is the template's: nothing less, and
// nothing more than Kubernetes' defaults. The webhooks must agree about it, the first of
// which sees the fields that the API server drops before it calls the second.
func (c *candidate) sameVolume(pod, fragment *tree.Node, s *schema.Schema, at schema.Pointer) bool {
	return comparison{candidate: c, at: at, f: s.AsField(), stored: true}.find(c.withSource(pod), c.withSource(fragment)) == nil
}

// withSource is a volume with the source that Kubernetes gives to one that has none.
func (c *candidate) withSource(volume *tree.Node) *tree.Node {
	members := volume.Members()
	if slices.ContainsFunc(members, func(m tree.Node) bool { return m.Name() != "name" && m.Kind() != tree.Null }) {
		return volume
	}
	return new(c.nodes().With(volume, "emptyDir", tree.Members()))
}

// fills says whether Kubernetes itself may have put something into a container
// where the template says nothing: a default, the ServiceAccount plugin's mount,
// or a LimitRange's resources.
func (d comparison) fills(pod *tree.Node) bool {
	if d.f.Parent == nil {
		return d.f.Quantity && !d.again // of a resource
	}
	switch place := d.f.Parent.Name() + "." + d.name; place {
	case "ResourceRequirements.requests":
		return !d.again || d.in != nil && d.f.Contains(orElse(d.in.Get("limits"), pod), pod) // its default
	case "Container.resources", "ResourceRequirements.limits":
		return !d.again
	case "Container.imagePullPolicy", "ImageVolumeSource.pullPolicy":
		return pod.IsText(string(corev1.PullAlways)) || pod.IsText(string(corev1.PullIfNotPresent))
	case "Container.volumeMounts":
		mounts := pod.Items()
		return len(mounts) == 1 && d.isTokenMount(&mounts[0])
	case "ContainerPort.hostPort":
		return d.onHost && d.in != nil && schema.SameNumber(pod, orElse(d.in.Get("containerPort"), pod))
	default:
		value, ok := schema.Default(place)
		return ok && pod.String() == value
	}
}
