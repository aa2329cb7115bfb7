// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// requestsOf returns, in sentences, what the labels and annotations of a pod and its namespace request from Pillion. It is for users who
// can read no template. It leaves out records of injections, which are in [Report].Gone.
func requestsOf(r *inject.Request) (all []string) {
	var pod struct{ Metadata metav1.ObjectMeta }
	if json.Unmarshal(r.Object, &pod) != nil {
		return nil
	}
	namespace, own := r.Namespace.Labels[inject.LabelInject], pod.Metadata.Labels[inject.LabelInject]
	label := func(value string) string { return fmt.Sprintf("the label %s: %s", inject.LabelInject, value) }
	switch {
	case own != "":
		all = append(all, "the pod has "+label(own))
	case !r.Namespace.Known: // a note says so
	case namespace != "":
		all = append(all, "its namespace has "+label(namespace))
	default:
		all = append(all, fmt.Sprintf("neither the pod nor its namespace has the label %s, so it did not opt in", inject.LabelInject))
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Metadata.Annotations)) {
		value := pod.Metadata.Annotations[key]
		domain, name, _ := strings.Cut(key, "/")
		owner, ofTemplate := strings.CutSuffix(domain, "."+templates.Domain)
		switch {
		case key == inject.AnnotationTemplates:
			all = append(all, fmt.Sprintf("it requests the templates %q (annotation %s)", value, key))
		case domain == templates.Domain && !inject.IsWritten(key):
			all = append(all, fmt.Sprintf("it has the annotation %s: %q", key, value))
		case ofTemplate && !templates.IsRecord(name):
			all = append(all, fmt.Sprintf("it sets %s of the template %s to %q", name, owner, value))
		}
	}
	return all
}
