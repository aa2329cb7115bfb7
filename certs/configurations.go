// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"net/url"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Resource returns the API resource of this kind of configuration.
func (c Configuration) Resource() schema.GroupVersionResource {
	return admissionregistrationv1.SchemeGroupVersion.WithResource(strings.ToLower(c.Kind()) + "s")
}

// Configurations follows webhook configurations.
type Configurations struct {
	Client dynamic.Interface
	Name   string // of the first two configurations, see [Configuration.Named]
	// Trust is called with the caBundles that API servers use, or with none if the configuration
	// does not exist. Blind is called if a configuration cannot be watched.
	Trust func(Configuration, []CABundle)
	Blind func(Configuration, error)
}

// Follow follows one configuration until ctx is done.
func (c *Configurations) Follow(ctx context.Context, which Configuration) {
	// Both kinds have the same relevant fields.
	trust := func(config *admissionregistrationv1.ValidatingWebhookConfiguration) {
		var all []CABundle
		if config != nil {
			for i := range config.Webhooks {
				all = append(all, CABundleOf(config.Webhooks[i].Name, config.Webhooks[i].ClientConfig))
			}
		}
		c.Trust(which, all)
	}
	followObject(ctx, c.Client.Resource(which.Resource()), which.Named(c.Name), trust, func(err error) { c.Blind(which, err) })
}

// CABundleOf returns what an API server reads from a clientConfig.
func CABundleOf(webhook string, c admissionregistrationv1.WebhookClientConfig) CABundle {
	a := CABundle{Webhook: webhook, Bundle: c.CABundle}
	switch {
	case c.Service != nil:
		a.Host = c.Service.Name + "." + c.Service.Namespace + ".svc"
	case c.URL != nil:
		if u, err := url.Parse(*c.URL); err == nil {
			a.Host = u.Hostname()
		}
	}
	return a
}

// followObject calls changed with the named object, a T, whenever it changes, and with nil if it
// does not exist, until ctx is done. It requests no other object, so permission for this
// resource name suffices.
func followObject[T any](ctx context.Context, from dynamic.ResourceInterface, name string, changed func(*T), failed func(error)) {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return from.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return from.Watch(ctx, o)
		},
	}, &unstructured.Unstructured{}, 0, nil)
	// Both calls can fail only after the informer has been started.
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
			failed(err)
		}
	})
	var mu sync.Mutex // serializes calls of changed, so that the last one gets the last state
	tell := func(object any) {
		typed := new(T)
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, typed)
		if err != nil {
			failed(err)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		changed(typed)
	}
	handler, _ := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		UpdateFunc: func(_, object any) { tell(object) },
		DeleteFunc: func(any) {
			mu.Lock()
			defer mu.Unlock()
			changed(nil)
		},
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		if !cache.WaitForCacheSync(ctx.Done(), handler.HasSynced) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if len(informer.GetStore().ListKeys()) == 0 {
			changed(nil)
		}
	}()
	informer.RunWithContext(ctx)
	<-done
}
