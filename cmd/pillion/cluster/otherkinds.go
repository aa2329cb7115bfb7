// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/workloads"
)

// FindKind returns the kind that a user means by a name, a short name or a resource, as kubectl does: one of [Kinds], or any other
// of the cluster, which [Installation.ExplainOther] explains.
func (i *Installation) FindKind(word string) (Kind, error) {
	known, err := KindOf(word)
	if err == nil {
		return known, nil
	}
	mapper, mapErr := i.resources()
	if mapErr != nil {
		return Kind{}, fmt.Errorf("whether the cluster knows %q: %w", word, NoAnswer(mapErr))
	}
	exact, parts := schema.ParseResourceArg(strings.ToLower(word))
	resource, mapErr := schema.GroupVersionResource{}, error(nil)
	if exact != nil {
		resource, mapErr = mapper.ResourceFor(*exact)
	}
	if exact == nil || mapErr != nil {
		resource, mapErr = mapper.ResourceFor(parts.WithVersion(""))
	}
	if mapErr != nil {
		return Kind{}, fmt.Errorf("%w, or any other kind; the cluster has none of this name", err)
	}
	kind, mapErr := mapper.KindFor(resource)
	if mapErr != nil {
		return Kind{}, mapErr
	}
	if mapping, mapErr := mapper.RESTMapping(kind.GroupKind(), kind.Version); mapErr != nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return Kind{}, errors.Join(mapErr, fmt.Errorf("%s is in no namespace, so it has no pods", kind.Kind))
	}
	return Kind{GroupVersionKind: kind, resource: resource.Resource, other: true}, nil
}

// ExplainOther explains an object of a kind that Pillion does not know: the pods with its pod templates, and the running pods that
// belong to it.
func (i *Installation) ExplainOther(ctx context.Context, kind Kind, namespace, name string) ([]*explain.Report, error) {
	object, err := i.Resource(kind.Resource()).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, explainForbidden(err, "get", kind.resource, namespace, "name another object")
	}
	node, err := nodeOf(object)
	if err != nil {
		return nil, err
	}
	var reports []*explain.Report
	for _, t := range workloads.PodTemplates(object.GetAPIVersion(), object.GetKind(), node) {
		r, err := i.explainTemplate(ctx, object, node, t)
		if err != nil {
			return nil, err
		}
		r.Notes = append(r.Notes, "Pillion does not know this kind. This is about pods with the template at "+t.Where()+".")
		reports = append(reports, r)
	}
	running, err := i.explainOwned(ctx, object)
	if err != nil {
		return nil, err
	}
	if reports = append(reports, running...); len(reports) == 0 {
		return nil, fmt.Errorf("it has no pod template, and no pod%s belongs to it", InNamespace(namespace))
	}
	return reports, nil
}

// explainOwned explains the running pods that belong to an object, by their owners and the owners of these.
func (i *Installation) explainOwned(ctx context.Context, object *unstructured.Unstructured) ([]*explain.Report, error) {
	namespace := object.GetNamespace()
	owners := &ownership{i: i, namespace: namespace, belongs: map[types.UID]bool{object.GetUID(): true}}
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	all, read := &explain.Situations{}, 0
	err := i.eachObject(ctx, i.Resource(pods).Namespace(namespace), "", func(pod *unstructured.Unstructured) error {
		if hasEnded(pod) || !owners.isOwned(ctx, pod, mostOwners) {
			return nil
		}
		if read++; read > maxRunning {
			return errEnough
		}
		r, err := i.explainObject(ctx, pod)
		if err != nil {
			return err
		}
		return all.Add(r)
	}, func() { all, read = &explain.Situations{}, 0 })
	switch {
	case errors.Is(err, errEnough):
		return all.Reports, nil
	case apierrors.IsForbidden(err):
		i.addNote(fmt.Sprintf("The running pods%s are unknown: %s.", InNamespace(namespace), whyNot(err, "pods")))
		return nil, nil
	}
	return all.Reports, err
}

// mostOwners is the maximum number of owners from a pod up to an object, for example a ReplicaSet, a Deployment and an application.
const mostOwners = 6

// ownership finds out which objects of a namespace belong to a certain object.
type ownership struct {
	i         *Installation
	namespace string
	belongs   map[types.UID]bool // whether an owner is that object or belongs to it; each owner is read once
}

// isOwned reports whether an object belongs to the object of the ownership: that object is one of its owners, at most so many steps
// above it.
func (o *ownership) isOwned(ctx context.Context, object *unstructured.Unstructured, steps int) bool {
	for _, owner := range object.GetOwnerReferences() {
		belongs, known := o.belongs[owner.UID]
		if !known && steps > 0 {
			o.belongs[owner.UID] = false // so that the search ends if owners form a circle
			if above := o.readOwner(ctx, owner); above != nil {
				belongs = o.isOwned(ctx, above, steps-1)
			}
			o.belongs[owner.UID] = belongs
		}
		if belongs {
			return true
		}
	}
	return false
}

// readOwner returns an owner, or nil if it does not exist or cannot be read.
func (o *ownership) readOwner(ctx context.Context, owner metav1.OwnerReference) *unstructured.Unstructured {
	mapper, err := o.i.resources()
	if err != nil {
		return nil
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return nil
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: gv.Group, Kind: owner.Kind}, gv.Version)
	if err != nil || mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return nil
	}
	above, err := o.i.Resource(mapping.Resource).Namespace(o.namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	if apierrors.IsForbidden(err) {
		o.i.addNote(fmt.Sprintf("You are not allowed to get %s%s, so some pods may be missing here.", mapping.Resource.Resource, InNamespace(o.namespace)))
	}
	if err != nil || above.GetUID() != owner.UID {
		return nil
	}
	return above
}
