// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pillion-dev/pillion/inject/report/explain"
)

// Every explains all objects of the given kinds in a namespace, or in all namespaces ("").
// Objects in the same situation share a report. Without kinds, it explains the objects that
// users write: workloads, and pods without an owner. If the selector matches no such object, it
// explains all pods that match it.
func (i *Installation) Every(ctx context.Context, namespace string, kinds []Kind, selector string) ([]*explain.Report, error) {
	if namespace != "" {
		if _, err := i.readNamespace(ctx, namespace); err != nil {
			return nil, err
		}
	}
	i.whole = true
	written := len(kinds) == 0
	if written {
		kinds = slices.DeleteFunc(Kinds(), func(k Kind) bool { return k.Kind == "PodTemplate" })
	}
	all := &explain.Situations{}
	var left []string
	for _, kind := range kinds {
		switch err := i.explainEach(ctx, explained{kind.Resource(), namespace, selector, written}, all); {
		case apierrors.IsForbidden(err) && len(kinds) > 1:
			left = append(left, kind.resource)
			i.addNote(fmt.Sprintf("You are not allowed to list %s%s, so they are left out.", kind.resource, InNamespace(namespace)))
		case err != nil:
			return nil, explainForbidden(err, "list", kind.resource, namespace, "name one: pillion explain KIND/NAME")
		}
	}
	if written && selector != "" && len(all.Reports) == 0 {
		pods := corev1.SchemeGroupVersion.WithResource("pods")
		if err := i.explainEach(ctx, explained{pods, namespace, selector, false}, all); err != nil {
			return nil, explainForbidden(err, "list", pods.Resource, namespace, "name one: pillion explain KIND/NAME")
		}
	}
	for _, r := range all.Reports { // some reports were made before a note was added
		for _, note := range i.notes {
			if !slices.Contains(r.Notes, note) {
				r.Notes = append(r.Notes, note)
			}
		}
	}
	if len(all.Reports) == 0 && len(left) > 0 {
		return nil, fmt.Errorf("you are not allowed to list %s%s, and there is nothing else that makes pods: ask for the verb list on these resources, or name one: pillion explain KIND/NAME", strings.Join(left, ", "), InNamespace(namespace))
	}
	return all.Reports, nil
}

// explained are objects to explain.
type explained struct {
	resource            schema.GroupVersionResource
	namespace, selector string
	written             bool // only those that users write
}

// explainEach explains all objects of a kind.
func (i *Installation) explainEach(ctx context.Context, of explained, all *explain.Situations) error {
	done := map[string]bool{} // prevents duplicates if the list has to start again
	each := func(object *unstructured.Unstructured) error {
		name := object.GetNamespace() + "/" + object.GetName()
		if done[name] || of.written && (isMade(object) || hasEnded(object)) {
			return nil
		}
		done[name] = true
		r, err := i.explainObject(ctx, object)
		if err != nil {
			return fmt.Errorf("%s/%s in the namespace %s: %w", object.GetKind(), object.GetName(), object.GetNamespace(), err)
		}
		return all.Add(r)
	}
	if of.resource != corev1.SchemeGroupVersion.WithResource("pods") {
		return i.eachObject(ctx, i.Resource(of.resource).Namespace(of.namespace), of.selector, each, func() {})
	}
	return i.eachPod(ctx, of.namespace, of.selector, func(pod *listedPod) error {
		if of.written && (isMade(&pod.Metadata) || pod.hasEnded()) { // most pods, so they do not become objects
			return nil
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(pod.text); err != nil {
			return err
		}
		return each(object)
	}, func() {})
}
