// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// Explain explains one object of the cluster.
func (i *Installation) Explain(ctx context.Context, kind Kind, namespace, name string) (*explain.Report, error) {
	object, err := i.Resource(kind.Resource()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, explainForbidden(err, "get", kind.resource, namespace, "name another object")
	}
	return i.explainObject(ctx, object)
}

// explainObject explains a pod, or the pods of a workload.
func (i *Installation) explainObject(ctx context.Context, object *unstructured.Unstructured) (*explain.Report, error) {
	node, err := nodeOf(object)
	if err != nil {
		return nil, err
	}
	podAt, _ := workloads.PodIn(object.GetAPIVersion(), object.GetKind())
	return i.explainTemplate(ctx, object, node, workloads.PodTemplate{At: podAt, Node: node.At(podAt...)})
}

// explainTemplate explains the pods that an object makes from a pod template. It also compares the running pods if a controller of
// Kubernetes makes them.
func (i *Installation) explainTemplate(ctx context.Context, object *unstructured.Unstructured, node *jsontree.Node, t workloads.PodTemplate) (*explain.Report, error) {
	p, err := i.readNamespace(ctx, object.GetNamespace())
	if err != nil {
		return nil, err
	}
	if t.Node.Kind() != jsontree.Object {
		return nil, errors.New("there is no pod in it")
	}
	podAt, text := t.At, t.Node.AppendTo(nil)
	if i.injector.For(p.Name).Set().ReadsServiceAccount() {
		p.ServiceAccount(t.Node) // so that the notes say why it cannot be read
	}
	s := explain.Subject{
		Object:   explain.Object{Kind: object.GetKind(), Name: object.GetName(), Namespace: p.Name, Live: len(podAt) == 0},
		Request:  inject.Request{Operation: "CREATE", Namespace: p.Namespace, Object: text, Claims: workloads.Claims(node), Owner: workloads.OwnerOf(object.GetKind(), node)},
		Answered: i.answered, Past: i.namespacePast(p), Incomplete: len(i.wrong.problems) > 0, Unread: i.wrong.unread, Notes: slices.Concat(i.notes, p.notes),
		Misplaced: i.findMisplaced(ctx, object, node),
		Kubectl:   i.Commands.Kubectl,
		Misfits: func(pod, injected []byte) ([]string, string) {
			return i.Fits.Misfits(p.Labels, p.limits, pod, injected), p.unknown
		},
		Original: func(pod []byte) []string { return i.Fits.Original(p.Labels, p.limits, pod) },
		Recreate: func(pod []byte) (string, error) { return i.whyNotCurrent(ctx, p, object, pod) },
	}
	if !i.unknown && p.Known {
		s.Webhooks = []explain.Webhook{}
		for k := range i.entries {
			s.Webhooks = append(s.Webhooks, i.entries[k].Match(p.Labels, text))
		}
	}
	_, known := workloads.PodIn(object.GetAPIVersion(), object.GetKind())
	if !known || len(podAt) == 0 || i.Overlaid || object.GetKind() == "PodTemplate" { // it creates no pods, or in an unknown way
		r, err := explain.New(i.injector, s)
		if err == nil && r.Unread {
			r.Shows = append(r.Shows, i.showReported(ctx, p, object)...)
		}
		return r, err
	}
	why, err := i.whyCannotCreate(ctx, p, object)
	if err != nil {
		return nil, err
	}
	running, err := i.compareRunning(ctx, p, object)
	if err != nil {
		return nil, err
	}
	s.Notes = slices.Concat(i.notes, p.notes) // again: comparing the pods may have added notes
	r, err := explain.New(i.injector, s)
	if err == nil {
		if r.Unread {
			r.Shows = append(r.Shows, i.showWorkload(ctx, p, object)...)
		}
		r.Compare(running)
		help := i.Commands.Help
		help.Namespace, help.Foreign = p.Name, r.Unread
		r.Fail(why, help)
	}
	return r, err
}

// whyNotCurrent returns why a new pod in place of an existing one may not be current, or "" if it would be.
func (i *Installation) whyNotCurrent(ctx context.Context, p *namespace, object *unstructured.Unstructured, pod []byte) (why string, err error) {
	if why := cmp.Or(i.whyUnsure(), p.unknown); why != "" {
		return why, nil
	}
	scope := i.namespaceScope(p)
	count := status.NewCount(i.injector, scope)
	if len(scope.LastWord) > 0 { // other running pods may show that what other webhooks change does no harm
		if all := i.countPods(ctx, p, ""); all != nil {
			count = all
		}
	}
	var maker []byte
	if o := metav1.GetControllerOf(object); o != nil {
		owner := i.readOwner(ctx, object.GetNamespace(), o)
		if owner == nil {
			return fmt.Sprintf("its %s cannot be read", o.Kind), nil // without the name, so that all its siblings have one report
		}
		if maker, err = owner.MarshalJSON(); err != nil {
			return "", err
		}
	}
	return count.WhyNotRecreate(pod, maker, func(labels map[string]string, pod []byte, n int) string { return i.Fits.Room(labels, p.limits, pod, n) })
}

// findMisplaced returns findings about Pillion's keys in the metadata of a workload, which are meant for its pods. For a pod, it
// inspects the workload at the top: for example the Deployment and not the ReplicaSet, whose metadata users do not write.
func (i *Installation) findMisplaced(ctx context.Context, object *unstructured.Unstructured, node *jsontree.Node) []inject.Finding {
	for range 2 { // the ReplicaSet of a pod, and its Deployment
		owner := metav1.GetControllerOf(object)
		if owner == nil {
			break
		}
		if object = i.readOwner(ctx, object.GetNamespace(), owner); object == nil {
			return nil // deleted, or not readable
		}
		var err error
		if node, err = nodeOf(object); err != nil {
			return nil
		}
	}
	return i.injector.Misplaced(object.GetAPIVersion(), object.GetKind(), node)
}

func nodeOf(object *unstructured.Unstructured) (*jsontree.Node, error) {
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return new(jsontree.Parser).Parse(string(text), 0)
}
