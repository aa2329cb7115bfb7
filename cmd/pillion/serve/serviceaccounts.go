// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates"
)

// accountTime is how long a ServiceAccount's former labels and annotations still count when pods are
// checked. By then, every replica has seen the change.
const accountTime = time.Minute

// maxFormer is how many former states of a ServiceAccount count at the same time.
const maxFormer = 3

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

// follow watches ServiceAccounts until ctx is done, while they are wanted.
func (a *accounts) follow(ctx context.Context) {
	for ctx.Err() == nil {
		a.watch(ctx, a.current.Load())
	}
}

// watch runs an informer, if there is one, until another one is current or ctx is done.
func (a *accounts) watch(ctx context.Context, i *accountInformer) {
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

// want starts or stops the watch.
func (a *accounts) want(wanted bool) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case wanted == (a.current.Load() != nil):
		return
	case wanted:
		a.current.Store(a.inform())
	default:
		a.current.Store(nil)
	}
	select {
	case a.changed <- struct{}{}:
	default: // follow has not yet seen the last change, and will see this one
	}
}

// ready reports whether the ServiceAccounts are loaded, or never will be.
func (a *accounts) ready() bool {
	if a == nil {
		return true
	}
	i := a.current.Load()
	return i != nil && i.controller.HasSynced()
}

// ServiceAccount implements [templates.ServiceAccounts].
func (a *accounts) ServiceAccount(namespace, name string) templates.ServiceAccount {
	if i := a.current.Load(); i != nil {
		return i.account(namespace, name)
	}
	return templates.ServiceAccount{Name: name}
}

func (a *accounts) check() (string, error) {
	if a == nil {
		return "standalone", nil
	}
	i := a.current.Load()
	if i == nil {
		return "no template reads them", nil
	}
	return i.check()
}

// accountInformer follows the metadata of ServiceAccounts.
type accountInformer struct {
	store      cache.Store
	controller cache.Controller
	failed     atomic.Value // a string: why they cannot be watched
	former     sync.Map     // *templates.ServiceAccount by key, of those that changed a moment ago
	later      func(time.Duration, func())
}

func (a *accounts) inform() *accountInformer {
	i := &accountInformer{later: a.later}
	asked := func(err error) {
		why := ""
		if err != nil {
			why = ": " + err.Error()
		}
		i.failed.Store(why)
	}
	i.store, i.controller = kube.Inform(a.client, a.client.Resource(corev1.SchemeGroupVersion.WithResource("serviceaccounts")), "", asked, cache.InformerOptions{
		ObjectType: &metav1.PartialObjectMetadata{}, Transform: compact,
		Handler: cache.ResourceEventHandlerFuncs{UpdateFunc: i.changed},
	})
	return i
}

// compact drops what Pillion does not read: there may be ten thousands of ServiceAccounts.
func compact(object any) (any, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return object, nil
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Namespace: m.Namespace, ResourceVersion: m.ResourceVersion, Labels: m.Labels, Annotations: m.Annotations,
	}}, nil
}

// changed keeps what a ServiceAccount was before it changed.
func (i *accountInformer) changed(was, is any) {
	old, ok1 := was.(*metav1.PartialObjectMetadata)
	now, ok2 := is.(*metav1.PartialObjectMetadata)
	if !ok1 || !ok2 || maps.Equal(old.Labels, now.Labels) && maps.Equal(old.Annotations, now.Annotations) {
		return
	}
	key := old.Namespace + "/" + old.Name
	former := accountOf(old)
	if earlier, ok := i.former.Load(key); ok {
		former.Before = limited(earlier.(*templates.ServiceAccount), maxFormer-1)
	}
	i.former.Store(key, &former)
	i.later(accountTime, func() { i.former.CompareAndDelete(key, &former) })
}

// limited returns a copy of a state with at most that many states, itself included.
func limited(a *templates.ServiceAccount, most int) *templates.ServiceAccount {
	if a == nil || most == 0 {
		return nil
	}
	c := *a
	c.Before = limited(a.Before, most-1)
	return &c
}

func accountOf(m *metav1.PartialObjectMetadata) templates.ServiceAccount {
	return templates.ServiceAccount{Name: m.Name, Labels: m.Labels, Annotations: m.Annotations, Known: true}
}

// account returns a ServiceAccount. It is not known if it was created a moment ago.
func (i *accountInformer) account(namespace, name string) templates.ServiceAccount {
	key := namespace + "/" + name
	object, _, _ := i.store.GetByKey(key)
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return templates.ServiceAccount{Name: name}
	}
	account := accountOf(m)
	if former, ok := i.former.Load(key); ok {
		account.Before = former.(*templates.ServiceAccount)
	}
	return account
}

func (i *accountInformer) check() (string, error) {
	why, _ := i.failed.Load().(string)
	if !i.controller.HasSynced() {
		return "", errors.New("the ServiceAccounts that templates read are not loaded yet" + why)
	}
	if why != "" {
		why = ", and changes cannot be read" + why
	}
	return strconv.Itoa(len(i.store.ListKeys())) + " known" + why, nil
}
