// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lacking is a cluster in which pods lack templates.
type lacking struct {
	*missing
	clock   time.Time
	labels  map[string]map[string]string              // of the namespaces
	lacks   map[string]map[types.NamespacedName]int64 // by namespace
	fails   error
	takes   time.Duration // a count
	counts  map[string]int
	told    []types.NamespacedName
	content string // the version of the templates
}

func newLacking() *lacking {
	l := &lacking{
		clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), counts: map[string]int{},
		labels: map[string]map[string]string{"shop": {"a": "b"}, "out": {"out": "true"}},
		lacks:  map[string]map[types.NamespacedName]int64{"shop": {}, "out": {}},
	}
	l.missing = &missing{
		in: map[string]*missingNamespace{}, log: slog.New(slog.DiscardHandler), now: func() time.Time { return l.clock },
		namespace: func(_ context.Context, name string) (*corev1.Namespace, error) {
			if l.labels[name] == nil {
				return nil, nil
			}
			return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(l.labels[name])}}, nil
		},
		optedIn: func(_ string, labels map[string]string) bool { return labels["out"] == "" },
		count: func(_ context.Context, ns *corev1.Namespace) (map[types.NamespacedName]int64, error) {
			l.counts[ns.Name]++
			l.clock = l.clock.Add(l.takes)
			return maps.Clone(l.lacks[ns.Name]), l.fails
		},
		version: func() string { return l.content },
		changed: func(names ...types.NamespacedName) { l.told = append(l.told, names...) },
		all:     func() []types.NamespacedName { return []types.NamespacedName{agent} },
	}
	return l
}

var agent = types.NamespacedName{Name: "agent"}

// addPod notes a pod of this age.
func (l *lacking) addPod(namespace string, age time.Duration) {
	l.notePod(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, CreationTimestamp: metav1.NewTime(l.clock.Add(-age))}})
}

// countAfter counts what is due after a while, and checks how often each namespace was counted since the last call, and the number of
// pods without the agent.
func (l *lacking) countAfter(t *testing.T, d time.Duration, shop, out int, want int64) {
	t.Helper()
	clear(l.counts)
	l.told = nil
	l.clock = l.clock.Add(d)
	before := l.clock
	l.countDue(t.Context())
	got := l.countFor(agent)
	if l.counts["shop"] != shop || l.counts["out"] != out || (got == nil) != (want == unknownMissing) || got != nil && *got != want {
		t.Errorf("at %s: counted %v, %v pods; want shop %d, out %d, %d pods", before, l.counts, got, shop, out, want)
	}
}

// TestMissing checks when the pods without their sidecars are counted again, and what is reported.
func TestMissing(t *testing.T) {
	t.Parallel()
	l := newLacking()
	if l.countFor(agent) != nil {
		t.Error("there is a number before all pods were read")
	}
	l.addPod("shop", time.Hour)
	l.addPod("out", time.Hour)
	l.lacks["shop"][agent] = 3
	l.countAfter(t, 0, 1, 0, 3)
	if !slices.Contains(l.told, agent) {
		t.Errorf("it requests %v", l.told)
	}
	l.countAfter(t, time.Minute, 0, 0, 3) // nothing has changed
	l.lacks["shop"] = map[types.NamespacedName]int64{}
	l.addPod("shop", time.Hour) // any change, because pods lacked it
	l.countAfter(t, time.Minute, 1, 0, 0)
	if !slices.Contains(l.told, agent) {
		t.Errorf("it requests %v", l.told)
	}
	l.addPod("shop", time.Hour) // a change of the status of an old pod
	l.countAfter(t, time.Minute, 0, 0, 0)
	l.addPod("shop", 0)
	l.countAfter(t, countPause-time.Nanosecond, 1, 0, 0) // the pause since the last count is over
	l.addPod("shop", 0)
	l.countAfter(t, countPause-time.Nanosecond, 0, 0, 0)
	l.countAfter(t, time.Nanosecond, 1, 0, 0)
	l.content = "2" // another template
	l.lacks["shop"][agent] = 1
	l.countAfter(t, countPause, 1, 0, 1)
	l.labels["out"] = map[string]string{} // it opts in
	l.lacks["out"][agent] = 4
	l.countAfter(t, namespaceAgain, 0, 1, 5)
	l.countAfter(t, countAgain, 1, 1, 5)
	l.lacks["out"][agent] = unknownMissing
	l.addPod("out", 0)
	l.countAfter(t, countPause, 0, 1, unknownMissing)
	delete(l.labels, "out")
	l.countAfter(t, namespaceAgain, 0, 0, 1)
	if n := l.countFor(types.NamespacedName{Namespace: "team", Name: "agent"}); n == nil || *n != 0 {
		t.Errorf("a template of another namespace is missing in %v", n)
	}
}

// TestMissingCost checks that a namespace whose pods take long to read is counted rarely, and that a failure is no number.
func TestMissingCost(t *testing.T) {
	t.Parallel()
	l := newLacking()
	l.takes = 3 * time.Second
	counts := 0
	for range 3600 {
		l.addPod("shop", 0) // in each second
		l.clock = l.clock.Add(time.Second)
		clear(l.counts)
		l.countDue(t.Context())
		counts += l.counts["shop"]
	}
	if counts < 10 || counts > 13 {
		t.Errorf("in an hour, the namespace was counted %d times, of 3 seconds each; want one percent of the time", counts)
	}
	l.fails = errors.New("no")
	l.countAfter(t, countAgain, 1, 0, unknownMissing)
	l.fails = nil
	l.countAfter(t, countPause, 1, 0, 0)
	if !slices.Contains(l.told, agent) {
		t.Errorf("when the number is known again, it requests %v", l.told)
	}
}
