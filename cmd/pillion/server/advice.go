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

// advice is the additional data for /advise: the Pod Security Standards, and the LimitRanges
// and quotas of all namespaces, slightly behind the cluster. Nothing waits for this data.
// While it is not loaded, or if Pillion is not allowed to read it, there is no advice about
// it.
type advice struct {
	fits           *limits.Evaluator
	ranges, quotas cache.Indexer // nil without --advise
	follow         []func(context.Context)
}

// newAdvice follows the cluster's limits, only with --advise.
func (o *Options) newAdvice() (*advice, error) {
	fits, err := limits.NewEvaluator()
	a := &advice{fits: fits}
	if err != nil || !o.advise {
		return a, err
	}
	client, err := kube.NewClient(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	a.ranges = followLimits[corev1.LimitRange](a, client, "limitranges")
	a.quotas = followLimits[corev1.ResourceQuota](a, client, "resourcequotas")
	return a, nil
}

func followLimits[T any](a *advice, client dynamic.Interface, resource string) cache.Indexer {
	store, controller := kube.Inform(client, client.Resource(corev1.SchemeGroupVersion.WithResource(resource)), "", func(error) {}, cache.InformerOptions{
		ObjectType: &unstructured.Unstructured{}, Transform: kube.Typed[T],
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	})
	a.follow = append(a.follow, controller.RunWithContext)
	return store.(cache.Indexer) // the store is created with Indexers
}

// Limits implements [webhook.Limits].
func (a *advice) Limits(namespace string) limits.Limits {
	return limits.Limits{Ranges: limitsIn[corev1.LimitRange](a.ranges, namespace), Quotas: limitsIn[corev1.ResourceQuota](a.quotas, namespace)}
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
