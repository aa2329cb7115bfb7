// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates"
)

// burst is how long to wait for further changes of ConfigMaps that belong together. Each
// superseded set pushes an older one out of those that still count when pods are checked.
const burst = 100 * time.Millisecond

// configMaps are the template ConfigMaps that a selector matches. Each ConfigMap is used
// completely or not at all, independent of the others. There is no work queue: after any
// change, all sets are merged again.
type configMaps struct {
	namespace, selector string
	log                 *slog.Logger
	run                 func(context.Context)
	synced              cache.DoneChecker // done when all ConfigMaps were read
	changed             chan struct{}

	mu     sync.Mutex
	known  map[string]*templateMap // by name
	failed error                   // why the API server cannot be reached
}

// templateMap is one ConfigMap of templates.
type templateMap struct {
	name    string
	uid     types.UID
	created time.Time
	good    *templates.Set // its last valid content; nil: none
	wrong   error          // why its current content is invalid
}

// newConfigMaps sends no request yet. It returns nil if the options name no ConfigMaps.
func (o *Options) newConfigMaps(log *slog.Logger) (*configMaps, error) {
	if o.TemplateSelector == "" {
		return nil, nil
	}
	client, err := kube.NewClient(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	c := &configMaps{
		namespace: o.TemplateNamespace, selector: o.TemplateSelector, log: log,
		changed: make(chan struct{}, 1), known: map[string]*templateMap{},
	}
	_, controller := kube.Inform(client, client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace(c.namespace), c.selector, c.asked, cache.InformerOptions{
		ObjectType: &unstructured.Unstructured{},
		Transform:  kube.Typed[corev1.ConfigMap],
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    c.take,
			UpdateFunc: func(_, object any) { c.take(object) },
			DeleteFunc: c.drop,
		},
	})
	c.run, c.synced = controller.RunWithContext, controller.HasSyncedChecker()
	return c, nil
}

// asked records why ConfigMaps cannot be watched.
func (c *configMaps) asked(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (err == nil) != (c.failed == nil) {
		wake(c.changed)
	}
	if err != nil && c.failed == nil && !c.whole() {
		c.log.Error("the ConfigMaps of templates cannot be read, trying again", "namespace", c.namespace, "selector", c.selector, "error", err)
	}
	c.failed = err
}

// take compiles the current content of a ConfigMap. A ConfigMap that was deleted and created
// again has no last valid content, whether the watch reports that as one event or as two.
func (c *configMaps) take(object any) {
	m, ok := object.(*corev1.ConfigMap)
	if !ok {
		return
	}
	set, err := compileConfigMap(m.Name, m.Data)
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.known[m.Name]; err != nil && before != nil && before.uid == m.UID {
		set = before.good
	}
	c.known[m.Name] = &templateMap{m.Name, m.UID, m.CreationTimestamp.Time, set, err}
	wake(c.changed)
}

func (c *configMaps) drop(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	_, name, _ := cache.SplitMetaNamespaceKey(key) // the function above made this key
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, name)
	wake(c.changed)
}

// follow calls changed when all ConfigMaps were read, and after every change, until ctx is
// done.
func (c *configMaps) follow(ctx context.Context, changed func()) {
	if c == nil {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.run(ctx) })
	select {
	case <-ctx.Done():
		return
	case <-c.synced.Done():
	}
	for {
		changed()
		select {
		case <-ctx.Done():
			return
		case <-c.changed:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(burst):
		}
	}
}

// sets returns the sets of all ConfigMaps, oldest first, then by name. So all replicas choose
// the same of two templates with one name, and a new ConfigMap never replaces a template in
// use.
//
// The result depends on the content alone, except for an invalid ConfigMap: only replicas that
// saw its last valid content use that. A replica that started later runs without this
// ConfigMap, because all other templates are still valid.
func (c *configMaps) sets() (sets []*templates.Set, rejected []rejection) {
	if c == nil {
		return nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.SortedFunc(maps.Values(c.known), func(a, b *templateMap) int {
		return cmp.Or(a.created.Compare(b.created), strings.Compare(a.name, b.name))
	})
	for _, m := range all {
		instead := " (none of it is used)"
		if m.good != nil {
			instead = " (its last valid content is used)"
			sets = append(sets, m.good)
		}
		if m.wrong != nil {
			rejected = append(rejected, rejection{what: "configmap/" + m.name, instead: instead, err: m.wrong})
		}
	}
	if c.failed != nil && c.whole() {
		rejected = append(rejected, rejection{what: "reading the ConfigMaps", instead: " (their last known content is used)", err: c.failed})
	}
	return sets, rejected
}

// whole reports whether all ConfigMaps were read.
func (c *configMaps) whole() bool { return c == nil || cache.IsDone(c.synced) }

// missing returns why some ConfigMaps were not read.
func (c *configMaps) missing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return fmt.Errorf("the ConfigMaps of templates are not loaded yet: %w", c.failed)
	}
	return errors.New("the ConfigMaps of templates are not loaded yet")
}

// ConfigMapSets returns the sets that a newly started replica would use, and what is wrong
// with the other ConfigMaps.
func ConfigMapSets(all []*corev1.ConfigMap) (sets []*templates.Set, wrong []error) {
	c := &configMaps{known: map[string]*templateMap{}}
	for _, m := range all {
		c.take(m)
	}
	sets, rejected := c.sets()
	for i := range rejected {
		wrong = append(wrong, rejected[i].err)
	}
	return sets, wrong
}

// compileConfigMap compiles the templates in a ConfigMap.
func compileConfigMap(name string, data map[string]string) (*templates.Set, error) {
	files := TemplateFiles(name, data)
	if len(files) == 0 && len(data) > 0 {
		return nil, templates.Problems{{File: "configmap/" + name, Message: "has no key that ends in .yaml, .yml or .json"}}
	}
	return templates.Compile(files...)
}

// TemplateFiles returns the keys of a ConfigMap that would be template files in a folder.
func TemplateFiles(name string, data map[string]string) (files []templates.File) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if templates.IsFile(key) {
			files = append(files, templates.File{Path: "configmap/" + name + "/" + key, Data: []byte(data[key])})
		}
	}
	return files
}
