// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/validation"
)

// entry is what is at a path.
type entry uint8

const (
	unknownEntry entry = iota
	noEntry
	directory
	file
	// keyFile is a file if the ConfigMap or Secret has a key of that name, which is not known, and else nothing.
	keyFile
)

// podVolumes knows what the volumes of a pod contain, as far as the pod shows it.
type podVolumes struct {
	pod *Pod
	// serviceLinks reports whether containers may get variables for Services.
	serviceLinks bool

	effects []mountEffects // computed already, see mountEffectsOn
}

// mountsOf appends the mounts of a container to all. It adds the mount of the API token if the ServiceAccount plugin will add it: a
// file or a workload does not have that mount yet, and the webhook sees it.
func (p *podVolumes) mountsOf(container *jsontree.Node, all []*jsontree.Node) []*jsontree.Node {
	items := container.Get("volumeMounts").Items()
	all = slices.Grow(all, len(items)+1)
	isNear, hasOwn := isInsideToken(messagePath(container)) || isInsideToken(workingDir(container)), false
	for i := range items {
		at := absolutePath(schema.MountPath(&items[i]))
		isNear = isNear || isInsideToken(at) || isInside(validation.TokenPath, at)
		hasOwn = hasOwn || items[i].Get("mountPath").IsText(validation.TokenPath) // as the plugin compares it
		all = append(all, &items[i])
	}
	if isNear && !hasOwn && p.pod.GetsToken() { // otherwise, the mount cannot conflict with anything
		all = append(all, &laterToken.mount)
	}
	return all
}

// messagePath returns the absolute path of the file for a container's termination message.
func messagePath(container *jsontree.Node) string {
	return absolutePath(schema.CleanPath(cmp.Or(container.Get("terminationMessagePath").Text(), corev1.TerminationMessagePathDefault)))
}

// workingDir returns the absolute path of a container's working directory, or "" if it is that of the image.
func workingDir(container *jsontree.Node) string {
	if dir := container.Get("workingDir").Text(); dir != "" {
		return absolutePath(schema.CleanPath(dir))
	}
	return ""
}

// isInsideToken reports whether a path is inside of the volume of the API token.
func isInsideToken(path string) bool { return isInside(path, validation.TokenPath) }

// laterToken is the mount that the ServiceAccount plugin will add, and its volume (TokenVolumeSource in
// plugin/pkg/admission/serviceaccount).
var laterToken = struct{ mount, volume jsontree.Node }{
	jsontree.Members(
		jsontree.Field("name", jsontree.Text(validation.TokenVolumePrefix)),
		jsontree.Field("readOnly", jsontree.Bool(true)),
		jsontree.Field("mountPath", jsontree.Text(validation.TokenPath))),
	jsontree.Members(jsontree.Field("projected", jsontree.Members(jsontree.Field("sources", jsontree.Items(
		jsontree.Members(jsontree.Field("serviceAccountToken", jsontree.Members(jsontree.Field("path", jsontree.Text("token"))))),
		jsontree.Members(jsontree.Field("configMap", jsontree.Members(jsontree.Field("items", jsontree.Items(jsontree.Members(jsontree.Field("path", jsontree.Text("ca.crt")))))))),
		jsontree.Members(jsontree.Field("downwardAPI", jsontree.Members(jsontree.Field("items", jsontree.Items(jsontree.Members(jsontree.Field("path", jsontree.Text("namespace")))))))),
	))))),
}

// volumeOf returns the pod's volume of a mount, or nil.
func (p *podVolumes) volumeOf(mount *jsontree.Node) *jsontree.Node {
	if mount == &laterToken.mount {
		return &laterToken.volume
	}
	return p.pod.FindVolume(mount)
}

// subPath returns the path inside of its volume that a mount mounts, or "" for all of the volume. Known is false if only the node knows
// the value of subPathExpr.
func (p *podVolumes) subPath(container, mount *jsontree.Node) (path string, known bool) {
	known = true
	if path = mount.Get("subPath").Text(); path == "" {
		path, known = validation.ExpandSubPath(container, mount, p.serviceLinks)
	}
	if path == "" {
		return "", known
	}
	if path = schema.CleanPath(path); path == "." {
		path = ""
	}
	return path, known
}

// kindOf returns whether a mount mounts a file or a directory, as far as that is known.
func (p *podVolumes) kindOf(container, mount *jsontree.Node) entry {
	volume := p.volumeOf(mount)
	part, known := p.subPath(container, mount)
	switch {
	case part == "" && known && volume.Get("hostPath") != nil:
		return kindOfHostPath(corev1.HostPathType(volume.At("hostPath", "type").Text()))
	case part == "" && known:
		return directory
	case !isWritten(volume):
		if known && p.isKnown(mount) {
			return directory // the kubelet creates it
		}
		return unknownEntry
	case !known:
		return entryOfUnknownName(volume, part)
	}
	switch is := p.entryAt(volume, part); is {
	case noEntry:
		return directory // the kubelet creates it
	default:
		return is
	}
}

// whyInsideFile returns why the kubelet cannot create the sub path of a mount, or "". It cannot create a directory inside a file.
func (p *podVolumes) whyInsideFile(container, mount *jsontree.Node) string {
	volume := p.volumeOf(mount)
	part, known := p.subPath(container, mount)
	if !known || !isWritten(volume) {
		return ""
	}
	for i, char := range part {
		if char == '/' && p.entryAt(volume, part[:i]) == file {
			return fmt.Sprintf("the sub path %s of %s is inside of %s, which is a file", part, describeVolume(mount), part[:i])
		}
	}
	return ""
}

// kindOfHostPath returns whether a hostPath volume of this type is a file or a directory. The kubelet checks that the path on the node
// has the type.
func kindOfHostPath(is corev1.HostPathType) entry {
	switch is {
	case corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
		return directory
	case corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev:
		return file
	}
	return unknownEntry
}

// entryOfUnknownName returns what a sub path is in a volume whose content the kubelet writes, if only the node knows the whole path. In
// part, a question mark stands for what is not known. If the volume has no directories, the sub path can only be one of its files.
func entryOfUnknownName(volume *jsontree.Node, part string) entry {
	if strings.Contains(part, "/") {
		return unknownEntry
	}
	for path := range filesOf(volume) {
		if strings.Contains(path, "/") {
			return unknownEntry
		}
	}
	return keyFile
}

// isKnown reports whether a mount is read-only, and what its volume contains is known: the kubelet writes it, or it is empty.
func (p *podVolumes) isKnown(mount *jsontree.Node) bool {
	volume := p.volumeOf(mount)
	return isWritten(volume) || volume.Get("emptyDir").Kind() == jsontree.Object && mount.Get("readOnly").Kind() == jsontree.True && !p.mountEffectsOn(volume).isWritable
}

// isWritten reports whether the kubelet writes the content of a volume. It mounts such volumes read-only.
func isWritten(volume *jsontree.Node) bool {
	for _, kind := range [...]string{"configMap", "secret", "downwardAPI", "projected"} {
		if volume.Get(kind).Kind() == jsontree.Object {
			return true
		}
	}
	return false
}

// entryAt returns what is at a clean path of a volume whose content is known.
func (p *podVolumes) entryAt(volume *jsontree.Node, path string) entry {
	if path == "" {
		return directory
	}
	made := p.mountEffectsOn(volume)
	if made.isUnknown || strings.HasPrefix(path, "..") { // the kubelet's own links to the content
		return unknownEntry
	}
	isThere := func(dir string) bool { return dir == path || isInside(dir, path) } // path is dir, or a directory around it
	if slices.ContainsFunc(made.nested, isThere) {
		return directory
	}
	top, _, _ := strings.Cut(path, "/")
	if slices.ContainsFunc(made.nested, func(dir string) bool { return dir == top || isInside(dir, top) }) {
		return noEntry // the kubelet creates this directory before it writes files, so the files of that name are not visible
	}
	is := fileAt(volume, path)
	isParent := func(part string) bool { return isInside(part, path) }
	if is == noEntry && slices.ContainsFunc(made.parts, isThere) || is == keyFile && slices.ContainsFunc(made.parts, isParent) {
		return directory
	}
	return is
}

// fileAt returns what is at a clean path of a volume before the kubelet creates directories for mounts.
func fileAt(volume *jsontree.Node, path string) entry {
	is := noEntry
	for name := range filesOf(volume) {
		switch clean := schema.CleanPath(name); {
		case name == anyKey:
			if is == noEntry && !strings.Contains(path, "/") {
				is = keyFile
			}
		case clean == path:
			is = file
		case isInside(clean, path):
			return directory
		}
	}
	return is
}

// mountEffects is what the mounts of all containers do to one volume.
type mountEffects struct {
	volume *jsontree.Node
	// nested are the directories that the kubelet creates because something is mounted there.
	nested []string
	// parts are the sub paths of mounts that the volume lacks, so the kubelet creates them as directories.
	parts      []string
	isWritable bool // whether a container may write to it
	isUnknown  bool // whether the sub path of a mount is not known
}

// mountEffectsOn returns what the mounts of all containers do to a volume.
func (p *podVolumes) mountEffectsOn(volume *jsontree.Node) *mountEffects {
	for i := range p.effects {
		if p.effects[i].volume == volume {
			return &p.effects[i]
		}
	}
	made := mountEffects{volume: volume}
	for _, list := range schema.ContainerLists() {
		items := p.pod.Spec.Get(list).Items()
		for i := range items {
			made.addMounts(p, &items[i])
		}
	}
	p.effects = append(p.effects, made)
	return &p.effects[len(p.effects)-1]
}

func (m *mountEffects) addMounts(p *podVolumes, container *jsontree.Node) {
	mounts := p.mountsOf(container, nil)
	for _, mount := range mounts {
		if p.volumeOf(mount) != m.volume {
			continue
		}
		m.isWritable = m.isWritable || mount.Get("readOnly").Kind() != jsontree.True
		switch part, known := p.subPath(container, mount); {
		case !known:
			m.isUnknown = m.isUnknown || !isWritten(m.volume) || entryOfUnknownName(m.volume, part) != keyFile
		case part != "" && fileAt(m.volume, part) == noEntry:
			m.parts = append(m.parts, part)
		}
		if !isWritten(m.volume) {
			continue
		}
		at := absolutePath(schema.MountPath(mount))
		isNested := func(other *jsontree.Node) bool { return isInside(absolutePath(schema.MountPath(other)), at) }
		for _, inner := range mounts {
			path := absolutePath(schema.MountPath(inner))
			isBetween := func(other *jsontree.Node) bool {
				return isNested(other) && isInside(path, absolutePath(schema.MountPath(other)))
			}
			if isNested(inner) && !slices.ContainsFunc(mounts, isBetween) {
				m.nested = append(m.nested, path[len(strings.TrimSuffix(at, "/"))+1:])
			}
		}
	}
}

// anyKey stands for the paths of all keys of a ConfigMap or Secret, which are not known. Keys contain no slash.
const anyKey = ""

// filesOf yields the paths of the files in a volume whose content the kubelet writes, or anyKey.
func filesOf(volume *jsontree.Node) func(yield func(string) bool) {
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
func yieldFiles(source *jsontree.Node, yield func(string) bool) bool {
	for _, kind := range [...]string{"configMap", "secret", "downwardAPI"} {
		from := source.Get(kind)
		items := from.Get("items").Items()
		for i := range items {
			if path := items[i].Get("path").Text(); path != "" && !yield(path) {
				return false
			}
		}
		if from.Kind() == jsontree.Object && len(items) == 0 && kind != "downwardAPI" && !yield(anyKey) {
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

// joinPaths joins the path part inside of a volume, which may be empty, with a path inside of part.
func joinPaths(part, path string) string {
	if part == "" {
		return path
	}
	return part + "/" + path
}

func absolutePath(path string) string {
	switch {
	case path == ".":
		return "/"
	case strings.HasPrefix(path, "/"):
		return path
	}
	return "/" + path
}

func isInside(path, directory string) bool {
	return len(path) > len(directory) && strings.HasPrefix(path, directory) && (path[len(directory)] == '/' || directory == "/")
}

// describeVolume returns words for the volume of a mount. The one of the API token has a random name.
func describeVolume(mount *jsontree.Node) string {
	name := mount.Get("name").Text()
	if strings.HasPrefix(name, validation.TokenVolumePrefix) {
		return "the volume of the API token"
	}
	return "the volume " + name
}
