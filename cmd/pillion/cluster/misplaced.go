// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
)

// findMisplaced finds the workloads of a namespace that have Pillion's keys in their own metadata,
// for the kinds that [survey.readOwners] does not read.
func (k *survey) findMisplaced(ctx context.Context, namespace string) error {
	for _, kind := range Kinds() {
		if kind.makes != "owners" {
			continue
		}
		err := k.eachObject(ctx, k.Resource(kind.Resource()).Namespace(namespace), "", func(object *unstructured.Unstructured) error { return k.reportMisplaced(kind.GroupVersionKind, object) }, func() {})
		if err := k.noteUnlisted(err, kind, namespace, "labels and annotations in the wrong place are not reported"); err != nil {
			return err
		}
	}
	return nil
}

// misplacedElsewhere finds the workloads, in namespaces that did not opt in, whose pods would opt in if the
// label were in the right place.
func (k *survey) misplacedElsewhere(ctx context.Context, namespaces map[string]*unstructured.Unstructured) error {
	for _, kind := range Kinds() {
		if kind.makes == "" || kind.owned {
			continue
		}
		err := k.eachObject(ctx, k.Resource(kind.Resource()), inject.LabelInject+"="+inject.Enabled, func(object *unstructured.Unstructured) error {
			if namespaces[object.GetNamespace()] == nil {
				return nil
			}
			return k.reportMisplaced(kind.GroupVersionKind, object)
		}, func() {})
		if err := k.noteUnlisted(err, kind, "", "objects that opt in in the wrong place are not reported"); err != nil {
			return err
		}
	}
	return nil
}

// reportMisplaced adds an object to the report if its keys are misplaced and the user's selection
// includes its pods.
func (k *survey) reportMisplaced(kind schema.GroupVersionKind, object *unstructured.Unstructured) error {
	if !mentionsPillion(object.Object, "metadata") && !mentionsPillion(object.Object, "spec", "jobTemplate", "metadata") {
		return nil
	}
	path, _ := workloads.PodIn(kind.GroupVersion().String(), kind.Kind)
	made, _, err := unstructured.NestedStringMap(object.Object, append(path, "metadata", "labels")...)
	if err != nil || !k.selector.Matches(labels.Set(made)) {
		return err
	}
	object.SetManagedFields(nil)
	object.SetGroupVersionKind(kind) // items of a list may lack it
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	return k.report.Misplace(k.injector, text)
}

// mentionsPillion reports whether the metadata at a path has a key of Pillion's. It is a quick
// check, because most metadata has none.
func mentionsPillion(object map[string]any, path ...string) bool {
	for _, field := range []string{"labels", "annotations"} {
		all, _, _ := unstructured.NestedMap(object, append(path, field)...)
		for key := range all {
			if domain, _, ok := strings.Cut(key, "/"); ok && strings.HasSuffix(domain, templates.Domain) {
				return true
			}
		}
	}
	return false
}

// noteUnlisted notes that the user is not allowed to list the objects of a kind, and what follows from that (so, the end of a
// sentence). It returns any other error.
func (k *survey) noteUnlisted(err error, kind Kind, namespace, so string) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	k.addNote(fmt.Sprintf("You are not allowed to list %s%s, so %s.", kind.resource, cmp.Or(InNamespace(namespace), " in all namespaces"), so))
	return nil
}
