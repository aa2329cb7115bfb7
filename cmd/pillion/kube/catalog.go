// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// Catalog knows the templates in the API server. It has the content of a template until its user takes it, and only if
// the template is within the limits. Of any other one, it has an [Entry] of some hundred bytes.
type Catalog struct {
	limits  Limits
	client  rest.Interface
	status  bool                         // whether to read the status
	changed func([]types.NamespacedName) // called with templates that came, changed, ended, or are used or not used now

	mu      sync.Mutex
	shelves map[string]*shelf // by namespace; "" has those of the cluster
	order   []*Entry          // those of namespaces by age, if there is not enough memory for all
	total   [2]int64          // see Limits.splitMemory, of the templates of namespaces that are within their own limits
	held    int               // bytes of content
}

// maxHeld limits the content that the catalog has before its user takes it. Content beyond is read again when it is needed.
const maxHeld = 16 << 20

// NewCatalog returns an empty catalog. [Catalog.Follow] fills it. With status, entries have the status of their
// templates. Changed is called with the names of templates after each change, by the goroutine that reads them. For a
// template that replaces another one, it is called with both.
func NewCatalog(limits Limits, client rest.Interface, status bool, changed func([]types.NamespacedName)) *Catalog {
	return &Catalog{limits: limits, client: client, status: status, changed: changed, shelves: map[string]*shelf{}}
}

// Limits returns the limits of the catalog.
func (c *Catalog) Limits() Limits { return c.limits }

// shelf has the templates of a namespace.
type shelf struct {
	byName map[string]*Entry
	byAge  []*Entry // the oldest one is the first
	fit    int      // how many are within the limits of the namespace
	memory int64    // of these
	used   int      // how many of these are within the limits of all namespaces
}

// Kind is one of the kinds of templates.
type Kind struct {
	// Name is that of the resource.
	Name string

	catalog *Catalog
	path    string
	store   *kindStore
	asked   func(error)
}

// Kinds returns what follows the templates of the cluster, and those of namespaces. Asked is called with the outcome of
// every request.
func (c *Catalog) Kinds(asked func(*Kind, error)) (all []*Kind) {
	for _, resource := range TemplateResources() {
		k := &Kind{Name: resource.Resource, catalog: c, path: resourcePath(resource, "")}
		k.store = &kindStore{catalog: c, ofCluster: len(all) == 0, synced: make(chan struct{})}
		k.asked = func(err error) { asked(k, err) }
		all = append(all, k)
	}
	return all
}

// Installed returns nil if the API server has the kind. Otherwise, the error may be NotFound.
func (k *Kind) Installed(ctx context.Context) error {
	return k.catalog.client.Get().AbsPath(k.path).Param("limit", "1").Do(ctx).Error()
}

// Keep keeps the templates of the kind if the kind itself is deleted. They stay until the process ends, or until their users create
// them again. Lost is called with their number. Keep must be called before [Kind.Run].
func (k *Kind) Keep(lost func(kept int)) {
	s := k.store
	s.keeper = newKeeper(k.catalog.client, k.Name+"."+v1alpha1.Group, func() {
		if n := s.catalog.keepAll(s.ofCluster); n > 0 {
			lost(n)
		}
	})
}

// Run follows the objects until ctx is done.
func (k *Kind) Run(ctx context.Context) {
	s := NewStream(k.catalog.client, k.path)
	s.Asked = k.asked
	s.Read = func(text []byte) (runtime.Object, error) { return k.catalog.Read(text) }
	s.Begin = func() func(runtime.Object) {
		draft := NewCatalog(k.catalog.limits, nil, false, nil)
		draft.limits.Memory = mustParseQuantity("1Ei") // by maxHeld
		return func(object runtime.Object) {
			if e, ok := object.(*Entry); ok {
				draft.putEntry(e)
			}
		}
	}
	if of := k.store.keeper; of != nil {
		var running sync.WaitGroup
		defer running.Wait()
		running.Go(func() { of.run(ctx, k.catalog.dropDeleted) })
	}
	cache.NewReflectorWithOptions(s.ListerWatcher(), nil, k.store, cache.ReflectorOptions{Name: k.Name}).RunWithContext(ctx)
}

// Synced returns a channel that is closed when all objects were read.
func (k *Kind) Synced() <-chan struct{} { return k.store.synced }

// HasSynced reports whether all objects were read.
func (k *Kind) HasSynced() bool {
	select {
	case <-k.store.synced:
		return true
	default:
		return false
	}
}

// kindStore passes what a reflector reads to the catalog.
type kindStore struct {
	catalog   *Catalog
	ofCluster bool
	synced    chan struct{}
	once      sync.Once
	keeper    *keeper // nil: what the API server no longer has is dropped at once
}

// Add implements [cache.ReflectorStore].
func (s *kindStore) Add(object any) error { return s.Update(object) }

// Update implements [cache.ReflectorStore].
func (s *kindStore) Update(object any) error {
	e, ok := object.(*Entry)
	if !ok {
		return fmt.Errorf("a template is a %T", object)
	}
	s.catalog.Put(e)
	return nil
}

// Delete implements [cache.ReflectorStore].
func (s *kindStore) Delete(object any) error {
	e, ok := object.(*Entry)
	if !ok {
		return fmt.Errorf("a template is a %T", object)
	}
	if s.keeper != nil {
		s.keeper.noteDeletion(e)
		return nil
	}
	s.catalog.Drop(e.Key())
	return nil
}

// Replace implements [cache.ReflectorStore].
func (s *kindStore) Replace(objects []any, _ string) error {
	all := make([]*Entry, 0, len(objects))
	for _, object := range objects {
		e, ok := object.(*Entry)
		if !ok {
			return fmt.Errorf("a template is a %T", object)
		}
		all = append(all, e)
	}
	if s.keeper != nil && s.catalog.lacksKnown(s.ofCluster, all) {
		gone, err := s.keeper.isGone(context.Background())
		if err != nil {
			return err // the reflector lists again
		}
		if gone {
			s.keeper.kept()
		}
	}
	s.catalog.replaceKind(s.ofCluster, all)
	s.once.Do(func() { close(s.synced) })
	return nil
}

// Resync implements [cache.ReflectorStore].
func (s *kindStore) Resync() error { return nil }

// Read returns the entry of an object of the API server, with its content if it is not too large to be used.
func (c *Catalog) Read(text []byte) (*Entry, error) {
	var o struct {
		Metadata struct {
			Name              string      `json:"name"`
			Namespace         string      `json:"namespace"`
			UID               types.UID   `json:"uid"`
			ResourceVersion   string      `json:"resourceVersion"`
			Generation        int64       `json:"generation"`
			CreationTimestamp metav1.Time `json:"creationTimestamp"`
		} `json:"metadata"`
		Spec   json.RawMessage `json:"spec"`
		Status json.RawMessage `json:"status"`
	}
	if err := utiljson.Unmarshal(text, &o); err != nil {
		return nil, err
	}
	of := &o.Metadata
	e := &Entry{
		ObjectMeta: &noMetadata, Namespace: of.Namespace, Name: of.Name, UID: of.UID, Generation: of.Generation,
		Created: of.CreationTimestamp.Time, version: of.ResourceVersion,
	}
	e.readSpecFields(o.Spec)
	if c.status {
		e.Status = ownStatus(o.Status)
	} else {
		e.Rollout = nil
	}
	e.setContent(templateText(e.Kind(), e.Namespace, e.Name, o.Spec))
	return e, nil
}

// Put adds or changes a template.
func (c *Catalog) Put(e *Entry) { c.changed(c.putEntry(e)) }

func (c *Catalog) putEntry(e *Entry) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := append(c.shelveEntry(e), c.evaluateUse(e.Namespace)...)
	c.limitContent(e)
	return changed
}

// limitContent drops the content of a template that is not used, or if there is too much of it.
func (c *Catalog) limitContent(e *Entry) {
	if !e.used || c.held > maxHeld {
		c.dropContent(e)
	}
}

// shelveEntry adds or changes a template, and returns the names of those that it concerns.
func (c *Catalog) shelveEntry(e *Entry) []types.NamespacedName {
	s := c.shelves[e.Namespace]
	if s == nil {
		s = &shelf{byName: map[string]*Entry{}}
		c.shelves[e.Namespace] = s
	}
	c.held += len(e.text)
	e.used = false // until its place is known
	changed := s.relatedNames(e)
	if before := s.byName[e.Name]; before != nil {
		changed = append(changed, s.relatedNames(before)...)
		if before.SameContent(e) && before.text == nil { // it was taken, or is not needed
			c.dropContent(e)
		}
		c.dropContent(before)
		c.unshelveEntry(s, before)
	}
	s.byName[e.Name] = e
	i, _ := slices.BinarySearchFunc(s.byAge, e, compareEntries)
	if len(s.byAge) > 0 {
		e.shareStrings(s.byAge[max(i-1, 0)])
	}
	s.byAge = slices.Insert(s.byAge, i, e)
	if c.order != nil && e.Namespace != "" {
		c.order = insertByAge(c.order, e)
	}
	return append(changed, e.Key())
}

func compareEntries(a, b *Entry) int {
	return cmp.Or(a.Created.Compare(b.Created), CompareNames(a.Key(), b.Key()))
}

// relatedNames returns the names of the templates that another one replaces, or that replace it.
func (s *shelf) relatedNames(e *Entry) (all []types.NamespacedName) {
	if other := s.byName[e.Replaces]; other != nil && e.Replaces != "" {
		all = append(all, other.Key())
	}
	for _, other := range s.byAge[:min(s.used, len(s.byAge))] { // others may just have been removed
		if other.Replaces == e.Name {
			all = append(all, other.Key())
		}
	}
	return all
}

func (c *Catalog) unshelveEntry(s *shelf, e *Entry) {
	delete(s.byName, e.Name)
	s.byAge, c.order = removeByAge(s.byAge, e), removeByAge(c.order, e)
}

func insertByAge(all []*Entry, e *Entry) []*Entry {
	i, _ := slices.BinarySearchFunc(all, e, compareEntries)
	return slices.Insert(all, i, e)
}

func removeByAge(all []*Entry, e *Entry) []*Entry {
	if i, ok := slices.BinarySearchFunc(all, e, compareEntries); ok {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// dropContent drops the content of a template.
func (c *Catalog) dropContent(e *Entry) {
	c.held -= len(e.text)
	e.text = nil
}

// Drop removes a template.
func (c *Catalog) Drop(name types.NamespacedName) { c.changed(c.dropEntry(name)) }

func (c *Catalog) dropEntry(name types.NamespacedName) []types.NamespacedName {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shelves[name.Namespace]
	if s == nil || s.byName[name.Name] == nil {
		return nil
	}
	e := s.byName[name.Name]
	changed := append(s.relatedNames(e), name)
	c.dropContent(e)
	c.unshelveEntry(s, e)
	return append(changed, c.evaluateUse(name.Namespace)...)
}

// dropDeleted removes a template that a user deleted, unless there is another one of its name.
func (c *Catalog) dropDeleted(d deletedTemplate) {
	if e, _ := c.Get(d.name); e != nil && e.UID == d.uid && !e.kept {
		c.Drop(d.name)
	}
}

// keepAll keeps the templates of a kind whatever the API server says, until users create others of their names. It returns how
// many these are.
func (c *Catalog) keepAll(ofCluster bool) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for namespace, s := range c.shelves {
		if (namespace == "") == ofCluster {
			for _, e := range s.byAge {
				e.kept = true
			}
			n += len(s.byAge)
		}
	}
	return n
}

// Kept returns how many templates are kept although their kind was deleted.
func (c *Catalog) Kept() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shelves {
		for _, e := range s.byAge {
			if e.kept {
				n++
			}
		}
	}
	return n
}

// lacksKnown reports whether a list lacks templates of a kind that are known.
func (c *Catalog) lacksKnown(ofCluster bool, all []*Entry) bool {
	now := map[types.NamespacedName]bool{}
	for _, e := range all {
		now[e.Key()] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for namespace, s := range c.shelves {
		if (namespace == "") == ofCluster && slices.ContainsFunc(s.byAge, func(e *Entry) bool { return !now[e.Key()] && !e.kept }) {
			return true
		}
	}
	return false
}

// replaceKind replaces all templates of a kind, apart from those that are kept.
func (c *Catalog) replaceKind(ofCluster bool, all []*Entry) {
	c.mu.Lock()
	c.order = nil // until all are known
	var changed []types.NamespacedName
	now := map[types.NamespacedName]bool{}
	for _, e := range all {
		now[e.Key()] = true
	}
	for namespace, s := range c.shelves {
		if (namespace == "") != ofCluster {
			continue
		}
		for _, e := range slices.Clone(s.byAge) {
			if !now[e.Key()] && !e.kept {
				changed = append(changed, e.Key())
				c.dropContent(e)
				c.unshelveEntry(s, e)
			}
		}
	}
	for _, e := range all {
		changed = append(changed, c.shelveEntry(e)...)
	}
	for namespace, s := range c.shelves {
		c.updateFit(namespace, s)
	}
	of := c.allotMemory()
	for namespace, s := range c.shelves {
		changed = append(changed, c.markUsed(namespace, s, len(s.byAge), of)...)
		if len(s.byAge) == 0 {
			delete(c.shelves, namespace)
		}
	}
	for _, e := range all {
		c.limitContent(e)
	}
	c.mu.Unlock()
	c.changed(changed)
}

// evaluateUse finds out which templates are used after a change in a namespace, and returns those for which that differs.
func (c *Catalog) evaluateUse(namespace string) (changed []types.NamespacedName) {
	s := c.shelves[namespace]
	if s == nil {
		return nil
	}
	c.updateFit(namespace, s)
	was := c.order != nil
	of := c.allotMemory()
	if was || of != nil {
		for name, other := range c.shelves {
			if other != s {
				changed = append(changed, c.markUsed(name, other, other.used, of)...)
			}
		}
	}
	changed = append(changed, c.markUsed(namespace, s, s.used+1, of)...)
	if len(s.byAge) == 0 {
		delete(c.shelves, namespace)
	}
	return changed
}

// updateFit finds out which templates of a namespace are within its limits.
func (c *Catalog) updateFit(namespace string, s *shelf) {
	before := s.memory
	s.fit, s.memory = len(s.byAge), 0
	if namespace != "" {
		s.fit, s.memory = c.limits.countFitting(s.byAge)
	}
	c.total = c.totalWith(before, s.memory)
}

// totalWith returns the total if the memory of one namespace changes.
func (c *Catalog) totalWith(before, after int64) [2]int64 {
	a, b := c.limits.splitMemory(before)
	x, y := c.limits.splitMemory(after)
	return [2]int64{c.total[0] + x - a, c.total[1] + y - b}
}

// hasEnoughMemory reports whether there is enough memory for all templates that are within the limits of their namespaces.
func (c *Catalog) hasEnoughMemory(total [2]int64) bool {
	return max(total[0], total[1]) <= c.limits.halfMemory()
}

// allotMemory finds out how many templates of each namespace are used. It returns nil if there is enough memory for all. A
// younger template never takes the memory of an older one, of whatever namespace. The result depends on the content of the
// cluster alone.
func (c *Catalog) allotMemory() map[*shelf]*allotment {
	if c.hasEnoughMemory(c.total) {
		c.order = nil
		return nil
	}
	if c.order == nil {
		c.order = c.sortedByAge()
	}
	return c.allotInOrder(c.order, nil, nil)
}

// sortedByAge returns the templates of namespaces. The oldest one is the first.
func (c *Catalog) sortedByAge() []*Entry {
	all := []*Entry{}
	for namespace, s := range c.shelves {
		if namespace != "" {
			all = append(all, s.byAge...)
		}
	}
	slices.SortFunc(all, compareEntries)
	return all
}

// allotInOrder uses one shelf in place of another one.
func (c *Catalog) allotInOrder(order []*Entry, before, after *shelf) map[*shelf]*allotment {
	of := make(map[*shelf]*allotment, len(c.shelves))
	reserved, rest := c.limits.halfMemory(), c.limits.halfMemory()
	for _, e := range order {
		s := c.shelves[e.Namespace]
		if s == before { // also if both are nil
			s = after
		}
		a := of[s]
		if a == nil {
			a = &allotment{}
			of[s] = a
		}
		if a.full || a.n == s.fit {
			continue
		}
		a.addTemplate(int64(e.memory), &c.limits, &reserved, &rest)
	}
	return of
}

// markUsed marks the templates of a namespace that are used, drops the content of others, and returns those that changed.
// Only the first ones can have been used before.
func (c *Catalog) markUsed(namespace string, s *shelf, first int, of map[*shelf]*allotment) (changed []types.NamespacedName) {
	s.used = s.fit
	if a := of[s]; a != nil && namespace != "" {
		s.used = a.n
	}
	for i, e := range s.byAge[:min(max(first, s.used), len(s.byAge))] {
		used := i < s.used
		if e.used == used {
			continue
		}
		e.used = used
		c.limitContent(e)
		changed = append(changed, e.Key())
	}
	return changed
}

// Get returns an entry, and whether the template is used. It returns nil if there is no such template.
func (c *Catalog) Get(name types.NamespacedName) (e *Entry, used bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.shelves[name.Namespace]; s != nil {
		e = s.byName[name.Name]
	}
	return e, e != nil && e.used
}

// Excess returns why a template is not used, or "" if it is.
func (c *Catalog) Excess(name types.NamespacedName) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.shelves[name.Namespace]
	switch {
	case s == nil || s.byName[name.Name] == nil || s.byName[name.Name].used:
		return ""
	case slices.Contains(s.byAge[:s.fit], s.byName[name.Name]):
		return c.limits.InTotal()
	}
	return c.limits.OfNamespace()
}

// FirstUnused returns the oldest template of each namespace that is not used because of a limit, sorted.
func (c *Catalog) FirstUnused() (all []*Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shelves {
		if s.used < len(s.byAge) {
			all = append(all, s.byAge[s.used])
		}
	}
	slices.SortFunc(all, func(a, b *Entry) int { return CompareNames(a.Key(), b.Key()) })
	return all
}

// Used returns the names of the templates that are used, in any order.
func (c *Catalog) Used() (all []types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shelves {
		for _, e := range s.byAge[:s.used] {
			all = append(all, e.Key())
		}
	}
	return all
}

// Of returns the templates of a namespace, or of the cluster, that are used.
func (c *Catalog) Of(namespace string) []*Entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.shelves[namespace]; s != nil {
		return slices.Clone(s.byAge[:s.used])
	}
	return nil
}

// Named returns the names of all templates of namespaces with a name.
func (c *Catalog) Named(name string) (all []types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for namespace, s := range c.shelves {
		if namespace != "" && s.byName[name] != nil {
			all = append(all, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	return all
}

// Take returns the content of a used template. It returns nil if the content must be read again, with
// [Catalog.Fetch].
func (c *Catalog) Take(e *Entry) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := e.text
	c.dropContent(e)
	return text
}

// Fetch reads the content of a template from the API server. If it has changed since, Fetch returns nil: the change
// is about to arrive.
func (c *Catalog) Fetch(ctx context.Context, e *Entry) ([]byte, error) {
	of := TemplateResources()[min(len(e.Namespace), 1)]
	text, err := c.client.Get().AbsPath(resourcePath(of, e.Namespace), e.Name).DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the template %s: %w", e.Key(), err)
	}
	now, err := c.Read(text)
	if err != nil || !now.SameContent(e) {
		return nil, err
	}
	return now.text, nil
}

// Admits returns why a template would not be used if it had this content, or why another one would no longer be used. It returns "" otherwise.
func (c *Catalog) Admits(name types.NamespacedName, text []byte) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if name.Namespace == "" {
		return ""
	}
	before := c.shelves[name.Namespace]
	if before == nil {
		before = &shelf{byName: map[string]*Entry{}}
	}
	next := &Entry{Namespace: name.Namespace, Name: name.Name, Created: time.Unix(math.MaxInt32, 0)}
	old := before.byName[name.Name]
	if old != nil {
		next.Created = old.Created
	}
	next.setContent(text)
	after := &shelf{byAge: withReplaced(before.byAge, old, next)}
	i := slices.Index(after.byAge, next)
	after.fit, after.memory = c.limits.countFitting(after.byAge)
	displaces := c.displacesOthers(before, after, old, next)
	grows := old == nil || next.Size > old.Size || next.memory > old.memory
	more := len(after.byAge)-after.used > len(before.byAge)-before.used
	switch {
	case !grows, i < after.used && !more && !displaces:
		return ""
	case len(after.byAge)-after.fit > len(before.byAge)-before.fit, i >= after.fit:
		return c.limits.OfNamespace()
	}
	return c.limits.InTotal()
}

// withReplaced returns a copy in which a template has another content, or is new.
func withReplaced(all []*Entry, old, next *Entry) []*Entry {
	all = slices.Clone(all)
	if old != nil {
		all = removeByAge(all, old)
	}
	return insertByAge(all, next)
}

// displacesOthers finds out how many templates of a namespace would be used after a change of one, and reports whether one of
// another namespace would no longer be used.
func (c *Catalog) displacesOthers(before, after *shelf, old, next *Entry) bool {
	after.used = after.fit
	if c.hasEnoughMemory(c.totalWith(before.memory, after.memory)) {
		return false
	}
	order := c.order
	if order == nil {
		order = c.sortedByAge()
	}
	known := c.shelves[next.Namespace] // or nil
	of := c.allotInOrder(withReplaced(order, old, next), known, after)
	after.used = of[after].n
	for namespace, s := range c.shelves {
		if namespace != "" && s != known && len(s.byAge) > 0 && of[s].n < s.used {
			return true
		}
	}
	return false
}

// Entries returns all templates. The oldest one is the first.
func (c *Catalog) Entries() (all []*Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shelves {
		all = append(all, s.byAge...)
	}
	slices.SortFunc(all, compareEntries)
	return all
}

// List adds the templates of a resource, of one namespace or of all ("").
func (c *Catalog) List(ctx context.Context, resource schema.GroupVersionResource, namespace string) error {
	s := NewStream(c.client, resourcePath(resource, namespace))
	s.Read = func(text []byte) (runtime.Object, error) {
		e, err := c.Read(text)
		if err == nil {
			c.Put(e)
		}
		return e, err
	}
	_, err := s.listObjects(ctx, metav1.ListOptions{})
	return err
}

func resourcePath(resource schema.GroupVersionResource, namespace string) string {
	path := "/apis/" + resource.Group + "/" + resource.Version
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resource.Resource
}

// All returns the names of all templates, in any order.
func (c *Catalog) All() (all []types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shelves {
		for _, e := range s.byAge {
			all = append(all, e.Key())
		}
	}
	return all
}

// Content returns the content of a used template, as JSON: that of the catalog if it was not taken, or that of the
// API server. It returns nil if the template is too large to be used, and an error if it has changed meanwhile.
func (c *Catalog) Content(ctx context.Context, e *Entry) ([]byte, error) {
	if text := c.Take(e); text != nil || e.Size > templates.MaxObject {
		return text, nil
	}
	text, err := c.Fetch(ctx, e)
	if err == nil && text == nil {
		err = fmt.Errorf("the template %s has changed", e.Key())
	}
	return text, err
}

// countFitting returns how many templates of a namespace are within its limits, and their memory in bytes. The oldest one is
// the first. The size of one that is too large to be used does not count.
func (l *Limits) countFitting(all []*Entry) (fit int, memory int64) {
	sum, most := int64(0), l.Size.Value()
	for _, e := range all {
		if e.Size <= templates.MaxObject {
			sum += int64(e.Size)
		}
		if fit == l.Count || sum > most || memory+int64(e.memory) > l.MostOfNamespace() {
			break
		}
		fit++
		memory += int64(e.memory)
	}
	return fit, memory
}
