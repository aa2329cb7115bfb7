// SPDX-License-Identifier: Apache-2.0

package inject

import "github.com/pillion-dev/pillion/templates"

// The labels and annotations that people write. A template's own annotations
// are [templates.Template.Annotation].
const (
	// LabelInject on a namespace or pod is Enabled or Disabled; on a namespace Shadow
	// too: nothing is injected there, and what would be is told.
	LabelInject = templates.Domain + "/inject"
	Enabled     = "enabled"
	Disabled    = "disabled"
	Shadow      = "shadow"
	// AnnotationTemplates on a pod names the templates: "a,b" for exactly these,
	// "+a,-b" for these beside or without the defaults.
	AnnotationTemplates = templates.Domain + "/templates"
	// AnnotationUninject on a pod is written by the command line's inject, and read by
	// uninject; see [Before]. It means nothing to the webhooks.
	AnnotationUninject = templates.Domain + "/uninject"
)

// SystemNamespaces are never looked at: a broken Pillion must not hold up the
// cluster's own recovery, or its own.
func SystemNamespaces() []string {
	return []string{"kube-system", "kube-public", "kube-node-lease", "pillion-system"}
}
