// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// reader knows the templates in the API server. It is a [kube.Catalog] and not the cache of controller-runtime, which would keep whole
// objects, and so everything that tenants write, in memory.
type reader interface {
	// Get returns nil if there is no such template. Used is false if it exceeds a limit.
	Get(name types.NamespacedName) (e *kube.Entry, used bool)
	// Of returns the templates of a namespace, or of the cluster, that are used.
	Of(namespace string) []*kube.Entry
	// Excess returns why a template is not used, or "" if it is.
	Excess(name types.NamespacedName) string
	// Content returns the content of a template, as JSON.
	Content(ctx context.Context, e *kube.Entry) ([]byte, error)
}

// followed follows the templates in the API server. It is a source of requests for templates that came, changed, or began or ceased to
// be used.
type followed struct {
	*kube.Catalog

	kinds []*kube.Kind

	mu      sync.Mutex
	known   map[types.NamespacedName]knownContent
	version int // changes with the content of a template
	queues  []workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// knownContent is one content of a template, and since when it is known.
type knownContent struct {
	uid        types.UID
	generation int64
	since      time.Time
}

func followTemplates(client rest.Interface, limits kube.Limits) *followed {
	f := &followed{known: map[types.NamespacedName]knownContent{}}
	f.Catalog = kube.NewCatalog(limits, client, true, f.requestReconciles)
	f.kinds = f.Kinds(func(*kube.Kind, error) {}) // client-go logs errors
	return f
}

// String names the source in log lines.
func (f *followed) String() string { return "templates" }

// Start implements [source.Source].
func (f *followed) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	f.mu.Lock()
	f.queues = append(f.queues, queue)
	f.mu.Unlock()
	f.requestReconciles(f.All())
	return nil
}

// WaitForSync implements [source.SyncingSource]. It waits until all templates were read.
func (f *followed) WaitForSync(ctx context.Context) error {
	for _, k := range f.kinds {
		select {
		case <-k.Synced():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// haveSynced reports whether all templates were read.
func (f *followed) haveSynced() bool {
	for _, k := range f.kinds {
		if !k.HasSynced() {
			return false
		}
	}
	return true
}

// requestReconciles requests templates, and those whose status may change with them: the templates of namespaces with the name of
// one of the cluster.
func (f *followed) requestReconciles(names []types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		f.noteContent(name)
	}
	for _, queue := range f.queues {
		for _, name := range names {
			queue.Add(reconcile.Request{NamespacedName: name})
			if name.Namespace != "" {
				continue
			}
			for _, other := range f.Named(name.Name) {
				queue.Add(reconcile.Request{NamespacedName: other})
			}
		}
	}
}

// noteContent remembers since when the content of a template is known.
func (f *followed) noteContent(name types.NamespacedName) {
	e, _ := f.Get(name)
	was, had := f.known[name]
	switch {
	case e == nil && !had, e != nil && had && was.uid == e.UID && was.generation == e.Generation:
		return
	case e == nil:
		delete(f.known, name)
	default:
		f.known[name] = knownContent{e.UID, e.Generation, time.Now()}
	}
	f.version++
}

// knownSince returns since when the present content of a template is known.
func (f *followed) knownSince(name types.NamespacedName) (time.Time, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, ok := f.known[name]
	return c.since, ok
}

// contentsVersion returns a string that changes with the content of any template.
func (f *followed) contentsVersion() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strconv.Itoa(f.version)
}

// newObject returns an empty object of a kind of templates.
func newObject(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: v1alpha1.Group, Version: v1alpha1.Version, Kind: kind})
	return o
}

// objectOf returns a template without its content.
func objectOf(e *kube.Entry) *unstructured.Unstructured {
	o := newObject(e.Kind())
	o.SetNamespace(e.Namespace)
	o.SetName(e.Name)
	o.SetUID(e.UID)
	o.SetGeneration(e.Generation)
	return o
}
