// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// fieldManager owns the fields of the status.
const fieldManager = "pillion-controller"

// reconciler writes the status of templates, one at a time.
type reconciler struct {
	read  reader
	apply func(ctx context.Context, status *unstructured.Unstructured) error
	event func(template *unstructured.Unstructured, kind, reason, message string)
	count func(template types.NamespacedName, revision string, replacedBy ...string) v1alpha1.PodCounts
	// missing returns how many pods should have a template and lack it, or nil if that is not known.
	missing func(template types.NamespacedName) *int64
	now     func() metav1.Time
	// namespaces returns the namespaces in which the pods of a template are updated.
	namespaces func(template *unstructured.Unstructured) []string

	known map[types.NamespacedName]known
}

// settleTime is the time within which all replicas use a new content. The controller reports the content only after that, so that a
// pod that is created after "kubectl wait --for=condition=Ready" gets it.
const settleTime = time.Second

// known is the verdict about a content of a template. It is kept because pods, which also cause requests, change far more often than
// templates.
type known struct {
	uid        types.UID
	generation int64
	verdict    verdict
	since      metav1.Time // when the content was compiled
}

// Reconcile implements [reconcile.Reconciler]. A request without a namespace is for a template of the
// cluster.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name := request.NamespacedName
	template, used := r.read.Get(name)
	if !used { // compiling takes memory and time, and a tenant may have many
		delete(r.known, name)
	}
	if template == nil {
		return reconcile.Result{}, nil
	}
	taken, before, scope := r.isTaken(name), statusOf(template), scopeOf(r.read, template)
	var of verdict
	if !taken && used {
		var err error
		if of, err = r.compileTemplate(ctx, template); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err) // the event about the end of the template is about to arrive
		}
	}
	moment := r.now()
	if rest := settleTime - moment.Sub(r.known[name].since.Time); rest > 0 && readyCondition(before).ObservedGeneration != template.Generation {
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	now := nextStatus(before, facts{
		name: template.Name, generation: template.Generation, verdict: of, taken: taken, excess: r.read.Excess(name), misreplaced: whyMisreplaced(scope, template),
		count: func(revision string) v1alpha1.PodCounts {
			by := replacingNames(scope, template)
			counts := r.count(name, revision, by...)
			counts.Missing = r.missing(name)
			counts.Updated = r.countUpdated(template, revision, by)
			return counts
		},
	}, moment)
	if equality.Semantic.DeepEqual(before, now) {
		return reconcile.Result{}, nil
	}
	if err := writeStatus(ctx, r.apply, template, now); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	was, is := readyCondition(before).Reason, readyCondition(now).Reason
	if was != is && (was != "" || is != v1alpha1.ReasonValid) && is != v1alpha1.ReasonTooMany { // tenants may have many such templates, and each event takes memory
		kind := corev1.EventTypeNormal
		if is != v1alpha1.ReasonValid {
			kind = corev1.EventTypeWarning
		}
		r.event(objectOf(template), kind, is, now.Conditions[0].Message)
	}
	return reconcile.Result{}, nil
}

// countUpdated returns how many pods have a revision of a template, in the namespaces in which the controller updates pods. It returns
// nil if the template has no automatic rollout.
func (r *reconciler) countUpdated(template *kube.Entry, revision string, replacedBy []string) *int64 {
	if template.Rollout == nil || !template.Rollout.Acts() {
		return nil
	}
	n := new(int64)
	for _, namespace := range r.namespaces(objectOf(template)) {
		*n += r.count(types.NamespacedName{Namespace: namespace, Name: template.Name}, revision, replacedBy...).Current
	}
	return n
}

// isTaken reports whether a template of a namespace has the name of one of the cluster.
func (r *reconciler) isTaken(name types.NamespacedName) bool {
	if name.Namespace == "" {
		return false
	}
	other, _ := r.read.Get(types.NamespacedName{Name: name.Name})
	return other != nil
}

// compileTemplate compiles a template, once for each content.
func (r *reconciler) compileTemplate(ctx context.Context, template *kube.Entry) (verdict, error) {
	name := template.Key()
	if k, ok := r.known[name]; ok && k.uid == template.UID && k.generation == template.Generation {
		return k.verdict, nil
	}
	text, err := r.read.Content(ctx, template)
	if err != nil {
		return verdict{}, err
	}
	var v verdict
	compiled, err := kube.CompileContent(template, text)
	var problems problem.Problems
	switch {
	case err == nil:
		v.revision = compiled.Revision
	case errors.As(err, &problems):
		v.problems = listProblems(problems)
	default:
		v.problems = err.Error()
	}
	r.known[name] = known{template.UID, template.Generation, v, r.now()}
	return v, nil
}
