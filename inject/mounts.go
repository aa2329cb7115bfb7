// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/problem"
)

// checkMounts finds mounts that conflict with each other, and references to volumes that the pod
// does not have. It returns false if the fragment itself has two mounts at one path.
func (p *planner) checkMounts(existing, fragment *jsontree.Node, at schema.Pointer) (addable bool) {
	addable = true
	taken, many := make([]string, 0, 16), map[string]bool(nil) // many has the paths from the longList-th on, to save time
	container := cmp.Or(existing, fragment).Get("name").Text()
	for k, list := range mountLists() {
		items := fragment.Get(list).Items()
		for i := range items {
			path := schema.MountPath(&items[i])
			if many[path] || slices.Contains(taken, path) {
				p.reportConflict(at.Member(list), nil, &items[i], "the template mounts two volumes at %s; fix the template", path)
				addable = false
			}
			switch {
			case len(taken) < longList:
				taken = append(taken, path)
			case many == nil:
				many = make(map[string]bool, len(items))
				fallthrough
			default:
				many[path] = true
			}
			p.checkVolume(container, list, &items[i], at.Member(list))
		}
		p.checkBeside(mountLists()[1-k], existing, items, at)
	}
	return addable
}

// conflictsAtPath reports a conflict if a mount of the pod at the path of one of the fragment has another volume.
func (p *planner) conflictsAtPath(mount, fragment *jsontree.Node, at schema.Pointer) bool {
	there, path := mount.Get("name").Text(), mount.Get("mountPath").Text()
	if there == fragment.Get("name").Text() {
		return false
	}
	if other := p.findContributor(func(c *candidate) bool { return c.addsMount(mount) }); other != "" {
		p.reportConflict(at, mount, fragment, "the template %s mounts another volume (%s) at %s; change the path in one of the templates", other, there, path)
	} else {
		p.reportConflict(at, mount, fragment, "another volume (%s) is mounted at %s; mount that volume at another path", there, path)
	}
	return true
}

func mountLists() [2]string { return [2]string{"volumeMounts", "volumeDevices"} }

// checkBeside reports a conflict for each of the template's mounts at a path of the container's devices, and for each device at a path
// of its mounts. Other is the list of the container that items are compared with.
func (p *planner) checkBeside(other string, existing *jsontree.Node, items []jsontree.Node, at schema.Pointer) {
	theirs := existing.Get(other).Items()
	if len(items) == 0 || len(theirs) == 0 {
		return
	}
	paths := make(map[string]int, len(theirs))
	for j := range theirs {
		paths[schema.MountPath(&theirs[j])] = j
	}
	for i := range items {
		path := schema.MountPath(&items[i])
		j, ok := paths[path]
		if !ok {
			continue
		}
		owner, do := "the pod", "move that volume to another path"
		if by := p.findContributor(func(c *candidate) bool { return c.addsMount(&theirs[j]) }); by != "" {
			owner, do = "the template "+by, "change the path in one of the templates"
		}
		p.reportConflict(at.Member(other).Item(theirs, j), &theirs[j], &items[i], "%s has another kind of volume at %s; %s", owner, path, do)
	}
}

// checkVolume finds a mount or device whose volume does not exist, because a ${when} omitted the volume or because
// a name is an expression, and a volume of the wrong kind.
func (p *planner) checkVolume(container, list string, mount *jsontree.Node, at schema.Pointer) {
	volume, found := p.volumeOf(mount)
	name := mount.Get("name").Text()
	switch {
	case !found:
		p.noVolume(name, list, fmt.Sprintf("the container %s mounts the volume %q at %s", container, name, schema.MountPath(mount)))
	case list == "volumeDevices" && volume != nil && volume.Get("persistentVolumeClaim") == nil && volume.Get("ephemeral") == nil:
		p.reportConflict(at, volume, mount, "the container %s needs the volume %s as a device, so it must be of the kind persistentVolumeClaim or ephemeral", container, name)
	case mount.Get("bindMountOptions") != nil && volume.Get("image") != nil:
		p.reportConflict(at, volume, mount, "the container %s cannot have bindMountOptions for the volume %s, which is an image", container, name)
	}
}

// noVolume records that the template cannot be added because a volume does not exist. List is where a container uses the volume, and
// use describes that in words.
func (p *planner) noVolume(name, list, use string) {
	if p.failed != nil {
		return
	}
	var names []string
	for _, pod := range []*jsontree.Node{p.subject.pod, p.fragment} {
		volumes := pod.At("spec", "volumes").Items()
		for i := range volumes[:min(len(volumes), longList)] { // comparing names takes time
			names = append(names, volumes[i].Get("name").Text())
		}
	}
	p.failed = fmt.Errorf("%s, but the pod has no such volume%s", use, problem.DidYouMean(name, names))
	lacks := jsontree.Members(jsontree.Field("name", jsontree.Text(name)))
	if list == "volumeDevices" {
		lacks.Set("persistentVolumeClaim", jsontree.Members(jsontree.Field("claimName", jsontree.Text(name))))
	}
	at := p.subject.at.Member("spec").Member("volumes").Member("-")
	p.lacks = []Obstacle{{newDifference(at.String(), nil, &lacks), p.failed.Error()}}
}

// volumeOf returns the volume of a mount. It returns nil and true for a volume that a StatefulSet adds to
// the pod.
func (p *planner) volumeOf(mount *jsontree.Node) (volume *jsontree.Node, found bool) {
	s := p.subject.schema.At("spec").At("volumes").Schema // matches by name, as mounts refer to volumes
	own := p.fragment.At("spec", "volumes").Items()
	if i := s.Find(own, mount); i >= 0 {
		return &own[i], true
	}
	if volume = p.subject.FindVolume(mount); volume != nil {
		return volume, true
	}
	return nil, p.isClaim(mount)
}

// addsMount reports whether the template mounts this volume at that path in the user's containers.
func (c *candidate) addsMount(mount *jsontree.Node) bool {
	for i := range c.apps {
		for k := range c.apps[i].fragments {
			for _, list := range mountLists() {
				items := c.apps[i].fragments[k].Get(list).Items()
				if slices.ContainsFunc(items, func(m jsontree.Node) bool {
					return schema.MountPath(&m) == schema.MountPath(mount) && m.Get("name").IsText(mount.Get("name").Text())
				}) {
					return true
				}
			}
		}
	}
	return false
}
