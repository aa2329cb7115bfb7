// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"hash/fnv"
	"strings"
	"sync/atomic"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
	"github.com/pillion-dev/pillion/templates/request"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// The bounds of [recentPods]: three pods of up to 32 KiB in each of 32 places, so at most 3 MiB.
const (
	recentGroups  = 16
	recentInGroup = 2
	maxRecentPod  = 32 << 10
)

// recentPods keeps some of the pods that were created lately, as examples for what a new template would do: each before and after the
// injection, and as the final pod. A namespace uses the places of only one group, so it cannot drive out the pods of all other
// namespaces. A pod replaces the one in its place, without a lock.
type recentPods struct {
	places [recentGroups][recentInGroup]recentPlace
}

// recentPlace has a pod as it was created, and a final pod. If they are not of the same owner, see isLike, they say nothing about each
// other.
type recentPlace struct{ created, final atomic.Pointer[recentPod] }

// recentPod is a pod in a review.
type recentPod struct {
	namespace   string
	kind, owner string // the controller, or the pod itself
	username    string
	set         string // the revision of the templates for it
	pod         []byte // as received
	injected    []byte // nil for a final pod
}

// isLike reports whether two pods have the same owner and were injected by the same set of templates.
func (p *recentPod) isLike(other *recentPod) bool {
	return p != nil && p.namespace == other.namespace && p.kind == other.kind && p.owner == other.owner && p.set == other.set
}

// String returns words for the pod's owner.
func (p *recentPod) String() string {
	return p.kind + " " + p.namespace + "/" + p.owner
}

// keepCreated keeps a pod that the mutating webhook has processed for the first time.
func (r *recentPods) keepCreated(request *admissionRequest, set string, result *inject.Result) {
	pod, place := r.findPlace(request, set)
	if pod == nil || place.created.Load().isLike(pod) {
		return
	}
	pod = pod.cloneWith(request.Object)
	if pod.injected = result.InjectedJSON(); len(pod.injected) <= maxRecentPod {
		place.created.Store(pod)
	}
}

// keepFinal keeps a final pod that the validating webhook has allowed. If the pod was denied, it forgets the pod as it was created,
// because such a pod does not exist.
func (r *recentPods) keepFinal(request *admissionRequest, set string, denied bool) {
	pod, place := r.findPlace(request, set)
	switch {
	case pod == nil:
	case denied:
		if created := place.created.Load(); created.isLike(pod) {
			place.created.CompareAndSwap(created, nil)
		}
	case !place.final.Load().isLike(pod):
		place.final.Store(pod.cloneWith(request.Object))
	}
}

// findPlace returns a description of a request's pod, without its content, and the place for it. It returns nil if the pod must not be
// kept.
func (r *recentPods) findPlace(request *admissionRequest, set string) (*recentPod, *recentPlace) {
	if request.DryRun || request.Object.Size() > maxRecentPod {
		return nil, nil
	}
	pod := &recentPod{namespace: request.Namespace, username: request.UserInfo.Username, set: set}
	pod.kind, pod.owner = ownerOf(request.Object)
	return pod, &r.places[hashText(pod.namespace)%recentGroups][hashText(pod.owner)%recentInGroup]
}

// cloneWith returns the description with the pod. The strings of a request are parts of its body, which is used again.
func (p *recentPod) cloneWith(pod *jsontree.Node) *recentPod {
	return &recentPod{
		namespace: strings.Clone(p.namespace), kind: strings.Clone(p.kind), owner: strings.Clone(p.owner),
		username: strings.Clone(p.username), set: strings.Clone(p.set), pod: pod.AppendTo(nil),
	}
}

// isInjected reports whether a pod records an injection, because the API server calls the webhook a second time or because its manifest
// was injected. Such a pod is no example: another revision may have added parts of it.
func isInjected(pod *jsontree.Node) bool {
	annotations := pod.At("metadata", "annotations").Members()
	for i := range annotations {
		if _, name, ok := templates.SplitAnnotation(annotations[i].Name()); ok && name == templates.AnnotationInjected {
			return true
		}
	}
	return false
}

// ownerOf returns the kind and name of a pod's controller, or of the pod.
func ownerOf(pod *jsontree.Node) (kind, name string) {
	owners := pod.At("metadata", "ownerReferences").Items()
	for i := range owners {
		if owners[i].Get("controller").Kind() == jsontree.True {
			return owners[i].Get("kind").Text(), owners[i].Get("name").Text()
		}
	}
	if name = pod.At("metadata", "name").Text(); name == "" {
		name = pod.At("metadata", "generateName").Text()
	}
	return "Pod", name
}

func hashText(text string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text))
	return h.Sum32()
}

// trial is a search for recent pods that a template would deny, and its result.
type trial struct {
	use       func(namespace string) (*inject.Injector, *inject.Judge)
	namespace func(name string) (request.Namespace, error)

	tried  int
	denied []string // the owners of pods that would be denied because of the template
	why    string   // the reason for the last one
}

// tryTemplate tries a template with mode Deny on the recent pods, until the context is done. A template of a namespace is tried only on
// the pods of its namespace, so that its author learns nothing about other namespaces.
func (r *recentPods) tryTemplate(ctx context.Context, t *templates.Template, trial *trial) {
	if t.Spec.Validate.Mode != v1alpha1.Deny {
		return
	}
	with := map[*inject.Injector]*inject.Injector{}
	for g := range r.places {
		for k := range r.places[g] {
			place := &r.places[g][k]
			pod := place.created.Load()
			if pod == nil || ctx.Err() != nil || t.Namespace != "" && t.Namespace != pod.namespace {
				continue
			}
			now, _ := trial.use(pod.namespace)
			if now = now.For(pod.namespace); with[now] == nil {
				set, _ := templates.Join(templates.NewSet([]*templates.Template{t}), now.Set())
				with[now] = now.With(set)
			}
			trial.tried++
			if why := trial.foreseeDenial(ctx, with[now], pod, place.final.Load(), t.Name); why != "" {
				trial.denied, trial.why = append(trial.denied, pod.String()), why
			}
		}
	}
}

// foreseeDenial returns why a pod would be denied because of a template, or "". With is the Injector with the template, and final is a
// final pod that counts only if it is like the pod.
func (r *trial) foreseeDenial(ctx context.Context, with *inject.Injector, pod, final *recentPod, template string) string {
	namespace, err := r.namespace(pod.namespace)
	if err != nil {
		return ""
	}
	var injected, end []byte
	if final.isLike(pod) {
		injected, end = pod.injected, final.pod
	}
	v, err := foreseeVerdict(with, inject.Request{Operation: "CREATE", Username: pod.username, OptedIn: true, Namespace: namespace, Object: pod.pod, Done: ctx.Done()}, injected, end)
	if err != nil || !v.Denied {
		return ""
	}
	for i := range v.Judged {
		if f := &v.Judged[i]; f.Mode == v1alpha1.Deny && f.Template == template {
			return f.String()
		}
	}
	return ""
}
