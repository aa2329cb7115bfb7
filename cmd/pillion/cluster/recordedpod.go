// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/templates"
)

// recordedPod is what showRecorded needs of a pod: its labels, its age, and the templates that it records.
type recordedPod struct {
	labels    labels.Set
	created   time.Time
	templates []string
}

func newRecordedPod(pod *listedPod) recordedPod {
	r := recordedPod{labels: pod.Metadata.Labels, created: pod.Metadata.CreationTimestamp.Time}
	for key := range pod.Metadata.Annotations {
		if template, name, ok := templates.SplitAnnotation(key); ok && name == templates.AnnotationInjected {
			r.templates = append(r.templates, template)
		}
	}
	return r
}
