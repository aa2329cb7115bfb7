// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// The container runtime needs a directory or a file at each path at which something is mounted, and a directory as the
// working directory. It creates missing ones, but not inside a read-only volume, and nothing inside a file. The kubelet creates
// directories inside of the volumes whose content it writes, but no files (MakeNestedMountpoints in pkg/volume/util). It creates
// nothing inside of other volumes. An emptyDir that no container may write to is empty. What other read-only volumes contain is
// not known.

// mountFault is a reason why a container cannot start.
type mountFault struct {
	mount  *jsontree.Node   // without this mount, the container could start
	within *jsontree.Node   // the mount inside of which it is, or nil
	parts  []*jsontree.Node // mounts and fields that cause it; a template caused it if it has added one of them
	why    string
	advice string
}

// mountPoint is a path at which a container needs something.
type mountPoint struct {
	path  string
	mount *jsontree.Node // nil for what the kubelet or the runtime mounts in every container, and for the working directory
	field *jsontree.Node // the field of the container that names the path, or nil
	what  string         // words for what is at the path, if there is no mount
	kind  entry          // what must be at the path, as far as that is known
	// always is set for a file that the kubelet or the runtime mounts in every container.
	always bool
}

// runtimeFiles are the paths of files that the kubelet and each container runtime mount in every container in which nothing else
// is mounted there.
func runtimeFiles() [3]mountPoint {
	return [...]mountPoint{
		{path: "/etc/hosts", what: "the pod's file of host names", kind: file, always: true},
		{path: "/etc/hostname", what: "the file with the pod's host name", kind: file, always: true},
		{path: "/etc/resolv.conf", what: "the file with the DNS servers", kind: file, always: true},
	}
}

// mountChecker finds mounts that cannot be made in containers. It keeps its slices, because the next container can use their memory.
type mountChecker struct {
	podVolumes
	mounts []*jsontree.Node
	points []mountPoint
	around []*mountPoint
}

// impossibleMounts returns what keeps a container from starting because of its mounts.
func (p *mountChecker) impossibleMounts(container *jsontree.Node) []mountFault {
	if isSimple(container) {
		return nil
	}
	p.mounts = p.mountsOf(container, p.mounts[:0])
	mounts := p.mounts
	if len(mounts) == 0 {
		return nil
	}
	points, all := p.mountPoints(container, mounts)
	// In this order, a path follows the paths that contain it. So one walk finds the innermost point around each point.
	slices.SortStableFunc(points, func(a, b mountPoint) int { return compareMountPaths(a.path, b.path) })
	p.points = points
	around := p.around[:0] // the points that contain the next point, the innermost last
	for i := range points {
		inner := &points[i]
		for len(around) > 0 && around[len(around)-1].path != inner.path && !isInside(inner.path, around[len(around)-1].path) {
			around = around[:len(around)-1]
		}
		var outer *mountPoint
		if len(around) > 0 {
			outer = around[len(around)-1]
		}
		switch {
		case outer == nil:
		case outer.path != inner.path:
			if why := p.whyImpossibleInside(container, outer, inner); why != "" {
				all = append(all, faultInside(outer, inner, why))
			}
		case inner.mount == nil && outer.kind != unknownEntry && (outer.kind == directory) != (inner.kind == directory):
			all = append(all, faultAt(outer, inner))
		}
		if inner.isWorkingDir() {
			continue // it contains nothing
		}
		if outer != nil && outer.path == inner.path {
			around = around[:len(around)-1]
		}
		around = append(around, inner)
	}
	p.around = around
	return all
}

// mountPoints returns the paths at which a container needs something, in any order, and the faults of mounts that do not depend on
// other paths.
func (p *mountChecker) mountPoints(container *jsontree.Node, mounts []*jsontree.Node) (points []mountPoint, all []mountFault) {
	points = slices.Grow(p.points[:0], len(mounts)+5)
	for _, mount := range mounts {
		m := mountPoint{path: absolutePath(schema.MountPath(mount)), mount: mount, kind: p.kindOf(container, mount)}
		if why := validation.ReservedPath(m.path); why != "" && p.volumeOf(mount).Get("hostPath") == nil {
			all = append(all, mountFault{mount: mount, parts: []*jsontree.Node{mount}, why: why, advice: otherPath})
		}
		if why := p.whyInsideFile(container, mount); why != "" {
			all = append(all, mountFault{mount: mount, parts: []*jsontree.Node{mount}, why: why, advice: "correct the sub path"})
		}
		points = append(points, m)
	}
	for _, f := range runtimeFiles() {
		if !slices.ContainsFunc(points, func(m mountPoint) bool { return m.path == f.path }) {
			points = append(points, f)
		}
	}
	points = append(points, mountPoint{path: messagePath(container), field: container.Get("terminationMessagePath"), what: "the file for the termination message", kind: file})
	if dir := workingDir(container); dir != "" {
		points = append(points, mountPoint{path: dir, field: container.Get("workingDir"), kind: directory})
	}
	return points, all
}

// fewPaths is the greatest number of paths that isSimple compares in pairs. If there are more, it sorts them, because the number of
// pairs would grow with the square.
const fewPaths = 32

// isSimple reports whether the mounts of a container are all beside each other, and beside the other paths at which it needs something.
// Then impossibleMounts finds no fault. This check is faster, and true for most containers.
func isSimple(container *jsontree.Node) bool {
	var room [fewPaths]string
	paths := append(room[:0], "/etc/hosts", "/etc/hostname", "/etc/resolv.conf", messagePath(container))
	if dir := workingDir(container); dir != "" {
		paths = append(paths, dir)
	}
	if slices.ContainsFunc(paths, isInsideToken) {
		return false
	}
	mounts := container.Get("volumeMounts").Items()
	isLong := len(paths)+len(mounts) > len(room)
	if isLong {
		paths = slices.Grow(paths, len(mounts))
	}
	for i := range mounts {
		at := absolutePath(schema.MountPath(&mounts[i]))
		if validation.ReservedPath(at) != "" || isInsideToken(at) || isInside(validation.TokenPath, at) ||
			mounts[i].Get("subPathExpr") != nil || strings.Contains(mounts[i].Get("subPath").Text(), "/") {
			return false
		}
		for _, other := range paths {
			if isLong {
				break // comparing all with each other takes time
			}
			if at == other || isInside(at, other) || isInside(other, at) {
				return false
			}
		}
		paths = append(paths, at)
	}
	if isLong {
		slices.SortFunc(paths, compareMountPaths)
		for i, at := range paths[1:] { // a path comes directly before those inside it
			if before := paths[i]; at == before || isInside(at, before) {
				return false
			}
		}
	}
	return true
}

func (m *mountPoint) isWorkingDir() bool { return m.mount == nil && m.kind == directory }

const (
	otherPath = "mount it at another path"
	otherDir  = "change the working directory, or mount the volume at another path"
)

// faultAt returns the fault that two things are at the same path, of which one must be a directory and the other one a file.
func faultAt(outer, inner *mountPoint) mountFault {
	fault := mountFault{mount: outer.mount, parts: []*jsontree.Node{outer.mount, inner.field}, why: fmt.Sprintf("%s is mounted at %s, too", inner.what, inner.path), advice: otherPath}
	if inner.isWorkingDir() {
		fault.why, fault.advice = fmt.Sprintf("its working directory is %s, where %s is mounted", inner.path, outer.describeMount()), otherDir
	}
	return fault
}

// faultInside returns the fault that inner cannot be inside of outer. Why is a sentence with the reason.
func faultInside(outer, inner *mountPoint, why string) mountFault {
	fault := mountFault{mount: cmp.Or(inner.mount, outer.mount), within: outer.mount, parts: []*jsontree.Node{inner.mount, inner.field, outer.mount, outer.field}, why: why, advice: otherPath}
	if inner.isWorkingDir() {
		fault.advice = otherDir
	}
	return fault
}

// whyImpossibleInside returns why inner cannot be inside of outer, the innermost mount around it, or "".
func (p *mountChecker) whyImpossibleInside(container *jsontree.Node, outer, inner *mountPoint) string {
	what := fmt.Sprintf("%s is mounted at %s", inner.describeMount(), inner.path)
	if inner.isWorkingDir() {
		what = "its working directory is " + inner.path
	}
	if outer.kind == file || outer.kind == keyFile {
		return fmt.Sprintf("%s, inside of %s, which is %s", what, outer.path, outer.describeMount())
	}
	if outer.mount == nil || !p.isKnown(outer.mount) {
		return ""
	}
	volume := p.volumeOf(outer.mount)
	part, known := p.subPath(container, outer.mount)
	if !known {
		return ""
	}
	if inner.acceptsEntry(p.entryAt(volume, joinPaths(part, inner.path[len(strings.TrimSuffix(outer.path, "/"))+1:]))) {
		return ""
	}
	lacks := map[bool]string{true: "that directory", false: "that file"}[inner.kind == directory]
	if inner.kind == unknownEntry {
		lacks = "that path"
	}
	return fmt.Sprintf("%s, inside of %s at %s, which is read-only and does not have %s", what, outer.describeMount(), outer.path, lacks)
}

// acceptsEntry reports whether a mount point can be made where a read-only volume has the entry is, or may have it.
func (m *mountPoint) acceptsEntry(is entry) bool {
	switch {
	case is == unknownEntry:
		return true
	case m.kind == unknownEntry:
		return is != noEntry
	case m.kind == directory:
		return is == directory
	}
	return is == file || is == keyFile && !m.always // no ConfigMap has files that are always mounted
}

// describeMount returns words for what is mounted.
func (m *mountPoint) describeMount() string {
	switch {
	case m.mount == nil:
		return m.what
	case m.kind == file, m.kind == keyFile:
		return "a file of " + describeVolume(m.mount)
	}
	return describeVolume(m.mount)
}

// compareMountPaths compares clean paths so that a path comes directly before those inside it.
func compareMountPaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return int(a[i]) - int(b[i])
		}
	}
	return len(a) - len(b)
}
