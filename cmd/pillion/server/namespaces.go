// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates/request"
)

// standalone knows no namespaces.
type standalone struct{}

// Namespace implements [webhook.Namespaces].
func (standalone) Namespace(name string) (request.Namespace, error) {
	return request.Namespace{Name: name}, nil
}

// maxNamespace limits the labels and annotations of a namespace together, in bytes, without those of kubectl.
const maxNamespace = 32 << 10

// informer knows the labels and annotations of the cluster's namespaces. It is slightly behind
// the cluster and may not know a new namespace yet.
type informer struct {
	followed

	accounts *accounts
}

// newInformer connects to the cluster of the kubeconfig, or to the one that this process runs
// in.
func newInformer(kubeconfig string) (*informer, error) {
	config, err := kube.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return informNamespaces(client), nil
}

func informNamespaces(client metadata.Interface) *informer {
	i := &informer{accounts: newAccounts(client)}
	i.later = i.accounts.later
	i.initInformer(client, "namespaces", maxNamespace, nil)
	return i
}

// Namespace implements [webhook.Namespaces]. It returns an error if it does not know the
// namespace yet: the namespace has a pod already, so its event will arrive soon. Without its
// annotations, the pod would get the wrong parameters. Without its labels, the pod would get no
// template that requires them.
func (i *informer) Namespace(name string) (request.Namespace, error) {
	m := i.objectByKey(name)
	if m == nil {
		return request.Namespace{}, fmt.Errorf("the namespace %q is not known yet; retry in a moment", name)
	}
	if isTooLarge(m) {
		return request.Namespace{}, fmt.Errorf("the namespace %q has %w: more than %d KiB, which is the limit; remove some", name, webhook.ErrNamespaceTooLarge, maxNamespace>>10)
	}
	ns := namespaceOf(m)
	for _, former := range slices.Backward(i.formerVersions(name)) {
		before := namespaceOf(former)
		before.Before, ns.Before = ns.Before, &before
	}
	if i.accounts.current.Load() != nil {
		ns.ServiceAccounts = i.accounts
	}
	return ns, nil
}

func namespaceOf(m *metav1.PartialObjectMetadata) request.Namespace {
	return request.Namespace{Name: m.Name, Labels: m.Labels, Annotations: m.Annotations, Known: true}
}

func (i *informer) checkReadiness() (string, error) { return i.checkLoaded("namespaces") }

// checkReadiness reports that there is nothing to wait for.
func (standalone) checkReadiness() (string, error) { return "standalone", nil }

// namespaces is what serve requires from a source of namespaces.
type namespaces interface {
	webhook.Namespaces
	checkReadiness() (string, error)
}

// newNamespaces returns the source of namespaces for the options; run keeps it current. The
// ServiceAccounts are nil if there is no cluster.
func (o *Options) newNamespaces() (known namespaces, more *accounts, run func(context.Context), err error) {
	if o.standalone {
		return standalone{}, nil, func(context.Context) {}, nil
	}
	i, err := newInformer(o.kubeconfig)
	if err != nil {
		return nil, nil, nil, err
	}
	return i, i.accounts, func(ctx context.Context) {
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { i.accounts.followWanted(ctx) })
		i.controller.RunWithContext(ctx)
	}, nil
}
