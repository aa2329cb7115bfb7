// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// limitsOf returns the limits of the rollout of a template: the stricter of the flags and the template.
func (r *rollouts) limitsOf(spec *v1alpha1.Rollout) (l executor.Limits, err error) {
	l = r.limits
	of, err := cluster.RolloutLimits(spec)
	if err != nil {
		return l, err
	}
	l.Limits = l.Strictest(of)
	l.First = rollout.DefaultFirst
	if spec.First != nil {
		l.First = int(*spec.First)
	}
	shares := spec.Waves
	if len(shares) == 0 {
		shares = rollout.DefaultShares()
	}
	l.Shares, err = rollout.ParseShares(shares)
	l.StopAll = spec.Scope == v1alpha1.ScopeAll
	return l, err
}

// planPods plans a rollout of a template. The error is [cluster.ErrOtherContent] if the API server has another content of the template
// than t, or if the template or one that replaces it has changed meanwhile: a plan can wait for others.
func (r *rollouts) planPods(ctx context.Context, t *subject, namespaces []string, b cluster.Bounds) (*cluster.Targets, error) {
	targets, err := r.plan(ctx, namespaces, b)
	if err != nil {
		return nil, err
	}
	if now := r.getSubject(t.entry.Key()); now == nil || r.originOf(now) != t.origin {
		return nil, cluster.ErrOtherContent
	}
	if p := r.lastPlan(t.entry.Key()); !p.other.IsZero() {
		p.other = time.Time{}
		r.notePlan(t.entry.Key(), p)
	}
	return targets, nil
}

// updatePods plans a rollout of a template and runs it for one turn. It returns after how long to plan again; 0 means at once.
func (r *rollouts) updatePods(ctx context.Context, t *subject, namespaces []string) (wait time.Duration, err error) {
	limits, err := r.limitsOf(&t.spec)
	if err != nil {
		return 0, err
	}
	var all []*rollout.Workload
	execution := &executor.Rollout{Cluster: r.cluster, Limits: limits, Template: t.entry.Name}
	if len(namespaces) > 0 {
		targets, err := r.planPods(ctx, t, namespaces, t.rolloutBounds())
		if err != nil {
			return 0, err
		}
		all, execution.Plan = targets.Workloads, targets.Plan
	}
	wait = replanEvery
	if excludeReplacing(all) {
		wait = retryAfter
	}
	if !slices.ContainsFunc(all, (*rollout.Workload).Acts) {
		r.writeComplete(ctx, t, all)
		return wait, nil
	}
	return r.runRollout(ctx, t, execution, all), nil
}

// runRollout runs a rollout for one turn. It returns after how long to plan again; 0 means at once.
func (r *rollouts) runRollout(ctx context.Context, t *subject, execution *executor.Rollout, all []*rollout.Workload) (wait time.Duration) {
	report := func(event *executor.Event, e *end) bool { return r.reportEvent(ctx, t, event, e) }
	switch end := r.runTurn(ctx, t, execution, all, report); {
	case ctx.Err() != nil, end.failed && t.undoesFailure():
	case end.failed:
		r.writeStopped(ctx, t)
		return retryAfter
	case end.blocked != "":
		r.writeProgress(ctx, t, shortenMessage("Blocked: "+end.blocked+"."))
		return retryAfter
	case errors.Is(end.err, executor.ErrStopped):
	case end.err != nil:
		r.stopForError(ctx, t, end.err)
		return retryAfter
	}
	return 0 // to see what is left
}

// excludeReplacing leaves out the workloads that replace their pods without the controller, for example because a user deploys
// a new version. It reports whether there are some.
func excludeReplacing(all []*rollout.Workload) (some bool) {
	for _, w := range all {
		if w.Way == rollout.Await && w.Restarted.IsZero() {
			w.Way, w.Why, some = rollout.Cannot, "it is replacing its pods already", true
		}
	}
	return some
}

// namespacesToChange returns the namespaces in which a rollout changes something.
func namespacesToChange(all []*rollout.Workload) (names []string) {
	for _, w := range all {
		if w.Acts() && !slices.Contains(names, w.Namespace) {
			names = append(names, w.Namespace)
		}
	}
	return names
}

// waveReason is the reason of the Events about waves.
const waveReason = "RolloutWave"

// end is how a rollout has ended.
type end struct {
	err     error
	failed  bool   // whether pods have failed; subject.status.Failed has the reasons
	blocked string // what the rollout waited for in vain, if no pod has failed
}

// runTurn runs a rollout until it is complete or fails, until its turn ends, or until the templates or namespaces change from which it
// was planned. Report receives what happens, and returns true if the rollout has to stop everywhere.
func (r *rollouts) runTurn(ctx context.Context, t *subject, execution *executor.Rollout, all []*rollout.Workload, report func(event *executor.Event, e *end) (stops bool)) (e end) {
	stop := make(chan struct{})
	execution.Stop = stop
	watch, end := context.WithCancel(ctx)
	run, kill := context.WithCancel(ctx)
	defer kill()
	execution.Report = func(event executor.Event) {
		r.log.Info("rollout", "template", client.ObjectKeyFromObject(t.object).String(), "event", event.Type, "namespace", event.Namespace, "workload", event.Workload, "pod", event.Pod, "message", event.Message)
		if !report(&event, &e) {
			return
		}
		if end(); t.rolloutBounds().InPlace { // a pod whose change is not complete is put back, or completed by the next plan
			kill()
		}
	}
	var group sync.WaitGroup
	group.Go(func() { defer close(stop); r.awaitStop(watch, t, namespacesToChange(all)) })
	e.err = r.run(run, execution, all)
	end()
	group.Wait()
	return e
}

// reportEvent reports what happens in a rollout. It returns true if the rollout has to be undone.
func (r *rollouts) reportEvent(ctx context.Context, t *subject, event *executor.Event, e *end) (stops bool) {
	switch event.Type {
	case "wave":
		message := strings.ToUpper(event.Message[:1]) + event.Message[1:] + "."
		r.event(t.object, corev1.EventTypeNormal, waveReason, shortenMessage(message))
		r.writeProgress(ctx, t, fmt.Sprintf("%s Before it, %d of %d pods were done.", message, event.Done, event.Total))
	case "waiting":
		of := cmp.Or(event.Pod, event.Workload)
		r.writeProgress(ctx, t, shortenMessage(fmt.Sprintf("%s in the namespace %s waits for %s. %d of %d pods are done.", of, event.Namespace, event.Message, event.Done, event.Total)))
	case "failed":
		switch {
		case event.Blocked:
			e.blocked = event.Message
		case !missingRight(event.Err):
			e.failed = true
			r.noteFailure(ctx, t, event)
			return t.undoesFailure()
		}
	}
	return false
}

// awaitStop returns when ctx is done or the rollout of a template has to stop: the template or its canaries have changed, Pillion no
// longer uses it, a namespace of places no longer has the label, or the turn ends. Places are the namespaces in which the rollout
// changes something.
func (r *rollouts) awaitStop(ctx context.Context, t *subject, places []string) {
	begun := r.now()
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		now := r.getSubject(t.entry.Key())
		if now == nil || r.now().Sub(begun) > turn || r.originOf(now) != t.origin || !now.isReady() {
			return
		}
		labelled, err := r.enabledNamespaces(ctx, now)
		if err == nil && slices.ContainsFunc(places, func(name string) bool { return !slices.Contains(labelled, name) }) {
			return
		}
	}
}
