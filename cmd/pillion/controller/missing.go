// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The bounds of missing. A namespace is counted again only if something may have changed. Counting it takes at most one percent of the
// time.
const (
	// countPause is the least time between two counts of a namespace.
	countPause = 10 * time.Second
	// countShare is how many times as long as a count the pause after it is.
	countShare = 100
	// namespaceAgain is after how long the labels of a namespace are read again.
	namespaceAgain = 5 * time.Minute
	// countAgain is after how long a namespace is counted again although nothing seems to have changed.
	countAgain = time.Hour
)

// unknownMissing stands for the number of pods that lack a template if the number cannot be known.
const unknownMissing = -1

// missing counts the pods that should have a template and lack it. Whether a pod should have one depends on its whole content, so
// the pods of a namespace are read in pages, and none of them is kept.
type missing struct {
	// namespace returns a namespace, or nil if it does not exist.
	namespace func(ctx context.Context, name string) (*corev1.Namespace, error)
	optedIn   func(name string, labels map[string]string) bool
	// count returns the number of pods that lack a template, or unknownMissing, by template. It returns nil if it does not know
	// all templates.
	count   func(ctx context.Context, ns *corev1.Namespace) (map[types.NamespacedName]int64, error)
	version func() string                          // changes with the content of any template
	changed func(template ...types.NamespacedName) // is called with the templates whose numbers have changed
	all     func() []types.NamespacedName          // returns all templates
	now     func() time.Time
	log     *slog.Logger

	mu       sync.Mutex
	in       map[string]*missingNamespace // by namespace
	complete bool                         // whether all namespaces were counted once
	warned   string                       // the last reason why a namespace could not be counted
}

// missingNamespace is what is known about a namespace.
type missingNamespace struct {
	dirty    bool                           // whether pods came or went since the last count
	labels   [sha256.Size]byte              // a digest of its labels, because users may write long ones
	version  string                         // of the templates at the last count
	read     time.Time                      // when its labels were read; zero: never
	counted  time.Time                      // when its pods were counted; zero: never
	pause    time.Duration                  // the least time until the next count
	by       map[types.NamespacedName]int64 // the numbers by template
	unknown  bool                           // whether the last count failed
	reported bool                           // whether the templates were told that
}

// notePod notes a pod that came, changed or went. The store of pods calls it for each change of a pod, so it is cheap.
func (m *missing) notePod(pod *metav1.PartialObjectMetadata) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.in[pod.Namespace]
	if of == nil {
		of = &missingNamespace{dirty: true}
		m.in[strings.Clone(pod.Namespace)] = of
	}
	// If an older pod changes and no template is missing in the namespace, usually only the status of the pod has changed.
	of.dirty = of.dirty || len(of.by) > 0 || m.now().Sub(pod.CreationTimestamp.Time) < namespaceAgain
}

// countFor returns how many pods should have a template and lack it, or nil if the number is not known.
func (m *missing) countFor(template types.NamespacedName) *int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.complete {
		return nil
	}
	total := int64(0)
	for name, of := range m.in {
		if template.Namespace != "" && template.Namespace != name {
			continue
		}
		n := of.by[template]
		if of.unknown || n == unknownMissing {
			return nil
		}
		total += n
	}
	return &total
}

// isDue reports whether a namespace has to be inspected again.
func (of *missingNamespace) isDue(now time.Time, version string) bool {
	if now.Sub(of.read) >= namespaceAgain || now.Sub(of.counted) >= countAgain { // also if it was never read
		return true
	}
	return (of.dirty || of.version != version) && now.Sub(of.counted) >= of.pause
}

// countDue counts the namespaces that have to be counted again.
func (m *missing) countDue(ctx context.Context) {
	version := m.version()
	m.mu.Lock()
	var due []string
	for name, of := range m.in {
		if of.isDue(m.now(), version) {
			due = append(due, name)
		}
	}
	m.mu.Unlock()
	slices.Sort(due)
	for _, name := range due {
		if ctx.Err() != nil {
			return
		}
		m.countNamespace(ctx, name, version)
	}
	m.mu.Lock()
	first := !m.complete
	m.complete = true
	m.mu.Unlock()
	if first {
		m.changed(m.all()...)
	}
}

// countNamespace counts the pods of one namespace, unless only its labels had to be read again and they are unchanged.
func (m *missing) countNamespace(ctx context.Context, name, version string) {
	ns, err := m.namespace(ctx, name)
	if err != nil {
		m.setUnknown(name, version, err)
		return
	}
	if ns == nil {
		m.mu.Lock()
		was := m.in[name].by
		delete(m.in, name)
		m.mu.Unlock()
		m.changed(slices.Collect(maps.Keys(was))...)
		return
	}
	began, labels := m.now(), sha256.Sum256(fmt.Append(nil, ns.Labels)) // fmt sorts them
	m.mu.Lock()
	of := m.in[name]
	of.read = began
	same := !of.dirty && !of.unknown && of.version == version && of.labels == labels && began.Sub(of.counted) < countAgain
	of.dirty = false // pods that come now are counted again
	m.mu.Unlock()
	if same {
		return
	}
	var by map[types.NamespacedName]int64
	if m.optedIn(ns.Name, ns.Labels) {
		if by, err = m.count(ctx, ns); err != nil {
			m.setUnknown(name, version, err)
			return
		}
		if by == nil {
			m.setUnknown(name, version, nil)
			return
		}
	}
	maps.DeleteFunc(by, func(_ types.NamespacedName, n int64) bool { return n == 0 })
	m.mu.Lock()
	was, unknown := of.by, of.unknown
	of.by, of.unknown, of.reported, of.labels, of.version, of.counted = by, false, false, labels, version, m.now()
	of.pause = max(countPause, countShare*of.counted.Sub(began))
	m.mu.Unlock()
	if unknown {
		m.changed(m.all()...)
		return
	}
	m.changed(findChanged(was, by)...)
}

// findChanged returns the templates whose numbers differ.
func findChanged(was, now map[types.NamespacedName]int64) (all []types.NamespacedName) {
	for t, n := range now {
		if was[t] != n {
			all = append(all, t)
		}
	}
	for t := range was {
		if _, ok := now[t]; !ok {
			all = append(all, t)
		}
	}
	return all
}

// setUnknown records that a namespace could not be counted. It is tried again after a pause.
func (m *missing) setUnknown(name, version string, err error) {
	m.mu.Lock()
	of := m.in[name]
	told, text := of.reported, ""
	if err != nil {
		text = err.Error()
	}
	log := text != "" && text != m.warned // the same reason usually applies to all namespaces
	m.warned = text
	of.unknown, of.reported, of.dirty, of.version, of.counted, of.pause = true, true, true, version, m.now(), countPause
	of.read = of.counted
	m.mu.Unlock()
	if log {
		m.log.Warn("the pods without their sidecars cannot be counted", "namespace", name, "error", err)
	}
	if !told {
		m.changed(m.all()...)
	}
}

// countUntilDone waits until the pods were read, and then counts the namespaces that are due, until ctx is done.
func (m *missing) countUntilDone(ctx context.Context, await func(context.Context) error) {
	if await(ctx) != nil {
		return
	}
	ticker := time.NewTicker(gatherTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			m.countDue(ctx)
		}
	}
}
