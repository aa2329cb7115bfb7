// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// InjectedBy returns the revisions of the templates that injected a pod, by template name, as its
// annotations record them. It returns nil if it cannot parse the pod.
func InjectedBy(pod []byte) map[string]string {
	n, err := jsontree.Parse(pod)
	if err != nil {
		return nil
	}
	return RecordedRevisions(n)
}

// RecordedRevisions is [InjectedBy] for a parsed pod.
func RecordedRevisions(pod *jsontree.Node) map[string]string {
	said := map[string]string{}
	annotations := pod.At("metadata", "annotations").Members()
	for i := range annotations {
		if template, name, ok := templates.SplitAnnotation(annotations[i].Name()); ok && name == templates.AnnotationInjected {
			said[template] = annotations[i].Text()
		}
	}
	return said
}

// Base returns the template that a canary replaces, by the canary's name. It returns nil if the template is no canary.
func (i *Injector) Base(canary string) *templates.Template {
	if t := i.byName[canary]; t != nil && t.base != nil {
		return t.base.Template
	}
	return nil
}

// IsRecord reports whether Pillion writes an annotation with this key if it injects the template of that name.
func (i *Injector) IsRecord(template, key string) bool {
	t := i.byName[template]
	return t != nil && t.isRecord(key)
}

// isRecord reports whether Pillion writes an annotation with this key if it injects the template.
func (t *loaded) isRecord(key string) bool {
	return key == t.injected || key == t.insteadKey || t.base != nil && key == t.base.injected
}
