// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/explain"
	"github.com/pillion-dev/pillion/inject/fit"
	"github.com/pillion-dev/pillion/inject/survey"
	"github.com/pillion-dev/pillion/manifests"
	"github.com/pillion-dev/pillion/templates"
)

// podLister looks at a cluster's pods.
type podLister struct {
	*cluster
	progress *progress
}

// look is one look at all pods.
type look struct {
	*podLister
	injector   *inject.Injector
	report     *survey.Report
	mutation   *survey.Mutation
	validation *survey.Validation
	fits       *fit.Evaluator
	notes      map[string]bool
	selector   labels.Selector   // of pods
	own        survey.Scope      // what all namespaces have in common
	found      int               // how many namespaces there are to look at
	shadowed   []string          // where nothing is injected, and what would be is told
	wrong      []string          // whose label means nothing
	awaited    map[string]string // why nothing in a namespace may wait for Pillion
	events     int               // of how many owners they were read
}

// report looks at the namespaces that are named, at all, or at all that opted in.
func (l *podLister) report(ctx context.Context, o *statusOptions) (*survey.Report, error) {
	l.progress.start()
	defer l.progress.end()
	k, err := l.newLook(ctx, o)
	if err != nil {
		return nil, err
	}
	if len(o.namespaces) > 0 {
		err = k.named(ctx, o.namespaces)
	} else {
		err = k.optedIn(ctx, o.all)
	}
	if err != nil {
		return nil, err
	}
	if len(k.shadowed) > 0 {
		k.note(fmt.Sprintf("Only shadowed (%s: %s), so nothing is injected: %s.", inject.LabelInject, inject.Shadow, strings.Join(k.shadowed, ", ")))
	}
	if len(k.wrong) > 0 {
		k.note(fmt.Sprintf("Nothing is injected where the label %s means nothing; it must be %s or %s: %s.", inject.LabelInject, inject.Enabled, inject.Shadow, strings.Join(k.wrong, ", ")))
	}
	k.report.Mutators = append(k.report.Mutators, k.mutation.Mutators(k.report.Labels())...)
	k.report.Validators = k.validation.Validators(k.report.Labels())
	for _, loop := range survey.Loops(k.mutation, k.validation, l.system, k.labels(ctx)) {
		k.note(loop.String())
	}
	k.report.Notes = append(k.report.Notes, slices.Sorted(maps.Keys(k.notes))...)
	k.report.Finish()
	return k.report, nil
}

// newLook reads what all namespaces have in common.
func (l *podLister) newLook(ctx context.Context, o *statusOptions) (*look, error) {
	k := &look{podLister: l, notes: map[string]bool{}}
	var wrong unsure
	var err error
	if k.selector, err = labels.Parse(o.selector); err != nil {
		return nil, err
	}
	if k.injector, err = l.newInjector(ctx, o.templates, k.note, &wrong); err != nil {
		return nil, l.whatFollows(ctx, err)
	}
	k.report = survey.NewReport(k.injector.Set())
	k.report.Problems, k.report.Doubts = wrong.problems, wrong.doubts
	k.own.Incomplete = len(wrong.problems) > 0
	if k.fits, err = fit.NewEvaluator(); err != nil {
		return nil, err
	}
	for _, t := range k.injector.Set().Templates {
		if t.ReadsRequest() {
			k.note(explain.ByRequest(t.Name))
		}
	}
	return k, k.webhooks(ctx)
}

// installed finds Pillion's own webhooks among all, or asks for them alone.
func (k *look) installed(ctx context.Context, m *survey.Mutation) error {
	own := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if i := slices.IndexFunc(m.Webhooks, func(c admissionregistrationv1.MutatingWebhookConfiguration) bool { return c.Name == m.Own }); i >= 0 {
		own = &m.Webhooks[i]
	} else if m.Webhooks == nil {
		var err error
		resource := admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")
		own, err = get[admissionregistrationv1.MutatingWebhookConfiguration](ctx, k.Resource(resource), manifests.Name)
		switch {
		case apierrors.IsForbidden(err):
			k.own.Unknown = true
			k.answering(ctx, own)
			k.note("You may not get mutatingwebhookconfigurations, so whether the API server asks Pillion about pods is not known.")
			return nil
		case err != nil && !apierrors.IsNotFound(err):
			return err
		}
	}
	k.own.Entries, k.own.Installed = explain.MutatingEntries(own), own.CreationTimestamp.Time
	if len(k.own.Entries) == 0 && len(m.OwnPolicies()) > 0 {
		k.own.Unknown = true // pods are injected by what pillion policy wrote
	}
	k.answering(ctx, own)
	return nil
}

func (k *look) note(text string) { k.notes[text] = true }

// labelled keeps what a namespace's label says where it does not opt in.
func (k *look) labelled(ns *unstructured.Unstructured) {
	switch value, ok := ns.GetLabels()[inject.LabelInject]; {
	case value == inject.Shadow:
		k.shadowed = append(k.shadowed, ns.GetName())
	case ok && inject.WrongNamespaceLabel(value) != "" && !k.matches(ns, ""):
		k.wrong = append(k.wrong, fmt.Sprintf("%s (%q)", ns.GetName(), value))
	}
}

// named looks at namespaces that somebody named.
func (k *look) named(ctx context.Context, names []string) error {
	return k.eachNamed(ctx, names, func(ns *unstructured.Unstructured) error {
		count, err := k.namespace(ctx, ns)
		if err == nil {
			k.report.Name(count, k.known(ns))
		}
		return err
	})
}

// optedIn looks at all namespaces that opted in, and at the pods that opted in elsewhere; or at all.
func (k *look) optedIn(ctx context.Context, all bool) error {
	var chosen []*unstructured.Unstructured
	elsewhere := map[string]*unstructured.Unstructured{}
	err := k.pages(ctx, k.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", func(ns *unstructured.Unstructured) error {
		ns = needed(ns)
		k.labelled(ns)
		if o := survey.NewOutside(k.scope(ns), k.known(ns)); o != nil && !o.Intended {
			k.report.Unlabelled++
		}
		switch {
		case all:
			chosen = append(chosen, ns)
		case slices.Contains(inject.SystemNamespaces(), ns.GetName()):
		case ns.GetLabels()[inject.LabelInject] == inject.Enabled || k.matches(ns, ""):
			chosen = append(chosen, ns)
		case k.matches(ns, inject.Enabled) || ns.GetLabels()[inject.LabelInject] == "" && k.own.Unknown:
			elsewhere[ns.GetName()] = ns
		}
		return nil
	}, func() {
		chosen, k.shadowed, k.wrong, k.report.Unlabelled = nil, nil, nil, 0
		clear(elsewhere)
	})
	if err != nil {
		return forbidden(err, "list", "namespaces", "", "name those that you may read: pillion status NAMESPACE...")
	}
	k.found = len(chosen)
	for _, ns := range chosen {
		if _, err := k.namespace(ctx, ns); err != nil {
			return err
		}
	}
	return k.byThemselves(ctx, elsewhere)
}

// needed is what of a namespace is needed.
func needed(ns *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetName(ns.GetName())
	out.SetLabels(ns.GetLabels())
	out.SetAnnotations(ns.GetAnnotations())
	out.SetManagedFields(ns.GetManagedFields())
	out.SetDeletionTimestamp(ns.GetDeletionTimestamp())
	return out
}

// matches says whether a webhook is for a pod of the namespace with this opt-in label.
func (k *look) matches(ns *unstructured.Unstructured, label string) bool {
	labels := map[string]string{}
	if label != "" {
		labels[inject.LabelInject] = label
	}
	probe, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{}})
	if err != nil {
		return false
	}
	return slices.ContainsFunc(k.own.Entries, func(e explain.Entry) bool { return e.Match(ns.GetLabels(), probe).Called })
}

func (k *look) count(ns *unstructured.Unstructured) *survey.Count {
	scope := k.scope(ns)
	if scope.LastWord = k.mutation.LastWord(ns.GetLabels()); k.mutation.Webhooks == nil {
		scope.LastWord = []string{"webhooks that you may not list"}
	}
	return survey.NewCount(k.injector, *scope)
}

func (k *look) scope(ns *unstructured.Unstructured) *survey.Scope {
	scope := k.own
	scope.Namespace = templates.Namespace{Name: ns.GetName(), Labels: ns.GetLabels(), Annotations: ns.GetAnnotations(), Known: true}
	if ns.GetLabels()[inject.LabelInject] == inject.Enabled {
		scope.OptedIn = survey.OptedIn(ns.GetManagedFields())
	}
	return &scope
}

// namespace counts all pods of a namespace.
func (k *look) namespace(ctx context.Context, ns *unstructured.Unstructured) (*survey.Count, error) {
	count := k.count(ns)
	client := k.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(ns.GetName())
	err := k.pages(ctx, client, k.selector.String(), func(pod *unstructured.Unstructured) error {
		return k.add(count, pod)
	}, func() { count = k.count(ns) })
	if err != nil {
		return nil, forbidden(err, "list", "pods", ns.GetName(), "name namespaces that you may read: pillion status NAMESPACE...")
	}
	return count, k.finish(ctx, ns.GetName(), count)
}

// byThemselves counts the pods that opted in where their namespace says nothing, or that tried to with a label
// that means nothing.
func (k *look) byThemselves(ctx context.Context, namespaces map[string]*unstructured.Unstructured) error {
	if len(namespaces) == 0 {
		return nil
	}
	counts := map[string]*survey.Count{}
	client := k.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	err := k.pages(ctx, client, k.alsoSelected(inject.LabelInject+","+inject.LabelInject+"!="+inject.Disabled), func(pod *unstructured.Unstructured) error {
		ns := namespaces[pod.GetNamespace()]
		if ns == nil {
			return nil
		}
		count := counts[ns.GetName()]
		if count == nil {
			count = k.count(ns)
			counts[ns.GetName()] = count
		}
		return k.add(count, pod)
	}, func() { clear(counts) })
	if err != nil {
		return forbidden(err, "list", "pods", "", "name namespaces that you may read: pillion status NAMESPACE...")
	}
	if err := k.failElsewhere(ctx, namespaces, counts); err != nil {
		return err
	}
	if err := k.misplacedElsewhere(ctx, namespaces); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if err := k.finish(ctx, name, counts[name]); err != nil {
			return err
		}
	}
	return nil
}

// alsoSelected is a selector of those of the pods that the user asks about.
func (k *look) alsoSelected(selector string) string {
	return strings.TrimSuffix(selector+","+k.selector.String(), ",")
}

func (k *look) add(count *survey.Count, pod *unstructured.Unstructured) error {
	text, err := pod.MarshalJSON()
	if err == nil {
		err = count.Add(text)
	}
	if err != nil {
		return fmt.Errorf("pod %s in the namespace %s: %w", pod.GetName(), pod.GetNamespace(), err)
	}
	k.progress.say(k.report.Pods.Pods+count.Pods(), len(k.report.Namespaces), k.found)
	return nil
}

// finish finds out who owns the owners of a namespace's pods, and adds all to the report.
func (k *look) finish(ctx context.Context, namespace string, count *survey.Count) error {
	if err := k.makers(ctx, namespace, count); err != nil {
		return err
	}
	if err := k.consider(ctx, namespace, count); err != nil {
		return err
	}
	if err := k.misplaced(ctx, namespace); err != nil {
		return err
	}
	k.report.Add(count)
	k.progress.say(k.report.Pods.Pods, len(k.report.Namespaces), k.found)
	return nil
}

// The limits of lists: the API server answers in pages of this many objects, and
// a page may be asked for while its token lasts.
const (
	pageSize  = 500
	readLimit = time.Minute
)
