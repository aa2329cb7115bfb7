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

	"github.com/pillion-dev/pillion/cmd/pillion/update"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// defaultUnavailable is the default of spec.rollout.maxUnavailable.
const defaultUnavailable = "25%"

// update plans, and updates the pods of a template. It returns when to plan again, or 0 for at once.
func (r *rollouts) update(ctx context.Context, t *subject, namespaces []string, origin string) (wait time.Duration, err error) {
	most := defaultUnavailable
	if t.spec.MaxUnavailable != nil {
		most = t.spec.MaxUnavailable.String()
	}
	limits := r.limits
	if limits.Unavailable, err = rollout.ParseUnavailable(most); err != nil {
		return 0, err
	}
	var all []*rollout.Workload
	executor := &update.Rollout{Cluster: r.cluster, Limits: limits}
	if len(namespaces) > 0 {
		targets, err := r.plan(ctx, namespaces, t.bounds())
		if err != nil {
			return 0, err
		}
		all, executor.Plan = targets.Workloads, targets.Plan
	}
	wait = planAgain
	if others(all) {
		wait = waitAgain
	}
	if !slices.ContainsFunc(all, (*rollout.Workload).Acts) {
		return wait, r.complete(ctx, t, all)
	}
	slices.SortStableFunc(all, unfinishedFirst)
	switch failed, err := r.execute(ctx, t, origin, executor, all); {
	case ctx.Err() != nil:
		return wait, nil //nolint:nilerr // the next replica that leads continues
	case errors.Is(err, update.ErrStopped):
		return 0, nil
	case err != nil:
		return waitAgain, r.stop(ctx, t, failed, err)
	}
	return 0, nil // to see what is left
}

// others leaves out the workloads that replace their pods without the controller, for example because a user deploys
// a new version. It reports whether there are some.
func others(all []*rollout.Workload) (some bool) {
	for _, w := range all {
		if w.Way == rollout.Await && w.Restarted.IsZero() {
			w.Way, w.Why, some = rollout.Cannot, "it is replacing its pods already", true
		}
	}
	return some
}

// places returns the namespaces in which a rollout changes something.
func places(all []*rollout.Workload) (names []string) {
	for _, w := range all {
		if w.Acts() && !slices.Contains(names, w.Namespace) {
			names = append(names, w.Namespace)
		}
	}
	return names
}

// unfinishedFirst orders workloads: those that an earlier process has not finished come first, so that one that has
// failed stops the rollout before it reaches others.
func unfinishedFirst(a, b *rollout.Workload) int {
	rank := func(w *rollout.Workload) int {
		if w.Unfinished() {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
}

// wave is the reason of the Events of waves.
const wave = "RolloutWave"

// execute runs a rollout until its end, the end of its turn, or a change of what it was planned
// from. It returns the first failure.
func (r *rollouts) execute(ctx context.Context, t *subject, origin string, executor *update.Rollout, all []*rollout.Workload) (failed *update.Event, err error) {
	stop := make(chan struct{})
	executor.Stop = stop
	executor.Report = func(e update.Event) {
		switch e.Type {
		case "wave":
			message := strings.ToUpper(e.Message[:1]) + e.Message[1:] + "."
			r.event(t.object, corev1.EventTypeNormal, wave, shortened(message))
			r.progress(ctx, t, fmt.Sprintf("%s Before it, %d of %d pods were done.", message, e.Done, e.Total))
		case "waiting":
			of := cmp.Or(e.Pod, e.Workload)
			r.progress(ctx, t, shortened(fmt.Sprintf("%s in the namespace %s waits for %s. %d of %d pods are done.", of, e.Namespace, e.Message, e.Done, e.Total)))
		case "failed":
			if failed == nil {
				failed = &e
			}
		}
		r.log.Info("rollout", "template", client.ObjectKeyFromObject(t.object).String(), "event", e.Type, "namespace", e.Namespace, "workload", e.Workload, "pod", e.Pod, "message", e.Message)
	}
	watch, end := context.WithCancel(ctx)
	var group sync.WaitGroup
	group.Go(func() { defer close(stop); r.until(watch, t, origin, places(all)) })
	err = r.run(ctx, executor, all)
	end()
	group.Wait()
	return failed, err
}

// until returns when the rollout of a template has to stop, or ctx is done: what it was planned from has changed, a
// namespace in which it changes something no longer has the label, or its turn ends.
func (r *rollouts) until(ctx context.Context, t *subject, origin string, places []string) {
	begun := r.now()
	poll := time.NewTicker(time.Second)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-poll.C:
		}
		now := r.get(t.entry.Key())
		if now == nil || r.now().Sub(begun) > turn || r.origin(now) != origin {
			return
		}
		labelled, err := r.look(ctx, now)
		if err == nil && slices.ContainsFunc(places, func(name string) bool { return !slices.Contains(labelled, name) }) {
			return
		}
	}
}
