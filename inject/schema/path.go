// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// ContainerLists returns the lists of containers in the spec of a pod that templates may add to.
func ContainerLists() [2]string { return [2]string{"initContainers", "containers"} }

// MountPath returns the clean path in the container of an item of volumeMounts or volumeDevices.
func MountPath(item *jsontree.Node) string {
	if device := item.Get("devicePath").Text(); device != "" {
		return CleanPath(device)
	}
	return CleanPath(item.Get("mountPath").Text())
}

// AnnotationPath returns the JSON Pointer into a pod to an annotation.
func AnnotationPath(key string) string { return "/metadata/annotations/" + jsontree.Escape(key) }

// Where returns a JSON Pointer in the form that users write, for example spec.containers[0].env.
// For a new item it returns the list.
func Where(pointer string) string {
	var b strings.Builder
	for _, name := range strings.Split(strings.TrimSuffix(pointer, "/-"), "/")[1:] {
		name = Unescape(name)
		_, err := strconv.ParseUint(name, 10, 64)
		switch {
		case err == nil:
			b.WriteString("[" + name + "]")
		case strings.ContainsAny(name, "./[]\" "):
			fmt.Fprintf(&b, "[%q]", name)
		case b.Len() > 0:
			b.WriteString("." + name)
		default:
			b.WriteString(name)
		}
	}
	return b.String()
}

// Named reports whether a sentence contains the name of the annotation or label at a JSON Pointer.
// Then it does not have to contain the path, too.
func Named(pointer, sentence string) bool {
	prefix, key := path.Split(pointer)
	return (prefix == "/metadata/annotations/" || prefix == "/metadata/labels/") && strings.Contains(sentence, Unescape(key))
}
