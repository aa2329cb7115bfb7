// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/report/status"
	"github.com/pillion-dev/pillion/inject/rollout"
)

// grouping collects the pods of a namespace by workload.
type grouping struct {
	*targeting
	*targetNamespace

	name      string
	workloads map[status.Owner]*rollout.Workload
	resizing  map[*rollout.Workload]*resizing
	plans     map[rollout.Likeness]*rollout.Pod // the plan of one pod for all that are alike
}

// resizing is the first resize of a workload.
type resizing struct {
	pod   string
	patch []byte
}

func (g *grouping) groupPod(count *status.Count, listed *listedPod) error {
	like, err := rollout.LikenessOf(listed.text)
	if err == nil {
		err = count.AddLike(listed.text, like)
	}
	if err != nil {
		return fmt.Errorf("pod %s in the namespace %s: %w", listed.Metadata.Name, g.name, err)
	}
	g.progress.Say("%d pods, %d of %d namespaces", g.targets.Pods+count.Pods(), len(g.targets.namespaces), max(g.found, 1))
	w := g.ownerWorkload(g.topOwner(listed))
	w.Pods++
	pod, err := g.planLike(listed, like, w)
	if err != nil {
		return fmt.Errorf("pod %s in the namespace %s: %w", listed.Metadata.Name, g.name, err)
	}
	if pod.Action != rollout.None {
		w.Behind = append(w.Behind, pod)
	}
	return nil
}

// planLike returns the plan of a pod of a workload. It uses the plan of another pod if that is alike.
func (g *grouping) planLike(listed *listedPod, like rollout.Likeness, w *rollout.Workload) (*rollout.Pod, error) {
	if p := g.plans[like]; p != nil {
		ready := rollout.IsReady(&corev1.Pod{Status: corev1.PodStatus{Conditions: listed.Status.Conditions}})
		return p.For(listed.Metadata.Name, string(listed.Metadata.UID), ready), nil
	}
	pod, err := g.planPod(listed)
	if err != nil {
		return nil, err
	}
	if g.resizing[w] == nil && pod.Action == rollout.Patch {
		patch, err := pod.Resources()
		if err != nil {
			return nil, err
		}
		if patch != nil {
			g.resizing[w] = &resizing{pod.Name, patch}
		}
	}
	pod.Forget()
	if len(g.plans) < rollout.MaxLikenesses {
		g.plans[like] = pod
	}
	return pod, nil
}

// topOwner returns the workload of a pod, for example a Deployment and not its ReplicaSet. A pod without a controller is its own
// workload.
func (g *grouping) topOwner(pod *listedPod) status.Owner {
	o := metav1.GetControllerOf(&pod.Metadata)
	if o == nil {
		return status.Owner{APIVersion: "v1", Kind: "Pod", Name: pod.Metadata.Name}
	}
	owner := status.Owner{APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}
	if m := g.makers[owner]; m != nil && m.owner != nil && owner.Kind == replicaSet.Kind {
		return *m.owner
	}
	return owner
}

func (g *grouping) ownerWorkload(o status.Owner) *rollout.Workload {
	w := g.workloads[o]
	if w == nil {
		w = &rollout.Workload{Namespace: g.name, APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name}
		g.workloads[o] = w
	}
	return w
}

// chooseWays chooses how each workload is updated.
func (g *grouping) chooseWays(ctx context.Context, count *status.Count) error {
	owners := map[string]status.Owner{}
	for o, m := range g.makers {
		if o.Kind == replicaSet.Kind && m.owner != nil {
			owners[o.Name] = *m.owner
		}
	}
	count.ReplaceOwners(replicaSet.Kind, owners)
	if err := g.considerRestarts(ctx, g.name, count); err != nil {
		return err
	}
	for o, w := range g.workloads {
		if len(w.Behind) == 0 || !g.bounds.includesWorkload(o) {
			continue
		}
		denied, err := g.tryResize(ctx, w)
		if err != nil {
			return err
		}
		if w.Limits, err = g.limitsOf(o, w); err != nil {
			return err
		}
		w.Choose(g.rolloutOwner(count, o))
		if w.Way == rollout.ChangeInPlace && denied != "" {
			w.Why = strings.TrimPrefix(w.Why+"; "+denied, "; ")
		}
		g.targets.Workloads = append(g.targets.Workloads, w)
	}
	return nil
}

// limitsOf returns the limits of a workload's rollout: the strictest of the workload's own minReadySeconds and of the templates whose
// changes its pods get.
func (g *grouping) limitsOf(o status.Owner, w *rollout.Workload) (rollout.Limits, error) {
	l := rollout.Limits{}
	if m := g.makers[o]; m != nil {
		var of struct {
			Spec struct{ MinReadySeconds int64 }
		}
		if json.Unmarshal(m.text, &of) == nil { // other kinds may use this field for something else
			l.MinReady = time.Duration(of.Spec.MinReadySeconds) * time.Second
		}
	}
	changes := map[string]bool{}
	for _, p := range w.Behind {
		for i := range p.Changes {
			changes[p.Changes[i].Template] = true
		}
	}
	for _, t := range g.injector.For(g.name).Set().Templates {
		if !changes[t.Name] {
			continue
		}
		of, err := RolloutLimits(&t.Spec.Rollout)
		if err != nil {
			return l, err
		}
		l = l.Strictest(of)
	}
	return l, nil
}

// rolloutOwner returns the facts about a workload that decide how it is updated, besides its pods.
func (g *grouping) rolloutOwner(count *status.Count, o status.Owner) rollout.Owner {
	out := rollout.Owner{InPlace: g.bounds.InPlace, Job: o.Kind == "Job", Recreates: o.Kind == replicaSet.Kind || o.Kind == "ReplicationController"}
	trouble := strings.Join(slices.Concat(g.report.Problems, g.report.Doubts), " ")
	out.Recreates = out.Recreates && trouble == ""
	m := g.makers[o]
	if m == nil || !isRestartable(o.Kind) {
		return out
	}
	out.Restarts, out.Updating, out.Restarted = true, m.updating, m.restarted
	if r := count.CompareRunning(o, "", ""); r != nil && r.Hold != "" {
		out.Hold = cmp.Or(trouble, r.Hold)
	}
	out.Newest = rollout.Newest(m.text, g.newestRevision(o))
	return out
}

// newestRevision returns the label of the pods of a Deployment's newest ReplicaSet.
func (g *grouping) newestRevision(deployment status.Owner) string {
	newest := ""
	number := ""
	for o, m := range g.makers {
		if o.Kind != replicaSet.Kind || m.owner == nil || *m.owner != deployment {
			continue
		}
		if longer := len(m.number) - len(number); longer > 0 || longer == 0 && m.number > number {
			number, newest = m.number, m.revision
		}
	}
	return newest
}

// tryResize sends the resize of a workload's first pod to the API server as a dry run. If the API server finds the change
// invalid, it marks all pods of the workload as pods that have to be replaced. If admission denies the resize, for example because the
// node is too small, it returns the reason. New pods might not fit anywhere either, so the rollout will stop at this pod instead.
func (g *grouping) tryResize(ctx context.Context, w *rollout.Workload) (denied string, err error) {
	first := g.resizing[w]
	if first == nil {
		return "", nil
	}
	err = executor.Kubernetes{Interface: g.Interface}.PatchPod(ctx, executor.Patch{Namespace: g.name, Name: first.pod, Subresource: "resize", Operations: first.patch, DryRun: true})
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "cannot patch resource"):
		g.addNote("Whether the API server accepts the new resources is unknown, because you are not allowed to patch pods/resize.")
	case apierrors.IsForbidden(err):
		return "the API server denies the resize: " + err.Error(), nil
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		for _, p := range w.Behind {
			p.Deny(err.Error())
		}
	case err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		return "", err
	}
	return "", nil
}
