// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// scopeOf returns the templates that may replace a template, or be replaced by it: those of the cluster, and for a
// template of a namespace those of that namespace too. They have only what decides about that.
func scopeOf(ctx context.Context, read client.Reader, template *unstructured.Unstructured) (*templates.Set, error) {
	all, err := listKind(ctx, read, v1alpha1.ClusterKind)
	if err != nil {
		return nil, err
	}
	if namespace := template.GetNamespace(); namespace != "" {
		own, err := list(ctx, read, client.InNamespace(namespace))
		if err != nil {
			return nil, err
		}
		all = append(slices.Clip(all), own...)
	}
	set := &templates.Set{}
	for i := range all {
		set.Templates = append(set.Templates, outline(&all[i]))
	}
	return set, nil
}

// outline returns the part of a template that decides which others it replaces.
func outline(template *unstructured.Unstructured) *templates.Template {
	t := &templates.Template{Name: template.GetName(), Namespace: template.GetNamespace()}
	t.Spec.Replaces = replaces(template)
	t.Spec.Required, _, _ = unstructured.NestedBool(template.Object, "spec", "required")
	return t
}

// replaces returns spec.replaces of a template.
func replaces(template *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(template.Object, "spec", "replaces")
	return name
}

// misreplaced returns what is wrong with spec.replaces of a template, or "".
func misreplaced(scope *templates.Set, template *unstructured.Unstructured) string {
	why, _ := scope.Misreplaced(outline(template))
	return why
}

// replacing returns the names of the templates that replace a template.
func replacing(scope *templates.Set, template *unstructured.Unstructured) (names []string) {
	for _, t := range scope.Templates {
		if t.Spec.Replaces == template.GetName() && t.Namespace == template.GetNamespace() {
			names = append(names, t.Name)
		}
	}
	return names
}

// replacements returns the templates that a template replaces, or that replace it. They must not be changed.
func replacements(ctx context.Context, read client.Reader, template *unstructured.Unstructured) (found []*unstructured.Unstructured, err error) {
	namespace, kind := template.GetNamespace(), v1alpha1.NamespacedKind
	if namespace == "" {
		kind = v1alpha1.ClusterKind
	}
	all, err := listKind(ctx, read, kind, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].GetName() == replaces(template) || replaces(&all[i]) == template.GetName() {
			found = append(found, &all[i])
		}
	}
	return found, nil
}

// withReplacements returns a function that requests a template and its replacements.
func withReplacements(read client.Reader) handler.TypedMapFunc[*unstructured.Unstructured, reconcile.Request] {
	return func(ctx context.Context, template *unstructured.Unstructured) []reconcile.Request {
		requests := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(template)}}
		others, _ := replacements(ctx, read, template) // if they are not read yet, they are requested when they are
		for _, other := range others {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(other)})
		}
		return requests
	}
}
