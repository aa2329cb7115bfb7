// SPDX-License-Identifier: Apache-2.0

package inject

import "github.com/pillion-dev/pillion/templates"

// The labels and annotations that users write. See [templates.Template.Annotation] for those of a
// template.
const (
	// LabelInject on a namespace or pod is Enabled or Disabled. On a namespace it may also be
	// Shadow: Pillion then injects nothing there, and reports what it would inject.
	LabelInject = templates.Domain + "/inject"
	// LabelRollout on a namespace is Enabled if the controller may update its running pods.
	LabelRollout = templates.Domain + "/rollout"
	// LabelExempt on a pod is read by API servers, if Pillion is installed with the component exempt-pods: they do not call it then.
	LabelExempt = templates.Domain + "/exempt"
	// Enabled, Disabled and Shadow are values of these labels.
	Enabled  = "enabled"
	Disabled = "disabled"
	Shadow   = "shadow"
	// AnnotationTemplates on a pod names templates. "a,b" selects exactly these. "+a,-b" adds to
	// the default templates and removes from them.
	AnnotationTemplates = templates.Domain + "/templates"
	// AnnotationUninject on a pod is written by the command pillion inject and read by pillion
	// uninject, see the package uninject. The webhooks ignore it.
	AnnotationUninject = templates.Domain + "/uninject"
	// AnnotationUnproved on a pod is written by a rollout that is changing the pod.
	AnnotationUnproved = templates.Domain + "/unproved"
)

// IsWritten reports whether a key is one of Pillion's own annotations of a pod that Pillion writes and users do not. It does not know
// the annotations that belong to a template, see [templates.IsRecord].
func IsWritten(key string) bool { return key == AnnotationUninject || key == AnnotationUnproved }

// SystemNamespaces returns the namespaces that Pillion never processes, so that it can block
// neither the cluster's recovery nor its own.
func SystemNamespaces() []string {
	return []string{"kube-system", "kube-public", "kube-node-lease", "pillion-system"}
}
