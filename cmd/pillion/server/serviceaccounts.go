// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"

	"github.com/pillion-dev/pillion/templates/request"
)

// accounts knows the ServiceAccounts of the cluster as long as templates read them.
type accounts struct {
	client metadata.Interface
	later  func(time.Duration, func()) // time.AfterFunc
	synced func()                      // called when the ServiceAccounts are loaded

	current atomic.Pointer[accountInformer] // nil: no template reads ServiceAccounts
	changed chan struct{}                   // of current
	mu      sync.Mutex                      // of want
}

func newAccounts(client metadata.Interface) *accounts {
	return &accounts{
		client: client, later: func(d time.Duration, f func()) { time.AfterFunc(d, f) }, synced: func() {}, changed: make(chan struct{}, 1),
	}
}

// followWanted watches ServiceAccounts until ctx is done, while they are wanted.
func (a *accounts) followWanted(ctx context.Context) {
	for ctx.Err() == nil {
		a.runInformer(ctx, a.current.Load())
	}
}

// runInformer runs an informer, if there is one, until another one is current or ctx is done.
func (a *accounts) runInformer(ctx context.Context, i *accountInformer) {
	var wg sync.WaitGroup
	defer wg.Wait()
	running, stop := context.WithCancel(ctx)
	defer stop()
	if i != nil {
		wg.Go(func() { i.controller.RunWithContext(running) })
		wg.Go(func() {
			select {
			case <-i.controller.HasSyncedChecker().Done():
				a.synced()
			case <-running.Done():
			}
		})
	}
	for a.current.Load() == i && ctx.Err() == nil {
		select {
		case <-a.changed:
		case <-ctx.Done():
		}
	}
}

// setWanted starts or stops the watch.
func (a *accounts) setWanted(wanted bool) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case wanted == (a.current.Load() != nil):
		return
	case wanted:
		a.current.Store(a.newAccountInformer())
	default:
		a.current.Store(nil)
	}
	wakeReceiver(a.changed)
}

// isReady reports whether the ServiceAccounts are loaded, or never will be.
func (a *accounts) isReady() bool {
	if a == nil {
		return true
	}
	i := a.current.Load()
	return i != nil && i.controller.HasSynced()
}

// ServiceAccount implements [request.ServiceAccounts].
func (a *accounts) ServiceAccount(namespace, name string) request.ServiceAccount {
	if i := a.current.Load(); i != nil {
		return i.findAccount(namespace, name)
	}
	return request.ServiceAccount{Name: name}
}

func (a *accounts) checkReadiness() (string, error) {
	if a == nil {
		return "standalone", nil
	}
	i := a.current.Load()
	if i == nil {
		return "no template reads them", nil
	}
	return i.checkLoaded("ServiceAccounts that templates read")
}

// maxAccount limits the labels and annotations of a ServiceAccount together, in bytes, without those of kubectl. There may be
// tens of thousands of ServiceAccounts.
const maxAccount = 4 << 10

// maxAccounts limits them for all ServiceAccounts of a namespace together.
const maxAccounts = 1 << 20

// accountInformer follows the metadata of ServiceAccounts.
type accountInformer struct{ followed }

func (a *accounts) newAccountInformer() *accountInformer {
	i := &accountInformer{followed{later: a.later}}
	i.initInformer(a.client, "serviceaccounts", maxAccount, newRoom(maxAccounts))
	return i
}

// findAccount returns a ServiceAccount. It is not known if it was created a moment ago, or is too large.
func (i *accountInformer) findAccount(namespace, name string) request.ServiceAccount {
	key := namespace + "/" + name
	m := i.objectByKey(key)
	if m == nil || isTooLarge(m) {
		return request.ServiceAccount{Name: name}
	}
	account := accountOf(m)
	for _, former := range slices.Backward(i.formerVersions(key)) {
		before := accountOf(former)
		before.Before, account.Before = account.Before, &before
	}
	return account
}

func accountOf(m *metav1.PartialObjectMetadata) request.ServiceAccount {
	return request.ServiceAccount{Name: m.Name, Labels: m.Labels, Annotations: m.Annotations, Known: true}
}
