// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/diff"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/workloads"
)

// tallyPods counts the pods of a namespace, or for "" of all namespaces, by their owners. It compares pods without an owner at once.
func (p *comparer) tallyPods(ctx context.Context, namespace, selector string) error {
	var bare compared
	err := p.eachPod(ctx, namespace, selector, func(pod *listedPod) error {
		if p.namespaces[pod.Metadata.Namespace] == nil || !pod.isRunning() {
			return nil
		}
		return p.tallyPod(ctx, &bare, pod)
	}, func() { bare, p.workloads = compared{}, map[workload]*tally{} })
	p.out.Compare(bare.Count, bare.outcomes)
	return p.reportForbidden(err, "list", "pods", namespace)
}

// isRunning reports whether a pod has neither ended nor is being deleted, and is no mirror pod.
func (p *listedPod) isRunning() bool {
	_, mirror := p.Metadata.Annotations[corev1.MirrorPodAnnotationKey]
	return !mirror && p.Metadata.DeletionTimestamp == nil && !p.hasEnded()
}

func (p *comparer) tallyPod(ctx context.Context, bare *compared, pod *listedPod) error {
	namespace, name := pod.Metadata.Namespace, pod.Metadata.Name
	owner := metav1.GetControllerOf(&pod.Metadata)
	if owner == nil {
		text, err := pod.withoutManagers()
		if err != nil {
			return err
		}
		if text = p.originalPod(namespace, name, text); text == nil {
			return nil
		}
		o := diff.Owner{Namespace: namespace, APIVersion: "v1", Kind: "Pod", Name: name}
		return p.compareWorkload(ctx, bare, &diff.Workload{Owner: o, Pods: 1, Request: inject.Request{Object: text}})
	}
	t := p.ownerTally(namespace, owner)
	if t.pods++; t.example == nil {
		if _, known := ownerResource(owner); !known {
			var err error
			t.example, err = pod.withoutManagers()
			return err
		}
	}
	p.progress.Say("%d workloads with pods", len(p.workloads))
	return nil
}

// withoutManagers returns the JSON of a pod without its managed fields.
func (p *listedPod) withoutManagers() ([]byte, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(p.text); err != nil {
		return nil, err
	}
	object.SetManagedFields(nil)
	return object.MarshalJSON()
}

// compareKind compares the workloads of a kind. If another workload owns one, for example a ReplicaSet, its pods count for the owner.
func (p *comparer) compareKind(ctx context.Context, kind Kind, namespace string) error {
	var all compared
	moved, done := map[workload]*metav1.OwnerReference{}, map[workload]bool{}
	err := p.eachObject(ctx, p.Resource(kind.Resource()).Namespace(namespace), "", func(object *unstructured.Unstructured) error {
		s := p.namespaces[object.GetNamespace()]
		if s == nil {
			return nil
		}
		object.SetManagedFields(nil)
		object.SetGroupVersionKind(kind.GroupVersionKind) // items of a list may lack it
		key := workloadOf(object.GetNamespace(), object.GetAPIVersion(), kind.Kind, object.GetName())
		t := p.workloads[key]
		switch owner := metav1.GetControllerOf(object); {
		case owner != nil && isMade(object):
			if t != nil {
				moved[key] = owner
			}
			return nil
		case t == nil && (kind.owned || s.onlyPods || object.GetDeletionTimestamp() != nil): // it has ended, or is an old revision
			return nil
		}
		done[key] = true
		return p.compareObject(ctx, &all, object, t)
	}, func() { all = compared{}; clear(moved); clear(done) })
	for key, owner := range moved {
		to := p.ownerTally(key.namespace, owner)
		to.pods += p.workloads[key].pods
		delete(p.workloads, key)
	}
	p.out.Compare(all.Count, all.outcomes)
	p.dropCounts(kind, done)
	return p.reportForbiddenKind(err, kind, namespace)
}

// dropCounts removes the counts of a kind after its objects were compared. It notes pods whose owner was not found.
func (p *comparer) dropCounts(kind Kind, done map[workload]bool) {
	pods, example := 0, ""
	for key, t := range p.workloads {
		if key.kind != kind.Kind || key.group != kind.Group || t.example != nil {
			continue
		}
		delete(p.workloads, key)
		if name := key.namespace + "/" + key.kind + "/" + key.name; !done[key] {
			pods += t.pods
			if example == "" || name < example {
				example = name
			}
		}
	}
	if pods > 0 {
		p.addNote(fmt.Sprintf("Not compared: %s of %s, for example of %s, which were not found.", explain.Plural(pods, "pod"), kind.resource, example))
	}
}

// reportForbiddenKind reports a missing right as a problem.
func (p *comparer) reportForbiddenKind(err error, kind Kind, namespace string) error {
	if err = p.reportForbidden(err, "list", kind.resource, namespace); err != nil {
		return fmt.Errorf("the %s%s: %w", kind.resource, InNamespace(namespace), err)
	}
	return nil
}

// compareObject compares the pod template of an object.
func (p *comparer) compareObject(ctx context.Context, into *compared, object *unstructured.Unstructured, t *tally) error {
	pods := 0
	if t != nil {
		pods = t.pods
	}
	podAt, _ := workloads.PodIn(object.GetAPIVersion(), object.GetKind())
	pod, found, err := unstructured.NestedMap(object.Object, podAt...)
	if err != nil || !found { // a ReplicationController may have none
		return nil //nolint:nilerr // the API server knows better
	}
	text, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	node, err := nodeOf(object)
	if err != nil {
		return err
	}
	owner := diff.Owner{Namespace: object.GetNamespace(), APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName()}
	return p.compareWorkload(ctx, into, &diff.Workload{Owner: owner, Pods: pods, Request: inject.Request{Object: text, Claims: workloads.Claims(node), Owner: workloads.OwnerOf(object.GetKind(), node)}})
}

// compareOthers compares pods whose owners have no pod template that is known here, by one pod of each.
func (p *comparer) compareOthers(ctx context.Context) error {
	var all compared
	order := slices.SortedFunc(maps.Keys(p.workloads), func(a, b workload) int {
		return strings.Compare(a.namespace+" "+a.kind+" "+a.name, b.namespace+" "+b.kind+" "+b.name)
	})
	for _, key := range order {
		t := p.workloads[key]
		delete(p.workloads, key)
		if t.example == nil {
			continue // its owner was deleted in the meantime
		}
		pod := p.originalPod(key.namespace, key.name, t.example)
		if pod == nil {
			continue
		}
		o := diff.Owner{Namespace: key.namespace, APIVersion: t.apiVersion, Kind: key.kind, Name: key.name}
		if err := p.compareWorkload(ctx, &all, &diff.Workload{Owner: o, Pods: t.pods, Request: inject.Request{Object: pod}}); err != nil {
			return err
		}
	}
	p.out.Compare(all.Count, all.outcomes)
	return nil
}
