// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// watchAgain is how long to wait where the templates cannot be watched; they
// are then at least looked at as often as that.
const watchAgain = 30 * time.Second

// settleTime is how long a set of templates that has been superseded still
// counts when pods are judged: by then every replica has the new one. A kubelet
// needs up to two minutes for a mounted ConfigMap, and a rolling update some more.
const settleTime = 5 * time.Minute

// engine holds the injector and the judge in use and renews them when the
// templates change. A set that cannot be used changes nothing but what engine
// says about itself.
type engine struct {
	paths    []string
	excluded []string
	log      *slog.Logger
	later    func(time.Duration, func()) // time.AfterFunc

	current atomic.Pointer[inUse]
	problem atomic.Pointer[failedReload] // nil where the last load was good

	mu    sync.Mutex // of what follows, which no request needs
	loads int        // good and new ones
	kept  []superseded

	problems prometheus.Gauge
	reloads  *prometheus.CounterVec
	loaded   *prometheus.GaugeVec
}

// inUse is what requests take.
type inUse struct {
	injector *inject.Injector
	judge    *inject.Judge
}

func (e *engine) injector() *inject.Injector { return e.current.Load().injector }
func (e *engine) judge() *inject.Judge       { return e.current.Load().judge }
func (e *engine) set() *templates.Set        { return e.injector().Set() }

// superseded is an injector that was in use until a load.
type superseded struct {
	injector *inject.Injector
	load     int
}

// failedReload is a load of templates that was not used.
type failedReload struct {
	at  time.Time
	err error
}

// newEngine loads the templates for the first time; here a problem is an error.
func newEngine(paths, excluded []string, log *slog.Logger, registry prometheus.Registerer) (*engine, error) {
	e := &engine{
		paths: paths, excluded: excluded, log: log,
		later: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		problems: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pillion_template_problems",
			Help: "Problems of the last set of templates that was loaded; while there are some, the last good set is in use.",
		}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pillion_template_loads_total",
			Help: "Sets of templates that were new, by whether they could be used.",
		}, []string{"result"}),
		loaded: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pillion_templates",
			Help: "Templates in use, by the revision of the set.",
		}, []string{"revision"}),
	}
	registry.MustRegister(e.problems, e.reloads, e.loaded)
	if err := e.load(); err != nil {
		return nil, err
	}
	return e, nil
}

// load swaps in what the files hold now, if it is good and new.
func (e *engine) load() error {
	set, err := loadTemplates(e.paths)
	if err != nil && !errors.Is(err, errNoTemplates) {
		return err
	}
	if e.current.Load() != nil && e.set().Revision == set.Revision {
		return nil
	}
	e.use(set)
	e.loaded.Reset()
	e.loaded.WithLabelValues(set.Revision).Set(float64(len(set.Templates)))
	e.reloads.WithLabelValues("used").Inc()
	if len(set.Templates) == 0 {
		e.log.Warn("there are no templates, so nothing will be injected", "paths", e.paths)
	}
	e.log.Info("templates loaded", "revision", set.Revision, "templates", names(set))
	return nil
}

// use puts a new set in use. The one before still counts until the new one has
// settled, for pods are judged that were injected by it, here or by a replica that
// is behind.
func (e *engine) use(set *templates.Set) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.loads++
	if before := e.current.Load(); before != nil {
		e.kept = append([]superseded{{before.injector, e.loads}}, e.kept...)
		e.kept = e.kept[:min(len(e.kept), inject.MaxSets-1)]
	}
	e.swap(inject.New(set, e.excluded...), false)
	load := e.loads
	e.later(settleTime, func() { e.settle(load) })
}

// settle drops the sets that were superseded by then.
func (e *engine) settle(load int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = slices.DeleteFunc(e.kept, func(s superseded) bool { return s.load <= load })
	e.swap(e.injector(), load == e.loads)
}

func (e *engine) swap(injector *inject.Injector, settled bool) {
	kept := make([]*inject.Injector, len(e.kept))
	for i := range e.kept {
		kept[i] = e.kept[i].injector
	}
	e.current.Store(&inUse{injector, inject.NewJudge(injector, kept, settled)})
}

func names(set *templates.Set) []string {
	all := make([]string, len(set.Templates))
	for i, t := range set.Templates {
		all[i] = t.Name
	}
	return all
}

// reload is load with what follows from a problem.
func (e *engine) reload() {
	err := e.load()
	before := e.problem.Load()
	switch {
	case err != nil && (before == nil || before.err.Error() != err.Error()):
		e.problem.Store(&failedReload{time.Now(), err})
		e.problems.Set(float64(problemCount(err)))
		e.reloads.WithLabelValues("refused").Inc()
		e.log.Error("the new templates cannot be used, the last good ones stay in use",
			"problems", strings.Split(err.Error(), "\n"), "revision", e.set().Revision)
	case err == nil && before != nil:
		e.problem.Store(nil)
		e.problems.Set(0)
		e.log.Info("the templates are good again", "revision", e.set().Revision)
	}
}

func problemCount(err error) int {
	if problems, ok := errors.AsType[templates.Problems](err); ok {
		return len(problems)
	}
	return 1
}

// watch reloads on every change until ctx is done.
func (e *engine) watch(ctx context.Context) {
	for {
		err := templates.Watch(ctx, e.paths, e.reload)
		if ctx.Err() != nil {
			return
		}
		e.log.Error("cannot watch the templates, trying again", "after", watchAgain.String(), "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchAgain):
			e.reload()
		}
	}
}

// check tells which templates are in use. A bad reload is told, but leaves
// Pillion ready: it works as before.
func (e *engine) check() (string, error) {
	set := e.set()
	detail := fmt.Sprintf("revision %s, %d in use", set.Revision, len(set.Templates))
	if p := e.problem.Load(); p != nil {
		detail += fmt.Sprintf("; a newer set is refused since %s: %s",
			p.at.UTC().Format(time.RFC3339), strings.ReplaceAll(p.err.Error(), "\n", "; "))
	}
	return detail, nil
}
