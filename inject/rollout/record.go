// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"strings"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates"
)

// The records of a pod are the annotations in which Pillion writes what it has injected.

// record returns the annotation that a change is about, if Pillion writes it, or "".
func (c *Change) record() string {
	key, ok := strings.CutPrefix(c.Path, "/metadata/annotations/")
	if key = schema.Unescape(key); !ok || !isRecord(key) {
		return ""
	}
	return key
}

// isRecord reports whether Pillion writes an annotation, and users do not.
func isRecord(key string) bool {
	return key == inject.AnnotationUninject || strings.HasSuffix(key, "."+templates.Domain+"/"+templates.AnnotationInjected)
}

// brought reports whether a container of a pod is of a template, according to the annotations of the pod: it records
// the injection, and the container is not one that the user wrote for a template to complete.
func brought(set []*templates.Template, annotation func(key string) string, container string) bool {
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

// ended lets a running pod lose the record of a template that had replaced another one in it, and does so no longer.
// The other one has a record of the same revision, and stays. If the first one no longer exists, the change is of the
// other one.
func (c *comparison) ended(change *Change) {
	record := change.record()
	if record == "" || change.To != nil {
		return
	}
	template, ok := c.stay[c.was.get(record).Text()]
	if !ok {
		return
	}
	if change.How = Record; change.Template == "" {
		change.Template = template
	}
}

// staying returns a template for each revision that the running pod records and that has a record in the other pod, too,
// or "".
func (c *comparison) staying() map[string]string {
	all := map[string]string{}
	records := c.was.object.Members()
	for i := range records {
		key := records[i].Name()
		if !isRecord(key) || c.is.get(key) == nil {
			continue
		}
		revision := records[i].Text()
		name, _, ok := templates.SplitAnnotation(key)
		if ok && all[revision] == "" {
			all[revision] = name
		} else if _, known := all[revision]; !known {
			all[revision] = ""
		}
	}
	return all
}
