// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// After the mutating webhooks, the API server turns an annotation for AppArmor into a field of the container
// (applyAppArmorVersionSkew in pkg/registry/core/pod). The validating webhook sees the field. So the mutating webhook has to treat
// the container as if it had the field already.

// appArmorOf returns the profile that the API server gives a container because of an annotation, or nil.
func (s *subject) appArmorOf(container *jsontree.Node) *jsontree.Node {
	if !s.appArmor || container.At("securityContext", appArmorField) != nil || s.pod.At("spec", "os", "name").IsText(string(corev1.Windows)) {
		return nil
	}
	annotation := s.annotations.Get(corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container.Get("name").Text()).Text()
	var profile jsontree.Node
	switch local, isLocal := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix); {
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		profile = jsontree.Members(jsontree.Field("type", jsontree.Text(string(corev1.AppArmorProfileTypeUnconfined))))
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		profile = jsontree.Members(jsontree.Field("type", jsontree.Text(string(corev1.AppArmorProfileTypeRuntimeDefault))))
	case isLocal && local != "" && local == strings.TrimSpace(local):
		profile = jsontree.Members(jsontree.Field("type", jsontree.Text(string(corev1.AppArmorProfileTypeLocalhost))), jsontree.Field("localhostProfile", jsontree.Text(local)))
	default:
		return nil
	}
	field := s.schema.At("spec").At("securityContext").At(appArmorField)
	if ofPod := s.pod.At("spec", "securityContext", appArmorField); ofPod != nil && field.Contains(ofPod, &profile) && field.Contains(&profile, ofPod) {
		return nil
	}
	return &profile
}

// withAppArmor returns a container with the profile that the API server gives it because of an annotation.
func (s *subject) withAppArmor(container *jsontree.Node) *jsontree.Node {
	profile := s.appArmorOf(container)
	if profile == nil {
		return container
	}
	security := jsontree.Members()
	if own := container.Get("securityContext"); own.Kind() == jsontree.Object {
		security = *own
	}
	return s.storeNode(s.nodes.With(container, "securityContext", s.nodes.With(&security, appArmorField, *profile)))
}

// withAppArmors returns a pod whose containers have the profiles that the API server gives them because of annotations.
func (s *subject) withAppArmors(pod *jsontree.Node) *jsontree.Node {
	if !s.appArmor {
		return pod
	}
	spec := pod.Get("spec")
	changed := spec
	for _, list := range schema.ContainerLists() {
		items := spec.Get(list).Items()
		all, differs := append(s.nodes.Nodes(len(items)), items...), false
		for i := range all {
			if c := s.withAppArmor(&items[i]); c != &items[i] {
				all[i], differs = *c, true
			}
		}
		if differs {
			changed = s.storeNode(s.nodes.With(changed, list, jsontree.Items(all...)))
		}
	}
	if changed == spec {
		return pod
	}
	return s.storeNode(s.nodes.With(pod, "spec", *changed))
}

const appArmorField = "appArmorProfile"
