// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/templates"
)

// watchAgain is how long to wait where the templates cannot be watched; they
// are then at least looked at as often as that.
const watchAgain = 30 * time.Second

// engine holds the injector in use and renews it when the templates change. A
// set that cannot be used changes nothing but what engine says about itself.
type engine struct {
	paths    []string
	excluded []string
	log      *slog.Logger

	current atomic.Pointer[inject.Injector]
	problem atomic.Pointer[failedReload] // nil where the last load was good

	problems prometheus.Gauge
	reloads  *prometheus.CounterVec
	loaded   *prometheus.GaugeVec
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
	if now := e.current.Load(); now != nil && now.Set().Revision == set.Revision {
		return nil
	}
	e.current.Store(inject.New(set, e.excluded...))
	e.loaded.Reset()
	e.loaded.WithLabelValues(set.Revision).Set(float64(len(set.Templates)))
	e.reloads.WithLabelValues("used").Inc()
	if len(set.Templates) == 0 {
		e.log.Warn("there are no templates, so nothing will be injected", "paths", e.paths)
	}
	e.log.Info("templates loaded", "revision", set.Revision, "templates", names(set))
	return nil
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
			"problems", strings.Split(err.Error(), "\n"), "revision", e.current.Load().Set().Revision)
	case err == nil && before != nil:
		e.problem.Store(nil)
		e.problems.Set(0)
		e.log.Info("the templates are good again", "revision", e.current.Load().Set().Revision)
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
	set := e.current.Load().Set()
	detail := fmt.Sprintf("revision %s, %d in use", set.Revision, len(set.Templates))
	if p := e.problem.Load(); p != nil {
		detail += fmt.Sprintf("; a newer set is refused since %s: %s",
			p.at.UTC().Format(time.RFC3339), strings.ReplaceAll(p.err.Error(), "\n", "; "))
	}
	return detail, nil
}
