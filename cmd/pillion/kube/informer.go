// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listable lists and watches the objects of one resource.
type listable[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// Inform creates a store that follows objects while its controller runs. Api is the client of
// the objects. The label selector may be "". The store has the objects after options.Transform,
// without the metadata that Pillion does not use. Inform calls asked with the outcome of every
// request. The factories of client-go do not do that: they report no success after a failure.
func Inform[L runtime.Object](api any, of listable[L], selector string, asked func(error), options cache.InformerOptions) (cache.Store, cache.Controller) {
	note := func(ctx context.Context, err error) {
		// These errors are normal: the API server cannot stream a list, or no longer has the
		// resource version.
		if ctx.Err() == nil && !apierrors.IsInvalid(err) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			asked(err)
		}
	}
	options.ListerWatcher = cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			list, err := of.List(ctx, o)
			note(ctx, err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			events, err := of.Watch(ctx, o)
			note(ctx, err)
			return events, err
		},
	}, api)
	if options.Handler == nil {
		options.Handler = cache.ResourceEventHandlerFuncs{}
	}
	transform := options.Transform
	options.Transform = func(object any) (any, error) {
		if m, ok := object.(metav1.Object); ok {
			dropUnusedMetadata(m)
		}
		if transform == nil {
			return object, nil
		}
		return transform(object)
	}
	return cache.NewInformerWithOptions(options)
}

// dropUnusedMetadata drops the unused metadata of an object.
func dropUnusedMetadata(m metav1.Object) {
	m.SetManagedFields(nil)
	m.SetOwnerReferences(nil)
	m.SetFinalizers(nil)
	if annotations := m.GetAnnotations(); annotations[corev1.LastAppliedConfigAnnotation] != "" {
		delete(annotations, corev1.LastAppliedConfigAnnotation)
		m.SetAnnotations(annotations)
	}
}

// Typed converts an object without a Go type to a *T. It returns anything else, such as a
// tombstone, unchanged.
func Typed[T any](object any) (any, error) {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	t := new(T)
	return t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, t)
}
