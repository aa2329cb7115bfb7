// SPDX-License-Identifier: Apache-2.0

package server

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// burst is how long to wait for further changes of templates that belong together. Each
// superseded set pushes an older one out of those that still count when pods are checked.
const burst = 100 * time.Millisecond

// askAgain is how often to ask whether the kinds of templates are installed now.
const askAgain = 30 * time.Second

// fetchAgain is how long to wait if content could not be read again.
const fetchAgain = time.Second

// objects are the templates in the API server. Each one is used or not, independent of the others.
// There is no work queue: after any change, all are joined again.
type objects struct {
	log     *slog.Logger
	catalog *kube.Catalog
	kinds   []*kind
	changed chan struct{}

	mu       sync.Mutex
	begun    bool                             // whether templates are compiled: not before all were read, because the limits depend on all
	complete bool                             // whether all that are used were compiled then
	known    map[types.NamespacedName]*object // those that are used
	missing  map[types.NamespacedName]bool    // those of them whose content must be read again
}

// kind follows the objects of one kind.
type kind struct {
	name   string // of the resource
	ask    func(context.Context) error
	run    func(context.Context)
	synced <-chan struct{} // closed when all objects were read

	mu     sync.Mutex
	absent bool  // the API server has no such kind
	failed error // why the API server cannot be reached
}

// object is one template in the API server that is used.
type object struct {
	*kube.Entry

	good  *templates.Template // its last valid content; nil: none
	wrong error               // why its current content is not used
}

// newObjects sends no request yet. It returns nil if there is no API server.
func (o *Options) newObjects(log *slog.Logger) (*objects, error) {
	if o.standalone {
		return nil, nil
	}
	config, err := kube.Config(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kube.NewRESTClient(config)
	if err != nil {
		return nil, err
	}
	return followObjects(client, o.Limits, log), nil
}

func followObjects(client rest.Interface, limits kube.Limits, log *slog.Logger) *objects {
	all := &objects{log: log, changed: make(chan struct{}, 1), known: map[types.NamespacedName]*object{}, missing: map[types.NamespacedName]bool{}}
	all.catalog = kube.NewCatalog(limits, client, false, all.updateTemplates)
	kinds := map[*kube.Kind]*kind{}
	for _, k := range all.catalog.Kinds(func(k *kube.Kind, err error) { all.recordOutcome(kinds[k], err) }) {
		k.Keep(func(kept int) {
			log.Error("the kind of these templates is being deleted; they stay in use until this process ends", "resource", k.Name, "templates", kept)
			wakeReceiver(all.changed)
		})
		kinds[k] = &kind{name: k.Name, ask: k.Installed, run: k.Run, synced: k.Synced()}
		all.kinds = append(all.kinds, kinds[k])
	}
	return all
}

// recordOutcome records why the objects of a kind cannot be read.
func (o *objects) recordOutcome(k *kind, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if (err == nil) != (k.failed == nil) {
		wakeReceiver(o.changed)
	}
	if err != nil && k.failed == nil && !k.hasSynced() {
		o.log.Error("the templates cannot be read, trying again", "resource", k.name, "error", err)
	}
	k.failed = err
}

func (k *kind) hasSynced() bool {
	select {
	case <-k.synced:
		return true
	default:
		return false
	}
}

// updateTemplates uses the current content of templates, if it is new.
func (o *objects) updateTemplates(names []types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.begun {
		o.compileTemplates(names)
	}
	wakeReceiver(o.changed)
}

// compileTemplates compiles templates whose content is new. A template that was deleted and created again has no last valid
// content, whether the watch reports that as one event or as two.
func (o *objects) compileTemplates(names []types.NamespacedName) {
	for _, name := range names {
		e, used := o.catalog.Get(name)
		if !used {
			delete(o.known, name)
			delete(o.missing, name)
			continue
		}
		now := &object{Entry: e}
		if before := o.known[name]; before != nil && before.UID == e.UID {
			if before.Generation == e.Generation {
				continue // only its metadata or status changed
			}
			now.good = before.good
		}
		o.known[name] = now
		o.compileContent(now, o.catalog.Take(e))
	}
}

// compileContent compiles the content of a template. It is nil if it is too large, or must be read again.
func (o *objects) compileContent(m *object, text []byte) {
	delete(o.missing, m.Key())
	if text == nil && m.Size <= templates.MaxObject {
		o.missing[m.Key()] = true
		return
	}
	good, err := kube.CompileContent(m.Entry, text)
	if m.wrong = err; err == nil {
		m.good = good
	} else if limits := o.catalog.Limits(); o.uncountedMemory() > limits.MostOfNamespace() {
		m.good = nil
	}
}

// uncountedMemory returns the memory of the last valid content of all invalid templates of namespaces, as far as the limits of the
// catalog do not count it, in bytes.
func (o *objects) uncountedMemory() (sum int64) {
	for _, m := range o.known {
		if m.wrong != nil && m.good != nil && m.Namespace != "" {
			sum += int64(max(m.good.Memory-m.Memory(), 0))
		}
	}
	return sum
}

// compileOnceRead compiles the templates that are used, when all were read. It reports whether their content is known.
func (o *objects) compileOnceRead(ctx context.Context) bool {
	if slices.ContainsFunc(o.kinds, func(k *kind) bool { return !k.isComplete() }) {
		return false
	}
	o.mu.Lock()
	if !o.begun {
		o.begun = true
		o.compileTemplates(o.catalog.Used())
	}
	o.mu.Unlock()
	known := o.readMissing(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.complete = o.complete || known
	return o.complete
}

// readMissing reads content again that was dropped because of a limit, and is used now. It reports whether it could.
func (o *objects) readMissing(ctx context.Context) bool {
	o.mu.Lock()
	var all []*object
	for name := range o.missing {
		all = append(all, o.known[name])
	}
	o.mu.Unlock()
	failed := false
	for _, m := range all {
		text, err := o.catalog.Fetch(ctx, m.Entry)
		if err != nil && !apierrors.IsNotFound(err) {
			o.log.Warn("a template cannot be read again", "template", m.ID(), "error", err)
			failed = true
			continue
		}
		o.mu.Lock()
		if now := o.known[m.Key()]; text != nil && now == m { // otherwise, its change is about to arrive
			o.compileContent(m, text)
		}
		o.mu.Unlock()
	}
	if failed {
		time.AfterFunc(fetchAgain, func() { wakeReceiver(o.changed) })
	}
	return !failed
}

// followChanges calls changed when all objects were read, and after every change, until ctx is done.
func (o *objects) followChanges(ctx context.Context, changed func()) {
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
		if o.compileOnceRead(ctx) {
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
		wakeReceiver(o.changed)
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
		case <-k.synced:
			wakeReceiver(o.changed)
		}
	})
	k.run(ctx)
}

func (k *kind) setAbsent(absent bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.absent = absent
}

// validTemplates returns the last valid templates of all objects, sorted.
//
// The result depends on the content alone, except for an invalid object: only replicas that saw its
// last valid content use that. A replica that started later runs without this template, because all
// others are still valid.
func (o *objects) validTemplates() (all []*templates.Template, rejected []rejection) {
	if o == nil {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range slices.SortedFunc(maps.Keys(o.known), kube.CompareNames) {
		m := o.known[name]
		instead, wrong := " (it is not used)", m.wrong
		switch {
		case name.Namespace != "" && o.known[types.NamespacedName{Name: name.Name}] != nil:
			wrong = problem.Problems{{File: m.ID(), Path: "metadata.name", Message: kube.Taken(name.Name)}}
		case m.good != nil:
			instead = " (its last valid content is used)"
			all = append(all, m.good)
		}
		if wrong != nil {
			rejected = append(rejected, rejection{what: m.ID(), instead: instead, err: wrong})
		}
	}
	for _, first := range o.catalog.FirstUnused() {
		rejected = append(rejected, rejection{what: first.ID() + " and all younger ones", instead: " (they are not used)", err: errors.New(o.catalog.Excess(first.Key()))})
	}
	if n := o.catalog.Kept(); n > 0 {
		rejected = append(rejected, rejection{
			what: "the deletion of a CustomResourceDefinition", instead: fmt.Sprintf(" (%d templates stay in use until this replica starts again)", n),
			err: errors.New("install the definitions and the templates again"),
		})
	}
	for _, k := range o.kinds {
		if err := k.failure(); err != nil && k.isComplete() {
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

// isComplete reports whether all objects of the kind were read, or there can be none.
func (k *kind) isComplete() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.absent || k.hasSynced()
}

// isComplete reports whether all objects were read, and those compiled that are used.
func (o *objects) isComplete() bool {
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.complete
}

// rejectionReason returns why a template is rejected when it is applied: because of a limit. See [webhook.Handler].
func (o *objects) rejectionReason(namespace, name string, text []byte) string {
	if o == nil {
		return ""
	}
	return o.catalog.Admits(types.NamespacedName{Namespace: namespace, Name: name}, text)
}

// notLoaded returns why some objects were not read.
func (o *objects) notLoaded() error {
	for _, k := range o.kinds {
		if err := k.failure(); err != nil && !k.isComplete() {
			return fmt.Errorf("the %s are not loaded yet: %w", k.name, err)
		}
	}
	return errors.New("the templates are not loaded yet")
}
