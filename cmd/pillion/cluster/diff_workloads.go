// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/diff"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/uninject"
	"github.com/pillion-dev/pillion/templates/request"
)

// comparer compares the workloads of a cluster.
type comparer struct {
	*survey
	*diff.Comparison

	out        *diff.Report
	namespaces map[string]*scope
	workloads  map[workload]*tally // workloads that have pods and are not compared yet
	assume     bool                // whether the webhooks count as installed, although they are unknown or missing
	lost       map[string]string   // pods whose state before the injection is unknown: by the reason, an example
}

// scope is what the workloads of a namespace have in common.
type scope struct {
	request.Namespace

	limits   *limits.Limits // nil: not read yet
	onlyPods bool           // only pods that opted in themselves are compared
}

// workload identifies an owner of pods.
type workload struct{ namespace, group, kind, name string }

// tally counts the pods of an owner.
type tally struct {
	apiVersion string
	pods       int
	example    []byte // a pod, if the owner has no pod template
}

// limitsOf returns the LimitRanges and quotas of a namespace, which it reads once.
func (p *comparer) limitsOf(ctx context.Context, s *scope) limits.Limits {
	if s.limits == nil {
		all, err := p.readLimits(ctx, s.Name)
		if err != nil {
			p.addNote(fmt.Sprintf("Whether the limits of the namespace %s allow the new pods is unknown: %s.", s.Name, strings.ReplaceAll(err.Error(), "\n", "; ")))
		}
		s.limits = &all
	}
	return *s.limits
}

// compared is the outcome for the objects of a list.
type compared struct {
	diff.Count

	outcomes []*diff.Outcome
}

// compareWorkload compares the new pods of a workload: of a pod template, or of a pod itself.
func (p *comparer) compareWorkload(ctx context.Context, into *compared, w *diff.Workload) error {
	s, pod := p.namespaces[w.Namespace], w.Request.Object
	w.Limits = func() limits.Limits { return p.limitsOf(ctx, s) }
	w.Request.Operation, w.Request.Namespace = "CREATE", s.Namespace
	if !p.assume {
		called, _ := explain.Calls(p.own.Entries, s.Labels, pod)
		w.Request.OptedIn = called
		w.Lenient = !slices.ContainsFunc(p.own.Entries, func(e explain.Entry) bool { return e.Type == explain.Validating && e.Match(s.Labels, pod).Called })
		if !called && w.Lenient {
			return nil
		}
	}
	outcome, err := p.Compare(w)
	if err != nil {
		return fmt.Errorf("%s in the namespace %s: %w", w.String(), w.Namespace, err)
	}
	into.Pods, into.Owners = into.Pods+w.Pods, into.Owners+1
	if outcome != nil {
		into.outcomes = append(into.outcomes, outcome)
	}
	p.progress.Say("%d pods of %d workloads compared", p.out.Compared.Pods+into.Pods, p.out.Compared.Owners+into.Owners)
	return nil
}

// originalPod returns a running pod without what was injected, or nil if that is unknown.
func (p *comparer) originalPod(namespace, name string, pod []byte) []byte {
	req := inject.Request{Operation: "CREATE", Namespace: p.namespaces[namespace].Namespace, Object: pod, OptedIn: true}
	left, err := uninject.Original(p.injector, req)
	if err == nil {
		return left
	}
	if p.lost == nil {
		p.lost = map[string]string{}
	}
	if why := err.Error(); p.lost[why] == "" {
		p.lost[why] = namespace + "/" + name
	}
	return nil
}

// ownerTally returns the count of an owner's pods, and creates it if necessary.
func (p *comparer) ownerTally(namespace string, owner *metav1.OwnerReference) *tally {
	key := workloadOf(namespace, owner.APIVersion, owner.Kind, owner.Name)
	if p.workloads[key] == nil {
		p.workloads[key] = &tally{apiVersion: owner.APIVersion}
	}
	return p.workloads[key]
}

func workloadOf(namespace, apiVersion, kind, name string) workload {
	of, _ := schema.ParseGroupVersion(apiVersion)
	return workload{namespace, of.Group, kind, name}
}
