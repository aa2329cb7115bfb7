// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
)

// maxRunning limits how many pods of a namespace explain reads.
const maxRunning = 10 * pageSize

var errEnough = errors.New("enough pods")

// compareRunning compares the pods of a workload with new ones. It returns nil if the pods cannot be
// read.
func (i *Installation) compareRunning(ctx context.Context, p *namespace, object *unstructured.Unstructured) (*explain.Running, error) {
	if object.GetKind() == "CronJob" {
		return nil, nil // its Jobs run the pods
	}
	selector := podsOf(object)
	if selector == "" && !i.whole {
		return nil, nil
	}
	count := i.countPods(ctx, p, i.listedBy(selector))
	if count == nil {
		return nil, nil
	}
	owner := status.Owner{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName()}
	if r := count.CompareRunning(owner, "", ""); r == nil || len(r.Behind) == 0 {
		return r, nil
	}
	unsure := cmp.Or(i.whyUnsure(), p.unknown)
	if unsure == "" {
		if err := count.PlanOthers(); err != nil {
			return nil, err
		}
	}
	if unsure == "" && isRestartable(object.GetKind()) {
		text, err := object.MarshalJSON()
		if err != nil {
			return nil, err
		}
		room := func(labels map[string]string, pod []byte, n int) string { return i.Fits.Room(labels, p.limits, pod, n) }
		if err := count.ConsiderRestart(text, room); err != nil {
			return nil, err
		}
	}
	r := count.CompareRunning(owner, i.Commands.Kubectl, unsure)
	r.Suggest(i.Commands.Rollout, i.Commands.Status+" -o name |", "xargs -r -L1 "+i.Commands.Kubectl+" rollout restart")
	return r, nil
}

// listedBy returns the selector with which the pods of a workload are listed. If all objects of the namespace are explained, it
// returns "", so that the pods are listed only once.
func (i *Installation) listedBy(selector string) string {
	if i.whole {
		return ""
	}
	return selector
}

func isRestartable(name string) bool {
	kind, err := KindOf(name)
	return err == nil && kind.restarts
}

// Uncertain reports whether templates are invalid or cannot be read.
func (i *Installation) Uncertain() bool { return len(i.wrong.problems) > 0 }

// whyUnsure returns why the result for new pods is unknown, or "".
func (i *Installation) whyUnsure() string {
	switch {
	case len(i.wrong.problems) > 0:
		return i.wrong.problems[0]
	case len(i.wrong.doubts) > 0:
		return i.wrong.doubts[0]
	case i.unknown || i.byPolicies():
		return "whether the API server calls Pillion is unknown"
	case i.answered == nil && len(i.entries) > 0:
		return "whether Pillion has a ready endpoint is unknown"
	case i.answered != nil && !*i.answered:
		return "Pillion has no ready endpoint"
	}
	return ""
}

// byPolicies reports whether policies that pillion policy wrote inject the pods.
func (i *Installation) byPolicies() bool {
	mutating := slices.ContainsFunc(i.entries, func(e explain.Entry) bool { return e.Type == explain.Mutating })
	return !mutating && len(i.mutation.OwnPolicies()) > 0
}

// podsOf returns the selector of a workload's pods, or "" if it has none.
func podsOf(object *unstructured.Unstructured) string {
	spec, _, _ := unstructured.NestedMap(object.Object, "spec", "selector")
	if spec["matchLabels"] == nil && spec["matchExpressions"] == nil {
		return ""
	}
	s := &metav1.LabelSelector{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(spec, s) != nil {
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return selector.String()
}

// countPods counts the pods of a namespace once. It returns nil if they cannot be read.
func (i *Installation) countPods(ctx context.Context, p *namespace, selector string) *status.Count {
	if count, known := p.counts[selector]; known {
		return count
	}
	if p.counts == nil {
		p.counts, p.recorded = map[string]*status.Count{}, map[string][]recordedPod{}
	}
	scope := i.namespaceScope(p)
	count := status.NewCount(i.injector, scope)
	read, recorded := 0, []recordedPod(nil)
	err := i.eachPod(ctx, p.Name, selector, func(pod *listedPod) error {
		if read++; read > maxRunning {
			return errEnough
		}
		if i.wrong.unread {
			recorded = append(recorded, newRecordedPod(pod))
		}
		return count.Add(pod.text)
	}, func() { count, read, recorded = status.NewCount(i.injector, scope), 0, nil })
	switch {
	case errors.Is(err, errEnough):
		p.notes = append(p.notes, fmt.Sprintf("This report compares only %d running pods of the namespace %s; pillion status compares all.", maxRunning, p.Name))
	case err != nil:
		p.notes = append(p.notes, fmt.Sprintf("The running pods of the namespace %s are unknown: %s.", p.Name, whyNot(err, "pods")))
		count, recorded = nil, nil
	}
	if count != nil {
		count.GuessDeployments()
	}
	p.counts[selector], p.recorded[selector] = count, recorded
	return count
}

func (i *Installation) namespaceScope(p *namespace) status.Scope {
	scope := status.Scope{
		Past: i.namespacePast(p), Namespace: p.Namespace, Entries: i.entries, Unknown: i.unknown || i.byPolicies() || !p.Known, Incomplete: len(i.wrong.problems) > 0,
		Plans: true, Resizes: i.resizable(),
	}
	scope.Changed(i.mutation)
	return scope
}

func (i *Installation) namespacePast(p *namespace) explain.Past {
	return explain.Past{Installed: i.since, OptedIn: p.optedIn}
}
