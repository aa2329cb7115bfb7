// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"net/url"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Configurations follows webhook configurations.
type Configurations struct {
	Client admissionclient.AdmissionregistrationV1Interface
	Name   string // of the first two, see [Configuration.Named]
	// Trust is told what API servers go by; with no anchors, that there is no such
	// configuration. Blind is told that a configuration cannot be watched.
	Trust func(Configuration, []Anchor)
	Blind func(Configuration, error)
}

// Follow follows one of them until ctx is done.
func (c *Configurations) Follow(ctx context.Context, which Configuration) {
	trust := func(object any) { c.Trust(which, anchors(object)) }
	blind := func(err error) { c.Blind(which, err) }
	if which == Mutating {
		client := c.Client.MutatingWebhookConfigurations()
		follow(ctx, which.Named(c.Name), source[*admissionregistrationv1.MutatingWebhookConfigurationList]{
			&admissionregistrationv1.MutatingWebhookConfiguration{}, client.List, client.Watch,
		}, trust, blind)
		return
	}
	client := c.Client.ValidatingWebhookConfigurations()
	follow(ctx, which.Named(c.Name), source[*admissionregistrationv1.ValidatingWebhookConfigurationList]{
		&admissionregistrationv1.ValidatingWebhookConfiguration{}, client.List, client.Watch,
	}, trust, blind)
}

// anchors are those of a webhook configuration; nil has none.
func anchors(object any) (all []Anchor) {
	switch o := object.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range o.Webhooks {
			all = append(all, anchor(o.Webhooks[i].Name, o.Webhooks[i].ClientConfig))
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range o.Webhooks {
			all = append(all, anchor(o.Webhooks[i].Name, o.Webhooks[i].ClientConfig))
		}
	}
	return all
}

// anchor reads a clientConfig as an API server does.
func anchor(webhook string, c admissionregistrationv1.WebhookClientConfig) Anchor {
	a := Anchor{Webhook: webhook, Bundle: c.CABundle}
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

// followSecret calls changed with the Secret, and with nil where there is none,
// until ctx is done.
func followSecret(ctx context.Context, client coreclient.SecretInterface, name string, changed func(*corev1.Secret), failed func(error)) {
	follow(ctx, name, source[*corev1.SecretList]{&corev1.Secret{}, client.List, client.Watch},
		func(object any) {
			secret, _ := object.(*corev1.Secret)
			changed(secret)
		}, failed)
}

// source lists and watches objects of one type.
type source[L runtime.Object] struct {
	object runtime.Object // of that type
	list   func(context.Context, metav1.ListOptions) (L, error)
	watch  func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// follow calls changed with the object of that name as often as it changes, and
// with nil where there is none, until ctx is done. It asks for no other object, so
// a right to that one by its name is enough.
func follow[L runtime.Object](ctx context.Context, name string, from source[L], changed func(any), failed func(error)) {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return from.list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return from.watch(ctx, o)
		},
	}, from.object, 0, nil)
	// Both can only fail once the informer has been started.
	_ = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) {
			failed(err)
		}
	})
	var mu sync.Mutex // of calls of changed: the last one tells the last state
	tell := func(object any) {
		mu.Lock()
		defer mu.Unlock()
		changed(object)
	}
	handler, _ := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    tell,
		UpdateFunc: func(_, object any) { tell(object) },
		DeleteFunc: func(any) { tell(nil) },
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
