// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// list returns templates of namespaces. They must not be changed.
func list(ctx context.Context, read client.Reader, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	return listKind(ctx, read, v1alpha1.NamespacedKind, options...)
}

// listKind returns templates of a kind. They must not be changed.
func listKind(ctx context.Context, read client.Reader, kind string, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(newObject(kind + "List").GroupVersionKind())
	if err := read.List(ctx, all, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("reading the templates of the kind %s: %w", kind, err)
	}
	return all.Items, nil
}

// newObject returns an empty object of a kind of templates.
func newObject(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.Group, Version: v1alpha1.Version, Kind: kind})
	return o
}
