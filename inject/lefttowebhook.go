// SPDX-License-Identifier: Apache-2.0

package inject

import (
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/schema"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Some plugins of the API server add something only to pods that do not have it. They run before the webhook, but after a file was
// written: an addition in the file would stop them. So these additions are left to the webhook if the result is written to a file:
//
//   - The ServiceAccount plugin adds the account's imagePullSecrets to a pod that has none.
//   - The DefaultTolerationSeconds plugin adds tolerations for nodes that are not ready or unreachable, for 300 seconds, to a
//     pod that has none for them.
//   - The LimitRanger plugin adds the defaults of a LimitRange to a container that has no request or limit of a resource.
//   - kubectl apply merges ports of a container with the same number, whatever their protocols are, and hostAliases with the
//     same address. If the workload exists already, the file's own item is lost, or kubectl fails.
//   - If a ReplicationController or a Job has no labels, the API server copies them from the pod template. It does the same for the
//     selector of a ReplicationController.
//
// What is left to the webhook counts as added when other templates are decided about, so that the decisions are those of the
// webhook. It is only not written.

// isLeft reports whether a member of a fragment is left to the webhook.
func (p *planner) isLeft(there, value *jsontree.Node, in *schema.Schema) bool {
	if !p.subject.request.written {
		return false
	}
	switch in.GoType.Name() + "." + value.Name() {
	case "PodSpec.imagePullSecrets":
		if (isEmptyOrAbsent(there) || there.IsTentative()) && len(value.Items()) > 0 {
			p.noteLeft("its imagePullSecrets are left to the webhook, because the API server would not add those of the ServiceAccount to a pod that has some")
			return true
		}
	case "Container.resources":
		if p.inApp && len(value.Members()) > 0 && !p.coversResources(there, value) {
			p.noteLeft("the resources for the pod's own containers are left to the webhook, because a LimitRange may have others, which then have precedence")
			return true
		}
	case "ObjectMeta.labels":
		if p.subject.request.copiesLabels && len(value.Members()) > 0 {
			p.noteLeft("its labels are left to the webhook, because the API server would copy them from the pod template to the workload")
			return true
		}
	}
	return false
}

// isTolerationLeft reports whether an item of a list is a toleration that is left to the webhook.
func (p *planner) isTolerationLeft(item *jsontree.Node, in *schema.Schema) bool {
	if !p.subject.request.written || in.GoType != reflect.TypeFor[corev1.Toleration]() || !replacesDefault(item) {
		return false
	}
	p.noteLeft("tolerations for nodes that are not ready or unreachable are left to the webhook, because the API server would not add its own to a pod that has some")
	return true
}

// isPortLeft reports whether an item of a list is a port that is left to the webhook.
func (p *planner) isPortLeft(list, item *jsontree.Node, in *schema.Schema) bool {
	number := item.Get("containerPort")
	if !p.subject.request.written || in.GoType != reflect.TypeFor[corev1.ContainerPort]() ||
		!slices.ContainsFunc(list.Items(), func(port jsontree.Node) bool { return port.Get("containerPort").String() == number.String() }) {
		return false
	}
	p.noteLeft("its further port " + number.String() + " is left to the webhook, because kubectl merges ports of a container that have the same number")
	return true
}

// withoutLeft removes from the result what is left to the webhook.
func (r *Result) withoutLeft() error {
	original, err := jsontree.Parse([]byte(r.pod.String()))
	if err != nil {
		return err
	}
	r.pod.DropTentative(original)
	r.size = r.pod.AddedSize()
	return nil
}

// noteLeft adds a note about something that is left to the webhook.
func (p *planner) noteLeft(text string) {
	if !slices.Contains(p.notes, text) {
		p.notes = append(p.notes, text)
	}
}

// coversResources reports whether the pod's resources have everything that the template's have, so that nothing would be added.
func (p *planner) coversResources(pod, value *jsontree.Node) bool {
	return p.subject.schema.At("spec").At("containers").Elem.At("resources").Contains(pod, value)
}

func isEmptyOrAbsent(n *jsontree.Node) bool {
	return n == nil || n.Kind() == jsontree.Null || isEmptyList(n)
}

// replacesDefault reports whether the DefaultTolerationSeconds plugin would add less to a pod because of this toleration.
func replacesDefault(toleration *jsontree.Node) bool {
	if effect := toleration.Get("effect").Text(); effect != "" && effect != string(corev1.TaintEffectNoExecute) {
		return false
	}
	key := toleration.Get("key").Text()
	return key == "" || key == corev1.TaintNodeNotReady || key == corev1.TaintNodeUnreachable
}
