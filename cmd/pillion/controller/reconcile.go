// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// fieldManager owns the fields of the status.
const fieldManager = "pillion-controller"

// reconciler writes the status of templates, one at a time.
type reconciler struct {
	read  client.Reader
	apply func(ctx context.Context, status *unstructured.Unstructured) error
	event func(template *unstructured.Unstructured, kind, reason, message string)
	count func(template types.NamespacedName, revision string, replacedBy ...string) v1alpha1.PodCounts
	now   func() metav1.Time
	// namespaces returns those in which the pods of a template are updated.
	namespaces func(template *unstructured.Unstructured) []string

	known map[types.NamespacedName]known
}

// settles is the time within which replicas use a new content. The controller reports it only then, so that a
// pod which is created after "kubectl wait --for=condition=Ready" gets it.
const settles = time.Second

// known is the verdict about a content, because pods change far more often than templates.
type known struct {
	uid        types.UID
	generation int64
	verdict    verdict
	since      metav1.Time
}

// Reconcile implements [reconcile.Reconciler]. A request without a namespace is for a template of the
// cluster.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	template, err := r.get(ctx, request.NamespacedName)
	if template == nil || err != nil {
		return reconcile.Result{}, err
	}
	taken, err := r.taken(ctx, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	tooMany, err := r.tooMany(ctx, template)
	if err != nil {
		return reconcile.Result{}, err
	}
	before, err := statusOf(template)
	if err != nil {
		return reconcile.Result{}, err
	}
	scope, err := scopeOf(ctx, r.read, template)
	if err != nil {
		return reconcile.Result{}, err
	}
	var of verdict
	if !taken && !tooMany { // compiling takes time, and a tenant may have many
		of = r.judge(template)
	}
	moment := r.now()
	if rest := settles - moment.Sub(r.known[request.NamespacedName].since.Time); rest > 0 && condition(before).ObservedGeneration != template.GetGeneration() {
		return reconcile.Result{RequeueAfter: rest}, nil
	}
	now := next(before, facts{
		name: template.GetName(), generation: template.GetGeneration(), verdict: of, taken: taken, tooMany: tooMany, misreplaced: misreplaced(scope, template),
		count: func(revision string) v1alpha1.PodCounts {
			by := replacing(scope, template)
			counts := r.count(request.NamespacedName, revision, by...)
			counts.Updated = r.updated(template, revision, by)
			return counts
		},
	}, moment)
	if equality.Semantic.DeepEqual(before, now) {
		return reconcile.Result{}, nil
	}
	if err := r.write(ctx, template, now); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if was, is := condition(before).Reason, condition(now).Reason; was != is && (was != "" || is != v1alpha1.ReasonValid) {
		kind := corev1.EventTypeNormal
		if is != v1alpha1.ReasonValid {
			kind = corev1.EventTypeWarning
		}
		r.event(template, kind, is, now.Conditions[0].Message)
	}
	return reconcile.Result{}, nil
}

// updated returns how many pods have a revision of a template, in the namespaces in which they are updated, or nil if
// they are nowhere.
func (r *reconciler) updated(template *unstructured.Unstructured, revision string, replacedBy []string) *int64 {
	strategy, _, _ := unstructured.NestedString(template.Object, "spec", "rollout", "strategy")
	if of := (v1alpha1.Rollout{Strategy: v1alpha1.RolloutStrategy(strategy)}); !of.Acts() {
		return nil
	}
	n := new(int64)
	for _, namespace := range r.namespaces(template) {
		*n += r.count(types.NamespacedName{Namespace: namespace, Name: template.GetName()}, revision, replacedBy...).Current
	}
	return n
}

// get returns a template, or nil if there is none.
func (r *reconciler) get(ctx context.Context, name types.NamespacedName) (*unstructured.Unstructured, error) {
	template := newObject(v1alpha1.NamespacedKind)
	if name.Namespace == "" {
		template = newObject(v1alpha1.ClusterKind)
	}
	err := r.read.Get(ctx, name, template)
	if apierrors.IsNotFound(err) {
		delete(r.known, name)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the template %s: %w", name, err)
	}
	return template, nil
}

// taken reports whether a template of a namespace has the name of one of the cluster.
func (r *reconciler) taken(ctx context.Context, name types.NamespacedName) (bool, error) {
	if name.Namespace == "" {
		return false, nil
	}
	other, err := r.get(ctx, types.NamespacedName{Name: name.Name})
	return other != nil, err
}

// tooMany reports whether a template is not used because its namespace has too many.
func (r *reconciler) tooMany(ctx context.Context, template *unstructured.Unstructured) (bool, error) {
	if template.GetNamespace() == "" {
		return false, nil
	}
	all, err := list(ctx, r.read, client.InNamespace(template.GetNamespace()))
	if err != nil {
		return false, err
	}
	slices.SortFunc(all, func(a, b unstructured.Unstructured) int { return kube.CompareAge(&a, &b) })
	var sizes []int
	for i := range all[:min(len(all), kube.MaxOfNamespace)] {
		text, err := kube.TemplateText(&all[i])
		if err != nil {
			return false, err
		}
		sizes = append(sizes, len(text))
	}
	used := all[:kube.Fitting(sizes)]
	return !slices.ContainsFunc(used, func(o unstructured.Unstructured) bool { return o.GetName() == template.GetName() }), nil
}

// judge compiles a template, once for each content.
func (r *reconciler) judge(template *unstructured.Unstructured) verdict {
	name := client.ObjectKeyFromObject(template)
	if k, ok := r.known[name]; ok && k.uid == template.GetUID() && k.generation == template.GetGeneration() {
		return k.verdict
	}
	var v verdict
	compiled, err := kube.CompileTemplate(template)
	switch {
	case err == nil:
		v.revision = compiled.Revision
	case !errors.As(err, &v.problems):
		v.problems = templates.Problems{{Message: err.Error()}}
	}
	r.known[name] = known{template.GetUID(), template.GetGeneration(), v, r.now()}
	return v
}

// write applies a status.
func (r *reconciler) write(ctx context.Context, template *unstructured.Unstructured, status *v1alpha1.Status) error {
	applied, err := statusObject(template, status)
	if err != nil {
		return err
	}
	if err := r.apply(ctx, applied); err != nil {
		return fmt.Errorf("writing the status of %s: %w", kube.TemplateID(template), err)
	}
	return nil
}

// statusObject returns a template with only a status, to apply it.
func statusObject(template *unstructured.Unstructured, status *v1alpha1.Status) (*unstructured.Unstructured, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, err
	}
	applied := newObject(template.GetKind())
	applied.SetName(template.GetName())
	applied.SetNamespace(template.GetNamespace())
	applied.SetUID(template.GetUID()) // so that another template of this name does not get it
	applied.Object["status"] = fields
	return applied, nil
}

// statusOf returns the status of a template, without that of its rollout and the conditions of other controllers, or
// nil if it has none.
func statusOf(template *unstructured.Unstructured) (*v1alpha1.Status, error) {
	fields, ok := template.Object["status"].(map[string]any)
	if !ok {
		return nil, nil
	}
	status := &v1alpha1.Status{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, status)
	status.Failed = nil
	status.Conditions = slices.DeleteFunc(status.Conditions, func(c metav1.Condition) bool { return c.Type != v1alpha1.ConditionReady })
	return status, err
}
