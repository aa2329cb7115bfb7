// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

const (
	first, second = "0123456789ab", "ba9876543210"
	agentKey      = "agent.pillion.dev/injected"
	proxyKey      = "proxy.pillion.dev/injected"
)

func pod(namespace, name string, annotations map[string]string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations}}
}

// TestSidecars checks which annotations of a pod count.
func TestSidecars(t *testing.T) {
	terminating := pod("a", "web", map[string]string{agentKey: first})
	terminating.DeletionTimestamp = new(metav1.Now())
	many, counted := map[string]string{}, []string{}
	for i := range 2 * maxSidecars {
		name := fmt.Sprintf("t%03d", i)
		many[name+".pillion.dev/injected"], counted = first, append(counted, name+"="+first)
	}
	for _, c := range []struct {
		pod  *metav1.PartialObjectMetadata
		want string
	}{
		{pod("a", "web", nil), ""},
		{pod("a", "web", many), strings.Join(counted[:maxSidecars], ",")},
		{pod("a", "web", map[string]string{"agent.pillion.dev/level": "info", "pillion.dev/templates": "agent", "example.com/injected": first}), ""},
		{pod("a", "web", map[string]string{proxyKey: second, agentKey: first}), "agent=" + first + ",proxy=" + second},
		{pod("a", "web", map[string]string{agentKey: "forged=,x=" + first}), ""},
		{terminating, ""},
	} {
		if got := sidecarsOf(c.pod); got != c.want {
			t.Errorf("%v has %q, want %q", c.pod.Annotations, got, c.want)
		}
		slim, err := newPods(nil).Transformer()(c.pod)
		if err != nil {
			t.Fatal(err)
		}
		if got := slim.(*countedPod); got.sidecars != c.want || got.GetNamespace() != "a" || got.GetName() != "web" {
			t.Errorf("%v has %v after the transformation, want %q", c.pod.Annotations, got, c.want)
		}
	}
}

// TestCount checks the counts after pods were added, changed, deleted and listed again.
func TestCount(t *testing.T) {
	p := newPods(nil)
	want := func(what, namespace, revision string, current, outdated int64) {
		t.Helper()
		if got := p.countPods(types.NamespacedName{Namespace: namespace, Name: "agent"}, revision); got != (v1alpha1.PodCounts{Current: current, Outdated: outdated}) {
			t.Errorf("%s: %+v, want %d and %d", what, got, current, outdated)
		}
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if p.haveSynced() {
		t.Error("pods were read before there was a list")
	}
	do(p.Replace([]any{pod("a", "x", map[string]string{agentKey: first}), pod("b", "x", map[string]string{agentKey: second}), pod("b", "y", nil)}, "1"))
	if !p.haveSynced() {
		t.Error("pods were not read after a list")
	}
	want("listed", "", first, 1, 1)
	want("listed", "b", first, 0, 1)
	do(p.Add(pod("b", "z", map[string]string{agentKey: first, proxyKey: first})))
	want("added", "", first, 2, 1)
	do(p.Update(pod("b", "x", map[string]string{agentKey: first})))
	want("updated", "", first, 3, 0)
	do(p.Delete(pod("b", "z", map[string]string{agentKey: first})))
	do(p.Delete(pod("b", "y", nil)))
	want("deleted", "b", first, 1, 0)
	do(p.Replace([]any{pod("b", "x", map[string]string{agentKey: first})}, "2"))
	want("listed again", "", first, 1, 0)
	want("listed again", "a", first, 0, 0)
	both := pod("a", "canary", map[string]string{agentKey: first, proxyKey: first})
	do(p.Add(both))
	want("of two templates", "", first, 2, 0)
	if got := p.countPods(types.NamespacedName{Name: "agent"}, first, "proxy"); got != (v1alpha1.PodCounts{Current: 1}) {
		t.Errorf("a pod of the canary counts for the template that it replaces, too: %+v", got)
	}
	if got := p.countPods(types.NamespacedName{Name: "proxy"}, first); got != (v1alpha1.PodCounts{Current: 1}) {
		t.Errorf("the canary has %+v", got)
	}
	do(p.Replace(nil, "3"))
	if len(p.with) != 0 || len(p.counts) != 0 {
		t.Errorf("%v and %v are left", p.with, p.counts)
	}
	if err := p.Add("web"); err == nil {
		t.Error("a string is a pod")
	}
}

// TestCountAll checks that changes in any order give the counts of the last pods.
func TestCountAll(t *testing.T) {
	p, last, r := newPods(nil), map[string]*metav1.PartialObjectMetadata{}, rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		o := pod([]string{"a", "b"}[r.IntN(2)], fmt.Sprint("web-", r.IntN(20)), map[string]string{})
		for _, key := range []string{agentKey, proxyKey} {
			if r.IntN(2) == 0 {
				o.Annotations[key] = []string{first, second, "none"}[r.IntN(3)]
			}
		}
		key, change := o.Namespace+"/"+o.Name, p.Update
		last[key] = o
		switch r.IntN(10) {
		case 0:
			change = p.Delete
			delete(last, key)
		case 1:
			change = func(any) error {
				var all []any
				for o := range maps.Values(last) {
					all = append(all, o)
				}
				return p.Replace(all, "")
			}
		}
		if err := change(o); err != nil {
			t.Fatal(err)
		}
	}
	fresh := newPods(nil)
	for _, o := range last {
		if err := fresh.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	if !maps.Equal(p.with, fresh.with) || !maps.EqualFunc(p.counts, fresh.counts, maps.Equal) {
		t.Errorf("the counts are %v, want %v", p.counts, fresh.counts)
	}
}

// queue records requests.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	requests []string
}

func (q *queue) AddAfter(r reconcile.Request, after time.Duration) {
	q.requests = append(q.requests, fmt.Sprint(r, " after ", after))
}

// TestRequests checks that only a change of what is counted requests the template, and not at once.
func TestRequests(t *testing.T) {
	p, q := newPods(nil), &queue{}
	p.queue = q
	for _, annotations := range []map[string]string{nil, {agentKey: first}, {agentKey: first, "example.com/other": "x"}} {
		if err := p.Update(pod("a", "web", annotations)); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"/agent after 1s", "a/agent after 1s"}; !slices.Equal(q.requests, want) {
		t.Errorf("requested %q, want %q", q.requests, want)
	}
}

// TestPodMemory bounds what a pod costs. Pods without a sidecar cost nothing.
func TestPodMemory(t *testing.T) {
	const n = 50_000
	p := newPods(nil)
	fill := func(annotations map[string]string) float64 {
		before := heap()
		for i := range n {
			if err := p.Add(pod("some-namespace", fmt.Sprintf("web-7d4b9c5f6d-%05d", i), annotations)); err != nil {
				t.Fatal(err)
			}
		}
		return float64(heap()-before) / n
	}
	if without := fill(nil); without > 1 {
		t.Errorf("a pod without a sidecar costs %.0f bytes", without)
	}
	with := fill(map[string]string{agentKey: first, proxyKey: second})
	t.Logf("a pod with two sidecars costs %.0f bytes", with)
	if with > 150 {
		t.Errorf("a pod with two sidecars costs %.0f bytes, want at most 150", with)
	}
	runtime.KeepAlive(p)
}

// TestForgedRecordsMemory checks that records that users write into pods take little memory, and that pods of other namespaces are
// counted beside them.
func TestForgedRecordsMemory(t *testing.T) {
	const n = 500
	p := newPods(nil)
	forged := func(i int) map[string]string {
		all := map[string]string{}
		for k := range maxSidecars {
			all[fmt.Sprintf("n%d-%d-%040d.pillion.dev/injected", i, k, k)] = fmt.Sprintf("%012x", i*maxSidecars+k)
		}
		return all
	}
	before := heap()
	for i := range n {
		if err := p.Add(pod("tenant", fmt.Sprint("p", i), forged(i))); err != nil {
			t.Fatal(err)
		}
	}
	took := heap() - before
	t.Logf("%d pods take %d KiB", n, took>>10)
	if took > 2<<20 {
		t.Errorf("%d pods with forged records take %d KiB", n, took>>10)
	}
	if err := p.Add(pod("shop", "web", map[string]string{agentKey: first})); err != nil {
		t.Fatal(err)
	}
	if got := p.countPods(types.NamespacedName{Name: "agent"}, first); got.Current != 1 {
		t.Errorf("a pod of another namespace is counted as %v", got)
	}
	if err := p.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	if len(p.with)+len(p.counts)+len(p.kept) > 0 {
		t.Errorf("without pods, %d, %d and %d are left", len(p.with), len(p.counts), len(p.kept))
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
