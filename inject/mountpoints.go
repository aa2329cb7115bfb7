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

// The container runtime needs a directory, or a file, at each path at which something is mounted. It creates this
// itself, but not inside a read-only volume. The kubelet creates directories inside of the volumes that it writes,
// never files (MakeNestedMountpoints in pkg/volume/util), and nothing inside of other read-only volumes. What those
// contain is not known.

// mountFault is a mount without which the container could start.
type mountFault struct {
	mount  *tree.Node // the mount
	within *tree.Node // the mount that contains it, or nil
	path   string
	why    string
}

// mountPoint is a path at which something is mounted in a container.
type mountPoint struct {
	path  string
	mount *tree.Node // nil for a file that the kubelet mounts in every container
	what  string     // for that file
}

const hostsPath = "/etc/hosts"

// impossibleMounts returns the mounts that keep a container from starting, given the volume of each
// mount.
func impossibleMounts(container *tree.Node, volume func(mount *tree.Node) *tree.Node) (all []mountFault) {
	mounts := container.Get("volumeMounts").Items()
	if len(mounts) == 0 {
		return nil
	}
	points := make([]mountPoint, 0, len(mounts)+2)
	hosts := true
	for i := range mounts {
		m := mountPoint{path: absolute(mountPath(&mounts[i])), mount: &mounts[i]}
		hosts = hosts && m.path != hostsPath
		if why := templates.ReservedPath(m.path); why != "" && volume(&mounts[i]).Get("hostPath") == nil {
			all = append(all, mountFault{m.mount, nil, m.path, why})
		}
		points = append(points, m)
	}
	message := container.Get("terminationMessagePath").Text()
	if message == "" {
		message = corev1.TerminationMessagePathDefault
	}
	points = append(points, mountPoint{path: absolute(schema.CleanPath(message)), what: "the file for the termination message"})
	if hosts {
		points = append(points, mountPoint{path: hostsPath, what: "the pod's file of host names"})
	}
	slices.SortStableFunc(points, func(a, b mountPoint) int { return compareMountPaths(a.path, b.path) })
	var around []*mountPoint // those that contain the next one, the innermost last
	for i := range points {
		inner := &points[i]
		for len(around) > 0 && !isInside(inner.path, around[len(around)-1].path) {
			if last := around[len(around)-1]; last.path == inner.path && inner.mount == nil && last.mount != nil && surelyDirectory(last.mount, volume) {
				all = append(all, mountFault{last.mount, nil, last.path, fmt.Sprintf("%s is mounted at %s, too", inner.what, inner.path)})
			}
			around = around[:len(around)-1]
		}
		if len(around) > 0 {
			if outer := around[len(around)-1]; outer.mount != nil && lacks(outer, inner, volume) {
				all = append(all, mountFault{orElse(inner.mount, outer.mount), outer.mount, inner.path, insideReadOnly(outer, inner)})
			}
		}
		around = append(around, inner)
	}
	return all
}

func insideReadOnly(outer, inner *mountPoint) string {
	what := inner.what
	if inner.mount != nil {
		what = "a file of the volume " + inner.mount.Get("name").Text()
	}
	return fmt.Sprintf("%s is mounted at %s, inside of the volume %s at %s, which is read-only and does not have that file", what, inner.path, outer.mount.Get("name").Text(), outer.path)
}

func absolute(path string) string {
	switch {
	case path == ".":
		return "/"
	case strings.HasPrefix(path, "/"):
		return path
	}
	return "/" + path
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

func isInside(path, directory string) bool {
	return len(path) > len(directory) && strings.HasPrefix(path, directory) && (path[len(directory)] == '/' || directory == "/")
}

// lacks reports whether a file is mounted where the volume around it surely has none.
func lacks(outer, inner *mountPoint, volumeOf func(*tree.Node) *tree.Node) bool {
	if hasSubPath(outer.mount) {
		return false
	}
	volume := volumeOf(outer.mount)
	if !isWritten(volume) {
		return false
	}
	if inner.mount != nil {
		return surelyFile(inner.mount, volumeOf) // the kubelet creates a directory there
	}
	at := inner.path[len(strings.TrimSuffix(outer.path, "/"))+1:]
	if strings.HasPrefix(at, "..") {
		return false // the kubelet's own links to the content
	}
	for path := range filesOf(volume) {
		if path == anyKey && !strings.Contains(at, "/") && inner.path != hostsPath || path != anyKey && schema.CleanPath(path) == at {
			return false
		}
	}
	return true
}

func hasSubPath(mount *tree.Node) bool {
	return mount.Get("subPath").Text()+mount.Get("subPathExpr").Text() != ""
}

func surelyDirectory(mount *tree.Node, volumeOf func(*tree.Node) *tree.Node) bool {
	volume := volumeOf(mount)
	return !hasSubPath(mount) && (isWritten(volume) || volume.Get("emptyDir") != nil || volume.Get("persistentVolumeClaim") != nil || volume.Get("ephemeral") != nil)
}

// surelyFile reports whether a mount is a single file of a volume that the kubelet writes.
func surelyFile(mount *tree.Node, volumeOf func(*tree.Node) *tree.Node) bool {
	part := mount.Get("subPath").Text()
	if part == "" {
		return false
	}
	volume := volumeOf(mount)
	if !isWritten(volume) {
		return false
	}
	part = schema.CleanPath(part)
	file := false
	for path := range filesOf(volume) {
		switch {
		case path == anyKey:
			file = file || !strings.Contains(part, "/")
		case isInside(schema.CleanPath(path), part):
			return false
		case schema.CleanPath(path) == part:
			file = true
		}
	}
	return file
}

// isWritten reports whether the kubelet writes the content of a volume. It mounts such volumes read-only.
func isWritten(volume *tree.Node) bool {
	for _, kind := range [...]string{"configMap", "secret", "downwardAPI", "projected"} {
		if volume.Get(kind).Kind() == tree.Object {
			return true
		}
	}
	return false
}

// anyKey is the path of a file for each key of a ConfigMap or Secret. Keys contain no slash.
const anyKey = ""

// filesOf yields the paths of the files of a volume that the kubelet writes.
func filesOf(volume *tree.Node) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if !yieldFiles(volume, yield) {
			return
		}
		sources := volume.At("projected", "sources").Items()
		for i := range sources {
			if !yieldFiles(&sources[i], yield) {
				return
			}
		}
	}
}

// yieldFiles yields the paths of the files of a volume, or of a source of a projected one.
func yieldFiles(source *tree.Node, yield func(string) bool) bool {
	for _, kind := range [...]string{"configMap", "secret", "downwardAPI"} {
		from := source.Get(kind)
		items := from.Get("items").Items()
		for i := range items {
			if path := items[i].Get("path").Text(); path != "" && !yield(path) {
				return false
			}
		}
		if from.Kind() == tree.Object && len(items) == 0 && kind != "downwardAPI" && !yield(anyKey) {
			return false
		}
	}
	for _, kind := range [...]string{"serviceAccountToken", "clusterTrustBundle", "podCertificate"} {
		for _, member := range [...]string{"path", "credentialBundlePath", "keyPath", "certificateChainPath"} {
			if path := source.At(kind, member).Text(); path != "" && !yield(path) {
				return false
			}
		}
	}
	return true
}
