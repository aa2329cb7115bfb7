// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates"
)

// burst is how long to wait for further changes of templates that belong together. Each
// superseded set pushes an older one out of those that still count when pods are checked.
const burst = 100 * time.Millisecond

// askAgain is how often to ask whether the kinds of templates are installed now.
const askAgain = 30 * time.Second

// objects are the templates in the API server. Each one is used or not, independent of the others.
// There is no work queue: after any change, all are joined again.
type objects struct {
	log     *slog.Logger
	kinds   []*kind
	changed chan struct{}

	mu    sync.Mutex
	known map[string]map[string]*object // by namespace, and by name
}

// kind follows the objects of one kind.
type kind struct {
	name string // of the resource
	ask  func(context.Context) error
	run  func(context.Context)

	mu     sync.Mutex
	synced cache.DoneChecker // done when all objects were read
	absent bool              // the API server has no such kind
	failed error             // why the API server cannot be reached
}

// stored is what the informer keeps of an object.
type stored struct {
	metav1.ObjectMeta

	id   string // for messages
	text []byte // see kube.TemplateText
}

// object is one template in the API server.
type object struct {
	*stored

	compiled bool                // whether its current content was
	good     *templates.Template // its last valid content; nil: none
	wrong    error               // why its current content is not used
	tooMany  bool                // whether it is not used because its namespace has too many
}

// newObjects sends no request yet. It returns nil if there is no API server.
func (o *Options) newObjects(log *slog.Logger) (*objects, error) {
	if o.standalone {
		return nil, nil
	}
	client, err := kube.NewClient(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	all := &objects{log: log, changed: make(chan struct{}, 1), known: map[string]map[string]*object{}}
	for _, resource := range kube.TemplateResources() {
		all.inform(resource.Resource, client, client.Resource(resource))
	}
	return all, nil
}

// inform adds a kind. Follow starts it.
func (o *objects) inform(name string, client dynamic.Interface, of dynamic.ResourceInterface) {
	k := &kind{name: name}
	k.ask = func(ctx context.Context) error {
		_, err := of.List(ctx, metav1.ListOptions{Limit: 1})
		return err
	}
	_, controller := kube.Inform(client, of, "", func(err error) { o.asked(k, err) }, cache.InformerOptions{
		ObjectType: &unstructured.Unstructured{},
		Transform:  slim,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    o.take,
			UpdateFunc: func(_, object any) { o.take(object) },
			DeleteFunc: o.drop,
		},
	})
	k.run, k.synced = controller.RunWithContext, controller.HasSyncedChecker()
	o.kinds = append(o.kinds, k)
}

// slim keeps what Pillion reads, which takes a tenth of the memory.
func slim(it any) (any, error) {
	o, ok := it.(*unstructured.Unstructured)
	if !ok {
		return it, nil
	}
	text, err := kube.TemplateText(o)
	if err != nil {
		return nil, err
	}
	if len(text) > templates.MaxObject { // Pillion will not use it
		text = text[:templates.MaxObject+1]
	}
	return &stored{metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		Generation: o.GetGeneration(), CreationTimestamp: o.GetCreationTimestamp(),
	}, kube.TemplateID(o), slices.Clip(text)}, nil
}

// asked records why the objects of a kind cannot be read.
func (o *objects) asked(k *kind, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if (err == nil) != (k.failed == nil) {
		wake(o.changed)
	}
	if err != nil && k.failed == nil && !cache.IsDone(k.synced) {
		o.log.Error("the templates cannot be read, trying again", "resource", k.name, "error", err)
	}
	k.failed = err
}

// take uses the current content of an object, if it is new. An object that was deleted and created
// again has no last valid content, whether the watch reports that as one event or as two.
func (o *objects) take(it any) {
	new, ok := it.(*stored)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	now := &object{stored: new}
	if before := o.known[new.Namespace][new.Name]; before != nil && before.UID == new.UID {
		if before.Generation == new.Generation {
			return // only its metadata or status changed
		}
		now.good = before.good
	}
	if o.known[new.Namespace] == nil {
		o.known[new.Namespace] = map[string]*object{}
	}
	o.known[new.Namespace][new.Name] = now
	o.compile(new.Namespace)
}

func (o *objects) drop(it any) {
	if gone, ok := it.(cache.DeletedFinalStateUnknown); ok {
		it = gone.Obj
	}
	gone, ok := it.(*stored)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if delete(o.known[gone.Namespace], gone.Name); len(o.known[gone.Namespace]) == 0 {
		delete(o.known, gone.Namespace)
	}
	o.compile(gone.Namespace)
}

// compile compiles the templates of a namespace whose content is new. Of too many, it uses the oldest, as
// all replicas do.
func (o *objects) compile(namespace string) {
	wake(o.changed)
	oldest := slices.SortedFunc(maps.Values(o.known[namespace]), func(a, b *object) int { return kube.CompareAge(a, b) })
	fit := len(oldest)
	if namespace != "" {
		sizes := make([]int, len(oldest))
		for i, m := range oldest {
			sizes[i] = len(m.text)
		}
		fit = kube.Fitting(sizes)
	}
	for i, m := range oldest {
		switch m.tooMany = i >= fit; {
		case m.tooMany:
			m.compiled, m.good, m.wrong = false, nil, nil
		case !m.compiled:
			good, err := kube.CompileTemplateText(m.id, m.text)
			if m.compiled, m.wrong = true, err; err == nil {
				m.good = good
			}
		}
	}
}

// follow calls changed when all objects were read, and after every change, until ctx is done.
func (o *objects) follow(ctx context.Context, changed func()) {
	if o == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, k := range o.kinds {
		wg.Go(func() { o.followKind(ctx, k) })
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(burst):
		}
		if o.whole() {
			changed()
		}
	}
}

// followKind waits until the kind is installed, and then follows its objects.
func (o *objects) followKind(ctx context.Context, k *kind) {
	for {
		err := k.ask(ctx)
		if !apierrors.IsNotFound(err) {
			break
		}
		k.setAbsent(true)
		wake(o.changed)
		select {
		case <-ctx.Done():
			return
		case <-time.After(askAgain):
		}
	}
	k.setAbsent(false)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-k.synced.Done():
			wake(o.changed)
		}
	})
	k.run(ctx)
}

func (k *kind) setAbsent(absent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.absent = absent
}

// templates returns the last valid templates of all objects, sorted.
//
// The result depends on the content alone, except for an invalid object: only replicas that saw its
// last valid content use that. A replica that started later runs without this template, because all
// others are still valid.
func (o *objects) templates() (all []*templates.Template, rejected []rejection) {
	if o == nil {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, namespace := range slices.Sorted(maps.Keys(o.known)) {
		var first *object // that is one too many
		for _, name := range slices.Sorted(maps.Keys(o.known[namespace])) {
			m := o.known[namespace][name]
			instead, wrong := " (it is not used)", m.wrong
			switch {
			case m.tooMany:
				if first == nil || kube.CompareAge(m, first) < 0 {
					first = m
				}
				continue
			case namespace != "" && o.known[""][name] != nil:
				wrong = templates.Problems{{File: m.id, Path: "metadata.name", Message: kube.Taken(name)}}
			case m.good != nil:
				instead = " (its last valid content is used)"
				all = append(all, m.good)
			}
			if wrong != nil {
				rejected = append(rejected, rejection{what: m.id, instead: instead, err: wrong})
			}
		}
		if first != nil {
			rejected = append(rejected, rejection{what: first.id + " and all younger ones", instead: " (they are not used)", err: errors.New(kube.TooMany())})
		}
	}
	for _, k := range o.kinds {
		if err := k.failure(); err != nil && k.whole() {
			rejected = append(rejected, rejection{what: "reading the " + k.name, instead: " (their last known content is used)", err: err})
		}
	}
	return all, rejected
}

func (k *kind) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// whole reports whether all objects of the kind were read, or there can be none.
func (k *kind) whole() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.absent || cache.IsDone(k.synced)
}

// whole reports whether all objects were read.
func (o *objects) whole() bool {
	return o == nil || !slices.ContainsFunc(o.kinds, func(k *kind) bool { return !k.whole() })
}

// missing returns why some objects were not read.
func (o *objects) missing() error {
	for _, k := range o.kinds {
		if err := k.failure(); err != nil && !k.whole() {
			return fmt.Errorf("the %s are not loaded yet: %w", k.name, err)
		}
	}
	return errors.New("the templates are not loaded yet")
}
