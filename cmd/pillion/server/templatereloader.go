// SPDX-License-Identifier: Apache-2.0

package server

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
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/problem"
)

// watchAgain is the retry interval if the templates cannot be watched. It is also the longest
// time until a change is seen then.
const watchAgain = 30 * time.Second

// settleTime is how long a superseded set of templates still counts when pods are checked. By
// then, every replica has the new set: the kubelet needs up to two minutes to update a mounted
// ConfigMap, and a rolling update takes a bit longer.
const settleTime = 5 * time.Minute

// templateReloader holds the injectors and the judges in use, and replaces them when the templates change.
// Invalid templates change nothing except the reported problems.
type templateReloader struct {
	sources

	log   *slog.Logger
	later func(time.Duration, func()) // time.AfterFunc

	current       atomic.Pointer[inUse]
	whole         atomic.Bool   // whether every source of templates has been read
	complete      chan struct{} // closed when that is so
	readsAccounts atomic.Bool   // whether a set that counts reads ServiceAccounts
	needsAccounts atomic.Bool   // whether templates of the cluster do
	waiting       atomic.Value  // a string: the revision of a set that waits for ServiceAccounts, or ""
	rejected      atomic.Pointer[[]rejection]

	loading sync.Mutex       // of loads
	loader  templates.Loader // loads the files
	files   *templates.Set   // the last valid set from the files

	mu     sync.Mutex // of changes of current
	viewer viewer

	problems prometheus.Gauge
	reloads  *prometheus.CounterVec
	loaded   *prometheus.GaugeVec
	since    prometheus.Gauge
	webhooks *webhook.Metrics // has series by template
}

// injectorAndJudge returns the injector and the judge for the pods of a namespace.
func (e *templateReloader) injectorAndJudge(namespace string) (*inject.Injector, *inject.Judge) {
	v := e.current.Load().viewOf(namespace)
	return v.injector, v.judge
}

func (e *templateReloader) currentSet() *templates.Set { return e.current.Load().set }

// sources are where templates and what they read come from.
type sources struct {
	paths    []string
	objects  *objects  // nil without a cluster
	accounts *accounts // nil without a cluster
}

// newTemplateReloader loads the files for the first time. Here, a problem is an error.
func newTemplateReloader(from sources, excluded []string, log *slog.Logger, registry prometheus.Registerer) (*templateReloader, error) {
	metrics := promauto.With(registry)
	e := &templateReloader{
		sources: from, viewer: viewer{excluded: excluded}, log: log, complete: make(chan struct{}),
		later: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
		problems: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "pillion_template_problems",
			Help: "Problems of the current templates. Files and objects with a problem are not used; their last valid content is.",
		}),
		reloads: loadsCounter(registry, "pillion_template_loads_total", "Changes of the set of templates, by whether the new set was valid."),
		loaded: metrics.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pillion_templates",
			Help: "Templates in use, by the revision of the set and the version of the program that renders it.",
		}, []string{"revision", "version"}),
		since: metrics.NewGauge(prometheus.GaugeOpts{
			Name: "pillion_templates_loaded_timestamp_seconds",
			Help: "Time at which the set of templates came into use, in seconds since 1970.",
		}),
		webhooks: webhook.NewMetrics(registry),
	}
	if from.objects != nil {
		limits := from.objects.catalog.Limits()
		e.viewer.history = limits.Memory.Value() / 2
	}
	if accounts := from.accounts; accounts != nil {
		accounts.synced = e.reloadTemplates
	}
	e.rejected.Store(&[]rejection{})
	if rejected := e.loadTemplates(); len(rejected) > 0 {
		return nil, rejected[0].err
	}
	return e, nil
}

// loadTemplates uses the current content of files and objects, if it is new. It returns the rejected
// sources.
func (e *templateReloader) loadTemplates() (rejected []rejection) {
	files, err := cli.LoadWith(&e.loader, e.paths)
	switch {
	case err == nil || errors.Is(err, cli.ErrNoTemplates):
		e.files = files
	case e.files == nil:
		return []rejection{{err: err}}
	default:
		rejected = append(rejected, rejection{what: "a newer set", err: err})
	}
	whole := e.whole.Load() || e.objects.isComplete() // read before the objects, because more may arrive in between
	more, bad := e.objects.validTemplates()
	set, doubled := templates.Join(e.files, &templates.Set{Templates: more})
	rejected = append(rejected, bad...)
	if len(doubled) > 0 {
		rejected = append(rejected, rejection{what: "a template with another one's name", instead: " (the other one is used)", err: doubled})
	}
	isNew := e.current.Load() == nil || e.currentSet().Revision != set.Revision
	if isNew && e.awaitsAccounts(set) {
		return rejected
	}
	e.waiting.Store("")
	if !isNew {
		e.wantAccounts()
	}
	if isNew {
		e.replaceSet(set)
		e.loaded.Reset()
		e.loaded.WithLabelValues(set.Revision, cli.BuildVersion().Version).Set(float64(len(set.Templates)))
		e.reloads.WithLabelValues("used").Inc()
		ofCluster := set.OfCluster()
		e.log.Info("templates loaded", "revision", set.Revision, "templates", cli.TemplateNames(ofCluster),
			"ofNamespaces", len(set.Templates)-len(ofCluster.Templates))
	}
	isFirst := whole && !e.whole.Swap(whole)
	if isFirst {
		close(e.complete)
	}
	if len(set.Templates) == 0 && (isFirst || whole && isNew) {
		e.log.Warn("there are no templates, so nothing will be injected", "paths", e.paths)
	}
	return rejected
}

// awaitsAccounts reports whether a set must wait for the ServiceAccounts that it reads, and starts to load them.
// A tenant's template does not make all others wait: only the pods of its namespace do. The first set does not wait: until they are loaded, this replica is not ready.
func (e *templateReloader) awaitsAccounts(set *templates.Set) bool {
	if e.current.Load() == nil || !set.OfCluster().ReadsServiceAccount() || e.accounts.isReady() {
		return false
	}
	if e.waiting.Swap(set.Revision) != set.Revision {
		e.log.Info("the new templates read ServiceAccounts, and are used as soon as these are loaded", "revision", set.Revision)
	}
	e.accounts.setWanted(true)
	return true
}

// replaceSet puts a new set in use. The previous set still counts until the new one has settled,
// because this replica, or one that is behind, may have injected pods with it. A set that was
// incomplete was never in use.
func (e *templateReloader) replaceSet(set *templates.Set) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.since.SetToCurrentTime()
	e.setCurrent(e.viewer.nextState(e.current.Load(), set, e.whole.Load()))
	load := e.viewer.loads
	e.later(settleTime, func() { e.dropSuperseded(load) })
}

// dropSuperseded drops the sets that were superseded before a load.
func (e *templateReloader) dropSuperseded(load int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.setCurrent(e.viewer.dropSuperseded(e.current.Load(), load))
}

// warnUninjected changes how judges handle pods that should have been injected: whether they report
// them as warnings if the template's mode is Warn (--uninjected-pods).
func (e *templateReloader) warnUninjected(warn bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.viewer.warn = warn
	e.setCurrent(e.viewer.withNewJudges(e.current.Load()))
}

func (e *templateReloader) setCurrent(now *inUse) {
	sets := []*templates.Set{now.set}
	for v := range now.allViews {
		for _, s := range v.kept {
			sets = append(sets, s.injector.Set())
		}
	}
	reads := func(s *templates.Set) bool { return s.ReadsServiceAccount() }
	readsInCluster := func(s *templates.Set) bool { return s.OfCluster().ReadsServiceAccount() }
	e.readsAccounts.Store(slices.ContainsFunc(sets, reads))
	e.needsAccounts.Store(slices.ContainsFunc(sets, readsInCluster))
	e.wantAccounts()
	e.webhooks.Use(sets...)
	e.current.Store(now)
}

// wantAccounts watches ServiceAccounts as long as a set reads them that counts or waits.
func (e *templateReloader) wantAccounts() {
	waiting, _ := e.waiting.Load().(string)
	e.accounts.setWanted(waiting != "" || e.readsAccounts.Load())
}

// reloadTemplates calls load, and logs and counts what was rejected.
func (e *templateReloader) reloadTemplates() {
	e.loading.Lock()
	defer e.loading.Unlock()
	now, before := e.loadTemplates(), *e.rejected.Load()
	since := map[string]time.Time{}
	for i := range before {
		since[before[i].stableText()] = before[i].since
	}
	problems := 0
	for i := range now {
		r := &now[i]
		problems += problemCount(r.err)
		if known, ok := since[r.stableText()]; ok {
			r.since = known
			continue
		}
		r.since = time.Now()
		e.reloads.WithLabelValues("rejected").Inc()
		lines := strings.Split(r.err.Error(), "\n")
		if r.instead == "" {
			e.log.Error("the new templates are invalid, the last valid ones stay in use", "problems", lines, "revision", e.currentSet().Revision)
		} else {
			e.log.Error("templates are invalid", "rejected", r.what+r.instead, "problems", lines, "revision", e.currentSet().Revision)
		}
	}
	e.rejected.Store(&now)
	e.problems.Set(float64(problems))
	if len(now) == 0 && len(before) > 0 {
		e.log.Info("the templates are valid again", "revision", e.currentSet().Revision)
	}
}

func problemCount(err error) int {
	if problems, ok := errors.AsType[problem.Problems](err); ok {
		return len(problems)
	}
	return 1
}

// reloadOnChange reloads on every change of files and objects until ctx is done.
func (e *templateReloader) reloadOnChange(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { e.objects.followChanges(ctx, e.reloadTemplates) })
	followFiles(ctx, e.paths, e.log, e.reloadTemplates)
}

// followFiles calls changed whenever the files or folders may have changed, until
// ctx is done.
func followFiles(ctx context.Context, paths []string, log *slog.Logger, changed func()) {
	for {
		err := watchFiles(ctx, paths, changed)
		if ctx.Err() != nil {
			return
		}
		log.Error("the files cannot be watched, trying again", "files", paths, "after", watchAgain.String(), "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(watchAgain):
			changed()
		}
	}
}

// checkAccounts reports whether the ServiceAccounts that templates read are known. If only a new set
// reads them, which waits for them, Pillion stays ready. It also does if only templates of namespaces read
// them: their pods wait, and the others do not.
func (e *templateReloader) checkAccounts() (string, error) {
	detail, err := e.accounts.checkReadiness()
	if err != nil && !e.needsAccounts.Load() {
		return err.Error(), nil
	}
	return detail, err
}

// checkReadiness reports which templates are in use. Rejected sources are reported, but Pillion stays
// ready, because the previous templates still work.
func (e *templateReloader) checkReadiness() (string, error) {
	waiting, _ := e.waiting.Load().(string)
	if !e.whole.Load() {
		if waiting != "" {
			return "", errors.New("revision " + waiting + " waits for the ServiceAccounts that it reads")
		}
		return "", e.objects.notLoaded()
	}
	set := e.currentSet()
	details := []string{fmt.Sprintf("revision %s, %d in use", set.Revision, len(set.Templates))}
	if waiting != "" {
		details = append(details, "revision "+waiting+" waits for the ServiceAccounts that it reads")
	}
	for i, r := range *e.rejected.Load() {
		if i == mostRejections {
			details = append(details, fmt.Sprintf("and %d more are rejected", len(*e.rejected.Load())-i))
			break
		}
		details = append(details, r.String())
	}
	return strings.Join(details, "; "), nil
}
