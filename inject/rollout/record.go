// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// The records of a pod are the annotations in which Pillion writes what it has injected.

// isRecord reports whether Pillion writes an annotation, and users do not.
func isRecord(key string) bool {
	return key == inject.AnnotationUninject || strings.HasSuffix(key, "."+templates.Domain+"/"+templates.AnnotationInjected)
}

// recordOf returns the annotation that records the injection of a template.
func recordOf(template string) string {
	return template + "." + templates.Domain + "/" + templates.AnnotationInjected
}

// beforeOf returns the annotation that has the revision before the one that a record has.
func beforeOf(record string) string {
	return strings.TrimSuffix(record, templates.AnnotationInjected) + templates.AnnotationBefore
}

// isBefore reports whether an annotation is one of [beforeOf].
func isBefore(key string) bool {
	return strings.HasSuffix(key, "."+templates.Domain+"/"+templates.AnnotationBefore)
}

// broughtByTemplate reports whether a container of a pod is of a template, according to the annotations of the pod: it records
// the injection, and the container is not one that the user wrote for a template to complete.
func broughtByTemplate(set []*templates.Template, annotation func(key string) string, container string) bool {
	recorded := false
	for _, t := range set {
		if !t.Brings(container) {
			continue
		}
		if annotation(t.Setting(templates.AnnotationCustomize)) == "true" {
			return false
		}
		recorded = recorded || annotation(t.Annotation(templates.AnnotationInjected)) != ""
	}
	return recorded
}
