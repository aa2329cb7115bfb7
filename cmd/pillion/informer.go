// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// listable are the objects of one resource, as its client gives them.
type listable[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

// inform has a store follow objects while its controller runs; options say the
// rest. Api is the client that all is asked by.
func inform[L runtime.Object](api any, of listable[L], options cache.InformerOptions) (cache.Store, cache.Controller) {
	options.ListerWatcher = cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return of.List(ctx, o)
		},
		WatchFuncWithContext: of.Watch,
	}, api)
	if options.Handler == nil {
		options.Handler = cache.ResourceEventHandlerFuncs{}
	}
	return cache.NewInformerWithOptions(options)
}

// typed makes a *T of an object without a type; what else a store is told of stays.
func typed[T any](object any) (any, error) {
	o, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, nil
	}
	t := new(T)
	return t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, t)
}
