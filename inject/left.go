// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/tree"
)

// The API server gives a meaning to what a pod does not have. The webhook sees the pod afterwards, and a file is written
// before. So these additions are left to the webhook if the result is written to a file:
//
//   - The ServiceAccount plugin adds the account's imagePullSecrets to a pod that has none.
//   - The DefaultTolerationSeconds plugin adds tolerations for nodes that are not ready or unreachable, for 300 seconds, to a
//     pod that has none for them.
//   - The LimitRanger plugin adds the defaults of a LimitRange to a container that has no request or limit of a resource.
//   - The labels of a ReplicationController or a Job, and the selector of the former, are copied from the pod template if there
//     are none.

// withoutLeft returns a member of a fragment without what is left to the webhook, or nil if that is all.
func (p *planner) withoutLeft(pod, value *tree.Node, in *schema.Schema) *tree.Node {
	if !p.subject.asked.written {
		return value
	}
	name := value.Name()
	switch in.GoType.Name() + "." + name {
	case "PodSpec.imagePullSecrets":
		if isEmptyOrAbsent(pod.Get(name)) && len(value.Items()) > 0 {
			p.noteLeft("its imagePullSecrets are left to the webhook, because the API server would not add those of the ServiceAccount to a pod that has some")
			return nil
		}
	case "PodSpec.tolerations":
		return p.withoutTolerations(pod.Get(name), value)
	case "Container.resources":
		if p.inApp && len(value.Members()) > 0 && !p.coversResources(pod.Get(name), value) {
			p.noteLeft("the resources for the pod's own containers are left to the webhook, because a LimitRange may have others, which then have precedence")
			return nil
		}
	case "ObjectMeta.labels":
		if p.subject.asked.copiesLabels && len(value.Members()) > 0 {
			p.noteLeft("its labels are left to the webhook, because the API server would copy them from the pod template to the workload")
			return nil
		}
	}
	return value
}

// noteLeft adds a note about something that is left to the webhook.
func (p *planner) noteLeft(text string) {
	if !slices.Contains(p.notes, text) {
		p.notes = append(p.notes, text)
	}
}

// coversResources reports whether an object has all that another one has. Then nothing would be added.
func (p *planner) coversResources(pod, value *tree.Node) bool {
	return p.subject.schema.At("spec").At("containers").Elem.At("resources").Contains(pod, value)
}

func isEmptyOrAbsent(n *tree.Node) bool { return n == nil || n.Kind() == tree.Null || isEmptyList(n) }

// withoutTolerations returns the tolerations of a fragment without those for nodes that are not ready or unreachable.
func (p *planner) withoutTolerations(pod, value *tree.Node) *tree.Node {
	items := value.Items()
	rest := make([]tree.Node, 0, len(items))
	for i := range items {
		if !replacesDefault(&items[i]) || p.subject.schema.At("spec").At("tolerations").Elem.Among(pod.Items(), &items[i]) {
			rest = append(rest, items[i])
		}
	}
	if len(rest) == len(items) {
		return value
	}
	p.noteLeft("tolerations for nodes that are not ready or unreachable are left to the webhook, because the API server would not add its own to a pod that has some")
	if len(rest) == 0 {
		return nil
	}
	return new(tree.Field(value.Name(), tree.Items(rest...)))
}

// replacesDefault reports whether the DefaultTolerationSeconds plugin adds less to a pod with a toleration.
func replacesDefault(toleration *tree.Node) bool {
	if effect := toleration.Get("effect").Text(); effect != "" && effect != string(corev1.TaintEffectNoExecute) {
		return false
	}
	key := toleration.Get("key").Text()
	return key == "" || key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}
