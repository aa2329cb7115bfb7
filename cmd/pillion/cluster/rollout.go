// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// Rollout finds the pods that are not current, and how to update them.
func (c *Client) Rollout(ctx context.Context, q Query, b Bounds, stderr io.Writer) (*Targets, error) {
	l := &podLister{c, cli.NewProgress(stderr)}
	l.progress.Start()
	defer l.progress.End()
	k, err := l.newSurvey(ctx, q)
	if err != nil {
		return nil, NoAnswer(err)
	}
	if len(k.unsure.problems) > 0 {
		return nil, fmt.Errorf("nothing is updated, because the templates are uncertain: %s", withoutFiles(strings.Join(k.unsure.problems, " ")))
	}
	if err := b.checkTemplate(k.injector.All()); err != nil {
		return nil, err
	}
	t := &targeting{survey: k, bounds: b, targets: &Targets{namespaces: map[string]*targetNamespace{}}}
	t.vanishing = b.Object != "" // the user has named no namespace
	if t.resizes, err = c.supportsResize(); err != nil {
		return nil, NoAnswer(err)
	}
	if b.Revision != "" {
		template, err := b.findRevision(k.injector.All())
		if err != nil {
			return nil, err
		}
		if b.Undo {
			if t.back, err = c.newWayBack(ctx, k.injector, template); err != nil {
				return nil, err
			}
		}
	}
	if err := t.planNamespaces(ctx, q); err != nil {
		return nil, NoAnswer(err)
	}
	for note := range k.notes {
		t.targets.Notes = append(t.targets.Notes, note)
	}
	slices.Sort(t.targets.Notes)
	rollout.Sort(t.targets.Workloads)
	return t.targets, nil
}

// maxLists is the number of lists of pods that a rollout reads at the same time. An API server ends a list that takes longer than its
// limit, by default a minute. If a rollout read the pods of all its workloads at once, each list would take as long as all of them.
const maxLists = 8

// Executor returns the client with which a rollout changes the cluster.
func (c *Client) Executor() executor.Cluster {
	reading := make(chan struct{}, maxLists)
	list := func(ctx context.Context, namespace string, of metav1.ListOptions, each func(text []byte) error) (metav1.ListMeta, error) {
		select {
		case reading <- struct{}{}:
		case <-ctx.Done():
			return metav1.ListMeta{}, ctx.Err()
		}
		defer func() { <-reading }()
		return c.listPods(ctx, namespace, of, each)
	}
	return executor.Kubernetes{Interface: c.Interface, ListPods: list}
}

func (t *targeting) planNamespaces(ctx context.Context, q Query) error {
	if len(q.Namespaces) > 0 {
		return t.eachNamed(ctx, q.Namespaces, func(ns *unstructured.Unstructured) error {
			return t.planNamespace(ctx, ns, t.selector.String())
		})
	}
	chosen, elsewhere, err := t.chooseNamespaces(ctx)
	if err != nil {
		return explainForbidden(err, "list", "namespaces", "", "name those that you are allowed to read: pillion rollout NAMESPACE...")
	}
	t.found = len(chosen)
	for _, ns := range chosen {
		if err := t.planNamespace(ctx, ns, t.selector.String()); err != nil {
			return err
		}
	}
	return t.planOptedInPods(ctx, elsewhere)
}

// planOptedInPods plans the pods that opted in although their namespaces did not. Elsewhere has these namespaces by name.
func (t *targeting) planOptedInPods(ctx context.Context, elsewhere map[string]*unstructured.Unstructured) error {
	if len(elsewhere) == 0 {
		return nil
	}
	selector := t.alsoSelected(inject.LabelInject + "," + inject.LabelInject + "!=" + inject.Disabled)
	found := map[string]bool{}
	err := t.eachPod(ctx, "", selector, func(pod *listedPod) error {
		found[pod.Metadata.Namespace] = elsewhere[pod.Metadata.Namespace] != nil
		return nil
	}, func() {})
	if apierrors.IsForbidden(err) {
		t.addNote("Pods that opted in themselves are not updated, because you are not allowed to list the pods of all namespaces.")
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if found[name] {
			if err := t.planNamespace(ctx, elsewhere[name], selector); err != nil {
				return err
			}
		}
	}
	return nil
}

// planNamespace plans the pods of a namespace that a selector matches.
func (t *targeting) planNamespace(ctx context.Context, ns *unstructured.Unstructured, selector string) error {
	only, ok := t.bounds.onlyTemplate(t.injector.For(ns.GetName()).Set())
	if !ok {
		return nil
	}
	count := t.newCount(ns)
	n, err := t.prepareNamespace(ctx, ns, only)
	if err != nil {
		return err
	}
	g := &grouping{targeting: t, targetNamespace: n, name: ns.GetName(), workloads: map[status.Owner]*rollout.Workload{}, resizing: map[*rollout.Workload]*resizing{}, plans: map[rollout.Likeness]*rollout.Pod{}}
	err = t.eachPod(ctx, ns.GetName(), selector, func(pod *listedPod) error {
		if err := t.back.loadEarlier(ctx, pod.Metadata.Annotations); err != nil {
			return err
		}
		return g.groupPod(count, pod)
	}, func() {
		count, g.workloads, g.resizing = t.newCount(ns), map[status.Owner]*rollout.Workload{}, map[*rollout.Workload]*resizing{}
	})
	if err != nil {
		return explainForbidden(err, "list", "pods", ns.GetName(), "leave out this namespace")
	}
	t.targets.namespaces[ns.GetName()] = n
	t.targets.Pods += count.Pods()
	return g.chooseWays(ctx, count)
}
