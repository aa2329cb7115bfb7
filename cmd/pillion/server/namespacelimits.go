// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/lint/limits"
)

// namespaceLimits is what the webhook /advise compares pods with: the Pod Security Standards, and the LimitRanges and quotas of all
// namespaces, slightly behind the cluster. Nothing waits for this data. While it is not loaded, or if Pillion is not allowed to read
// it, there are no warnings about it.
type namespaceLimits struct {
	evaluator      *limits.Evaluator
	ranges, quotas cache.Indexer // nil without --advise
	follow         []func(context.Context)
}

// newNamespaceLimits returns the data for /advise. It follows the cluster's limits only with --advise.
func (o *Options) newNamespaceLimits() (*namespaceLimits, error) {
	evaluator, err := limits.NewEvaluator()
	l := &namespaceLimits{evaluator: evaluator}
	if err != nil || !o.advise {
		return l, err
	}
	client, err := kube.NewClient(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	l.ranges = followLimits[corev1.LimitRange](l, client, "limitranges")
	l.quotas = followLimits[corev1.ResourceQuota](l, client, "resourcequotas")
	return l, nil
}

// followLimits returns the store of a resource, which is filled once follow runs.
func followLimits[T any](l *namespaceLimits, client dynamic.Interface, resource string) cache.Indexer {
	store, controller := kube.Inform(client, client.Resource(corev1.SchemeGroupVersion.WithResource(resource)), "", func(error) {}, cache.InformerOptions{
		ObjectType: &unstructured.Unstructured{}, Transform: kube.Typed[T],
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	l.follow = append(l.follow, controller.RunWithContext)
	return store.(cache.Indexer) // the store is created with Indexers
}

// Limits implements [webhook.Limits].
func (l *namespaceLimits) Limits(namespace string) limits.Limits {
	return limits.Limits{Ranges: limitsIn[corev1.LimitRange](l.ranges, namespace), Quotas: limitsIn[corev1.ResourceQuota](l.quotas, namespace)}
}

func limitsIn[T any](index cache.Indexer, namespace string) (all []*T) {
	if index == nil {
		return nil
	}
	objects, _ := index.ByIndex(cache.NamespaceIndex, namespace) // the index exists
	for _, object := range objects {
		if o, ok := object.(*T); ok {
			all = append(all, o)
		}
	}
	return all
}
