// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Default returns what the API server writes into a field that is absent, as JSON. Field is the type and name of the field,
// such as ContainerPort.protocol.
func Default(field string) (value string, ok bool) {
	value, ok = defaults()[field]
	return value, ok
}

// Default returns what the API server writes into this field of an object that has no value there, or nil. It does not know
// the pod around the object.
func (f *Field) Default(object *jsontree.Node) *jsontree.Node { return f.impliedValue(object, false) }

// impliedValue returns what the API server writes into a field of an object that has no value there, or nil.
func (f *Field) impliedValue(object *jsontree.Node, onHost bool) *jsontree.Node {
	if f.Parent == nil || f.Gated {
		return nil
	}
	switch field := f.Parent.Name() + "." + f.name; field {
	case "Container.imagePullPolicy":
		image := object.Get("image")
		if image.IsNew() && !object.IsNew() {
			image = nil // a template added it after the API server had set the default
		}
		return new(jsontree.Text(pullPolicy(image.Text())))
	case "ImageVolumeSource.pullPolicy":
		return new(jsontree.Text(pullPolicy(object.Get("reference").Text())))
	case "ContainerPort.hostPort":
		if onHost {
			return object.Get("containerPort")
		}
		return nil
	case "VolumeSource.emptyDir":
		return nil // it depends on the other sources
	default:
		value, ok := Default(field)
		if !ok {
			return nil
		}
		n, err := jsontree.Parse([]byte(value))
		if err != nil {
			return nil
		}
		return n
	}
}

// pullPolicy returns the default imagePullPolicy of an image.
func pullPolicy(image string) string {
	name, _, hasDigest := strings.Cut(image, "@")
	_, tag, hasTag := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if name != "" && (tag == "latest" || !hasTag && !hasDigest) {
		return string(corev1.PullAlways)
	}
	return string(corev1.PullIfNotPresent)
}
