// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// gatherTime is how long to wait for further changes of pods, so that a rollout of many pods causes one
// write for each template and second.
const gatherTime = time.Second

// unfinishedPods is a field selector for the pods that may still run.
const unfinishedPods = "status.phase!=" + string(corev1.PodSucceeded) + ",status.phase!=" + string(corev1.PodFailed)

// pods counts the pods that have each template. It is a source of requests for the controller, and the
// store of a reflector. A cache would keep every pod; this store keeps a few bytes of those with a
// sidecar.
type pods struct {
	client metadata.Interface
	offers []func(*metav1.PartialObjectMetadata) // are called for each pod that is read or gone

	queue  workqueue.TypedRateLimitingInterface[reconcile.Request] // nil in tests that count only
	synced chan struct{}                                           // closed when all pods were read
	once   sync.Once

	mu     sync.Mutex
	with   map[string]unique.Handle[string]          // the sidecars of each pod that has some, by NAMESPACE/NAME
	counts map[types.NamespacedName]map[string]int64 // by template and revision; without a namespace: in all namespaces
	kept   map[string]*records                       // by namespace
}

func newPods(client metadata.Interface) *pods {
	return &pods{
		client: client, synced: make(chan struct{}),
		with: map[string]unique.Handle[string]{}, counts: map[types.NamespacedName]map[string]int64{}, kept: map[string]*records{},
	}
}

// maxRecords limits the memory for the different sidecars of the pods of a namespace, in bytes: any user can write such annotations,
// with names and revisions that do not exist. A pod with sidecars that exceed the limit is not counted.
const maxRecords = 64 << 10

// records are the different sidecars of the pods of a namespace.
type records struct {
	pods map[unique.Handle[string]]int
	size int
}

// keepRecord counts a pod with these sidecars in the records of its namespace, and reports whether the limit allows that.
func (p *pods) keepRecord(namespace string, have unique.Handle[string]) bool {
	of := p.kept[namespace]
	if of == nil {
		of = &records{pods: map[unique.Handle[string]]int{}}
		p.kept[namespace] = of
	}
	if of.pods[have] == 0 {
		if of.size+len(have.Value()) > maxRecords {
			return false
		}
		of.size += len(have.Value())
	}
	of.pods[have]++
	return true
}

// dropRecord is the inverse of keepRecord.
func (p *pods) dropRecord(namespace string, have unique.Handle[string]) {
	of := p.kept[namespace]
	if of.pods[have]--; of.pods[have] > 0 {
		return
	}
	of.size -= len(have.Value())
	if delete(of.pods, have); len(of.pods) == 0 {
		delete(p.kept, namespace)
	}
}

// String names the source in log lines.
func (p *pods) String() string { return "pods" }

// Start implements [source.Source]. It follows the pods until ctx is done.
func (p *pods) Start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	p.queue = queue
	all := p.client.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	lists := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = unfinishedPods
			return all.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = unfinishedPods
			return all.Watch(ctx, o)
		},
	}, p.client)
	reflector := cache.NewReflectorWithOptions(lists, &metav1.PartialObjectMetadata{}, p, cache.ReflectorOptions{Name: "pods"})
	go reflector.RunWithContext(ctx)
	return nil
}

// WaitForSync implements [source.SyncingSource]. It waits until all pods were read.
func (p *pods) WaitForSync(ctx context.Context) error {
	select {
	case <-p.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// haveSynced reports whether all pods were read.
func (p *pods) haveSynced() bool {
	select {
	case <-p.synced:
		return true
	default:
		return false
	}
}

// countPods returns how many pods have a template with this revision (Current) and with other ones (Outdated). ReplacedBy are the
// names of its canaries. A pod with a canary has records of both, with the canary's revision, and does not count here.
func (p *pods) countPods(template types.NamespacedName, revision string, replacedBy ...string) (n v1alpha1.PodCounts) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for of, pods := range p.counts[template] {
		for _, name := range replacedBy {
			pods -= p.counts[types.NamespacedName{Namespace: template.Namespace, Name: name}][of]
		}
		pods = max(pods, 0) // users may have written the records
		if of == revision {
			n.Current += pods
		} else {
			n.Outdated += pods
		}
	}
	return n
}

// Add implements [cache.ReflectorStore].
func (p *pods) Add(object any) error { return p.storePod(object, true) }

// Update implements [cache.ReflectorStore].
func (p *pods) Update(object any) error { return p.storePod(object, true) }

// Delete implements [cache.ReflectorStore].
func (p *pods) Delete(object any) error { return p.storePod(object, false) }

func (p *pods) storePod(object any, exists bool) error {
	pod, err := p.readPod(object)
	if err != nil {
		return err
	}
	if !exists {
		pod.sidecars = ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.setSidecars(pod.key, pod.sidecars)
	return nil
}

// Replace implements [cache.ReflectorStore].
func (p *pods) Replace(objects []any, _ string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := make(map[string]bool, len(p.with))
	for _, object := range objects {
		pod, err := p.readPod(object)
		if err != nil {
			return err
		}
		if pod.sidecars != "" {
			now[pod.key] = true
			p.setSidecars(pod.key, pod.sidecars)
		}
	}
	for key := range p.with {
		if !now[key] {
			p.setSidecars(key, "")
		}
	}
	p.once.Do(func() { close(p.synced) })
	return nil
}

// Resync implements [cache.ReflectorStore].
func (p *pods) Resync() error { return nil }

// Transformer implements [cache.TransformingStore]. Without it, the reflector would hold a whole list of pods while it reads.
func (p *pods) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return p.readPod(object) }
}

// countedPod is what is counted of a pod. The reflector needs only its name.
type countedPod struct {
	*metav1.ObjectMeta        // empty, and shared
	key                string // NAMESPACE/NAME
	sidecars           string
}

var empty metav1.ObjectMeta

// GetNamespace implements [metav1.Object].
func (o *countedPod) GetNamespace() string { return o.key[:strings.Index(o.key, "/")] }

// GetName implements [metav1.Object].
func (o *countedPod) GetName() string { return o.key[strings.Index(o.key, "/")+1:] }

// readPod returns what is counted of a pod, which may have been read already.
func (p *pods) readPod(object any) (*countedPod, error) {
	switch pod := object.(type) {
	case *countedPod:
		return pod, nil
	case *metav1.PartialObjectMetadata:
		for _, offer := range p.offers {
			offer(pod)
		}
		return &countedPod{ObjectMeta: &empty, key: pod.Namespace + "/" + pod.Name, sidecars: unique.Make(sidecarsOf(pod)).Value()}, nil
	default:
		return nil, fmt.Errorf("a pod is a %T", object)
	}
}

// setSidecars changes the sidecars of a pod.
func (p *pods) setSidecars(key, now string) {
	before, had := p.with[key]
	namespace, _, _ := strings.Cut(key, "/")
	switch {
	case had && before.Value() == now:
		return
	case had:
		p.addCount(namespace, before.Value(), -1)
		p.dropRecord(namespace, before)
		delete(p.with, key)
	}
	if now == "" {
		return
	}
	if have := unique.Make(now); p.keepRecord(namespace, have) {
		p.with[key] = have
		p.addCount(namespace, have.Value(), 1)
	}
}

// addCount adds n, which is 1 or -1, to the counts of these sidecars.
func (p *pods) addCount(namespace, have string, n int64) {
	for one := range strings.SplitSeq(have, ",") {
		name, revision, _ := strings.Cut(one, "=")
		for _, template := range []types.NamespacedName{{Name: name}, {Namespace: namespace, Name: name}} {
			of := p.counts[template]
			if of == nil {
				of = map[string]int64{}
				p.counts[template] = of
			}
			if of[revision] += n; of[revision] == 0 {
				delete(of, revision)
			}
			if len(of) == 0 {
				delete(p.counts, template)
			}
			if p.queue != nil {
				p.queue.AddAfter(reconcile.Request{NamespacedName: template}, gatherTime)
			}
		}
	}
}

// requestReconciles requests templates whose numbers of pods have changed.
func (p *pods) requestReconciles(names ...types.NamespacedName) {
	for _, name := range names {
		p.queue.Add(reconcile.Request{NamespacedName: name})
	}
}

// maxSidecars limits the sidecars of a pod that are counted: any user can write such annotations.
const maxSidecars = 100

// revision matches revisions. Anything else in an annotation was not written by Pillion.
var revision = regexp.MustCompile(`^[0-9a-f]{12}$`)

// sidecarsOf returns the templates and revisions that a pod's annotations name, for example
// "agent=0123456789ab,proxy=ba9876543210". A terminating pod has none.
func sidecarsOf(pod *metav1.PartialObjectMetadata) string {
	if pod.DeletionTimestamp != nil {
		return ""
	}
	var all []string
	for key, value := range pod.Annotations {
		if template := templateOf(key); template != "" && revision.MatchString(value) {
			all = append(all, template+"="+value)
		}
	}
	slices.Sort(all)
	return strings.Join(all[:min(len(all), maxSidecars)], ",")
}

// templateOf returns the template of an annotation that Pillion writes when it injects, or "".
func templateOf(key string) string {
	if template, name, ok := templates.SplitAnnotation(key); ok && name == templates.AnnotationInjected {
		return template
	}
	return ""
}
