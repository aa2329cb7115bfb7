// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/status"
)

// readOwners reads the objects that create pods in a namespace, for example ReplicaSets and Jobs: which objects own them, whether they
// cannot create their pods, and whether Pillion's keys are in the wrong place.
func (k *survey) readOwners(ctx context.Context, namespace string, count *status.Count) error {
	for _, kind := range Kinds() {
		if kind.makes != "pods" {
			continue
		}
		names := count.ControllerNames(kind.Kind)
		owners := map[string]status.Owner{}
		var failing []*status.Failing
		client := k.Resource(kind.Resource()).Namespace(namespace)
		err := k.eachObject(ctx, client, "", func(object *unstructured.Unstructured) error {
			if _, owns := slices.BinarySearch(names, object.GetName()); owns {
				if o := metav1.GetControllerOf(object); o != nil {
					owners[object.GetName()] = status.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}
				}
			}
			f, err := k.findFailing(ctx, count, kind, object)
			if f != nil {
				failing = append(failing, f)
			}
			return errors.Join(err, k.reportMisplaced(kind.GroupVersionKind, object))
		}, func() { clear(owners); failing = nil })
		so := "whether all their pods can be created is unknown"
		if kind.owned && len(names) > 0 {
			so = "owners are guessed from the names of pods, or unknown. Whether all pods can be created is unknown"
		}
		if err := k.noteUnlisted(err, kind, namespace, so); err != nil {
			return err
		}
		for _, f := range failing {
			count.AddFailing(f)
		}
		if count.ReplaceOwners(kind.Kind, owners); err != nil && kind.owned {
			count.GuessDeployments()
		}
	}
	return nil
}

// findFailing returns the pods that an object cannot create, if the user's selection includes them.
func (k *survey) findFailing(ctx context.Context, count *status.Count, kind Kind, object *unstructured.Unstructured) (*status.Failing, error) {
	made, _, err := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
	if err != nil || !k.selector.Matches(labels.Set(made)) {
		return nil, err
	}
	object.SetManagedFields(nil)
	object.SetGroupVersionKind(kind.GroupVersionKind) // items of a list may lack it
	text, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	f, err := count.FindFailing(text)
	if f != nil && f.Unexplained() && k.events < maxEvents {
		k.events++
		if message := k.lastFailure(ctx, kind.Kind, object); message != "" {
			f.Explain(message)
		}
	}
	return f, err
}

// maxEvents limits the number of owners whose events are read.
const maxEvents = 100

// lastFailure returns the message of the last event about an object that cannot create a pod.
// It returns "" if there is none, or if the user is not allowed to read events.
func (l *podLister) lastFailure(ctx context.Context, kind string, object *unstructured.Unstructured) (message string) {
	options := metav1.ListOptions{FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + object.GetName() + ",reason=FailedCreate"}
	list, err := l.Resource(corev1.SchemeGroupVersion.WithResource("events")).Namespace(object.GetNamespace()).List(ctx, options)
	if err != nil {
		return ""
	}
	var last time.Time
	for i := range list.Items {
		e := &corev1.Event{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, e) != nil {
			continue
		}
		at := e.LastTimestamp.Time
		if e.Series != nil {
			at = e.Series.LastObservedTime.Time
		} else if at.IsZero() {
			at = e.EventTime.Time
		}
		if message == "" || at.After(last) {
			last, message = at, e.Message
		}
	}
	return message
}

// failElsewhere finds ReplicaSets, in namespaces that did not opt in, whose pods opt in themselves but
// cannot be created. There may be no such pod to find, so the ReplicaSets are searched: they have the labels of their
// pods.
func (k *survey) failElsewhere(ctx context.Context, namespaces map[string]*unstructured.Unstructured, counts map[string]*status.Count) error {
	err := k.eachObject(ctx, k.Resource(replicaSet.Resource()), k.alsoSelected(inject.LabelInject+"="+inject.Enabled), func(object *unstructured.Unstructured) error {
		ns := namespaces[object.GetNamespace()]
		if ns == nil || counts[ns.GetName()] != nil {
			return nil
		}
		count := k.newCount(ns)
		f, err := k.findFailing(ctx, count, replicaSet, object)
		if f != nil {
			counts[ns.GetName()] = count
		}
		return err
	}, func() {})
	return k.noteUnlisted(err, replicaSet, "", "whether all pods that opt in themselves can be created is unknown")
}

// readOwner reads an owner once, because many pods have the same one. It returns nil if the owner
// cannot be read.
func (i *Installation) readOwner(ctx context.Context, namespace string, owner *metav1.OwnerReference) *unstructured.Unstructured {
	key := namespace + "/" + owner.Kind + "/" + owner.Name
	object, known := i.owners[key]
	if resource, ok := ownerResource(owner); ok && !known {
		var err error
		if object, err = i.Resource(resource).Namespace(namespace).Get(ctx, owner.Name, metav1.GetOptions{}); err != nil {
			object = nil
		}
		i.owners[key] = object
	}
	return object
}
