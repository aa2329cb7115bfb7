// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/inject/report/status"
)

// Query selects the pods of a report.
type Query struct {
	Namespaces []string // none: all namespaces that opted in
	Selector   string   // a label selector for pods
	Templates  []string // files and folders; none: the templates of the cluster
}

// CheckSelector checks --selector, and writes its normal form, without spaces.
func (q *Query) CheckSelector() error {
	selector, err := labels.Parse(q.Selector)
	if err != nil {
		return fmt.Errorf("--selector must be a label selector such as app=web, not %q: %w", q.Selector, err)
	}
	q.Selector = selector.String()
	return nil
}

// Report counts pods and finds out what is wrong with them. If that takes long, it writes its
// progress to stderr.
func (c *Client) Report(ctx context.Context, q Query, stderr io.Writer) (*status.Report, error) {
	return (&podLister{c, cli.NewProgress(stderr)}).reportPods(ctx, q)
}

func (l *podLister) reportPods(ctx context.Context, q Query) (*status.Report, error) {
	l.progress.Start()
	defer l.progress.End()
	k, err := l.newSurvey(ctx, q)
	if err != nil {
		return nil, err
	}
	k.own.Plans, k.own.Resizes = true, l.canResize()
	if len(q.Namespaces) > 0 {
		err = k.countNamed(ctx, q.Namespaces)
	} else {
		err = k.countOptedIn(ctx)
	}
	if err != nil {
		return nil, err
	}
	if len(k.shadowed) > 0 {
		k.addNote(fmt.Sprintf("Shadow only (%s: %s), so nothing is injected: %s.", inject.LabelInject, inject.Shadow, strings.Join(k.shadowed, ", ")))
	}
	if len(k.wrong) > 0 {
		k.addNote(fmt.Sprintf("Nothing is injected in namespaces with an invalid label %s; it must be %s, %s or %s: %s.", inject.LabelInject, inject.Enabled, inject.Disabled, inject.Shadow, strings.Join(k.wrong, ", ")))
	}
	k.report.Mutators = append(k.report.Mutators, k.mutation.Mutators(k.report.Labels())...)
	k.report.Validators = k.validation.Validators(k.report.Labels())
	for _, loop := range status.Loops(k.mutation, k.validation, l.system, k.namespaceLabels(ctx)) {
		k.addNote(loop.String())
	}
	k.report.Notes = append(k.report.Notes, slices.Sorted(maps.Keys(k.notes))...)
	k.report.Stopped = len(k.unsure.stopped)
	k.report.Finish()
	return k.report, nil
}

// newSurvey begins a survey: it reads what all namespaces have in common.
func (l *podLister) newSurvey(ctx context.Context, q Query) (*survey, error) {
	k := &survey{podLister: l, notes: map[string]bool{}}
	k.accounts = l.serviceAccounts(ctx, k.addNote)
	wrong := &k.unsure
	var err error
	if k.selector, err = labels.Parse(q.Selector); err != nil {
		return nil, err
	}
	if k.injector, err = l.newInjector(ctx, q.Templates, k.addNote, wrong); err != nil {
		return nil, l.whatFollows(ctx, err)
	}
	if wrong.others {
		return nil, errOthers
	}
	k.report = status.NewReport(k.injector.All())
	k.report.Problems, k.report.Doubts = wrong.problems, wrong.doubts
	k.own.Incomplete = len(wrong.problems) > 0
	k.report.Unread = wrong.unread
	if k.fits, err = limits.NewEvaluator(); err != nil {
		return nil, err
	}
	for _, t := range k.injector.All().Templates {
		if t.ReadsRequest() {
			k.addNote(explain.ByRequest(t.Name))
		}
	}
	return k, k.readWebhooks(ctx)
}

// errOthers is the error of reports about templates that are not in use.
var errOthers = errors.New("the templates of --templates are not those that Pillion uses in this cluster: remove --templates, " +
	"or use pillion diff -f to see what these templates would change")

// noteLabelValue records a namespace in shadow, or with a label value that has no meaning.
func (k *survey) noteLabelValue(ns *unstructured.Unstructured) {
	switch value, ok := ns.GetLabels()[inject.LabelInject]; {
	case value == inject.Shadow:
		k.shadowed = append(k.shadowed, ns.GetName())
	case ok && inject.WrongNamespaceLabel(value) != "" && !k.matchesWebhook(ns, ""):
		k.wrong = append(k.wrong, fmt.Sprintf("%s (%q)", ns.GetName(), value))
	}
}

// countNamed counts the pods of namespaces that the user named.
func (k *survey) countNamed(ctx context.Context, names []string) error {
	return k.eachNamed(ctx, names, func(ns *unstructured.Unstructured) error {
		count, err := k.countNamespace(ctx, ns)
		if err == nil {
			k.report.Name(count, k.namespaceFacts(ns))
		}
		return err
	})
}

// countOptedIn counts the pods of all namespaces that opted in, and pods in other namespaces that opted in
// themselves.
func (k *survey) countOptedIn(ctx context.Context) error {
	chosen, elsewhere, err := k.chooseNamespaces(ctx)
	if err != nil {
		return explainForbidden(err, "list", "namespaces", "", "name those that you are allowed to read: pillion status NAMESPACE...")
	}
	k.found = len(chosen)
	for _, ns := range chosen {
		if _, err := k.countNamespace(ctx, ns); err != nil {
			return err
		}
	}
	return k.countOptedInPods(ctx, elsewhere)
}

// chooseNamespaces returns the namespaces that opted in (chosen), and the others, by name, in which pods can opt in
// themselves (elsewhere).
func (k *survey) chooseNamespaces(ctx context.Context) (chosen []*unstructured.Unstructured, elsewhere map[string]*unstructured.Unstructured, err error) {
	elsewhere = map[string]*unstructured.Unstructured{}
	err = k.eachObject(ctx, k.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), "", func(ns *unstructured.Unstructured) error {
		ns = withNeededFields(ns)
		k.noteLabelValue(ns)
		if o := status.NewOutside(k.namespaceScope(ns), k.namespaceFacts(ns)); o != nil && !o.Intended {
			k.report.Unlabelled++
		}
		switch {
		case slices.Contains(inject.SystemNamespaces(), ns.GetName()):
		case ns.GetLabels()[inject.LabelInject] == inject.Enabled || k.matchesWebhook(ns, ""):
			chosen = append(chosen, ns)
		case k.matchesWebhook(ns, inject.Enabled) || ns.GetLabels()[inject.LabelInject] == "" && k.own.Unknown:
			elsewhere[ns.GetName()] = ns
		}
		return nil
	}, func() {
		chosen, k.shadowed, k.wrong, k.report.Unlabelled = nil, nil, nil, 0
		clear(elsewhere)
	})
	return chosen, elsewhere, err
}

// withNeededFields returns a namespace with only the fields that are used.
func withNeededFields(ns *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{}}
	out.SetName(ns.GetName())
	out.SetLabels(ns.GetLabels())
	out.SetAnnotations(ns.GetAnnotations())
	out.SetManagedFields(ns.GetManagedFields())
	out.SetDeletionTimestamp(ns.GetDeletionTimestamp())
	return out
}

// countNamespace counts all pods of a namespace.
func (k *survey) countNamespace(ctx context.Context, ns *unstructured.Unstructured) (*status.Count, error) {
	count := k.newCount(ns)
	err := k.eachPod(ctx, ns.GetName(), k.selector.String(), func(pod *listedPod) error {
		return k.countPod(count, pod)
	}, func() { count = k.newCount(ns) })
	if err != nil {
		return count, k.reportForbidden(err, "list", "pods", ns.GetName())
	}
	return count, k.finishNamespace(ctx, ns.GetName(), count)
}

// countOptedInPods counts the pods that opted in although their namespace did not, and pods whose
// opt-in label has an invalid value.
func (k *survey) countOptedInPods(ctx context.Context, namespaces map[string]*unstructured.Unstructured) error {
	if len(namespaces) == 0 {
		return nil
	}
	counts := map[string]*status.Count{}
	err := k.eachPod(ctx, "", k.alsoSelected(inject.LabelInject+","+inject.LabelInject+"!="+inject.Disabled), func(pod *listedPod) error {
		ns := namespaces[pod.Metadata.Namespace]
		if ns == nil {
			return nil
		}
		count := counts[ns.GetName()]
		if count == nil {
			count = k.newCount(ns)
			counts[ns.GetName()] = count
		}
		return k.countPod(count, pod)
	}, func() { clear(counts) })
	if err := k.reportForbidden(err, "list", "pods", ""); err != nil {
		return err
	}
	if err := k.failElsewhere(ctx, namespaces, counts); err != nil {
		return err
	}
	if err := k.misplacedElsewhere(ctx, namespaces); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if err := k.finishNamespace(ctx, name, counts[name]); err != nil {
			return err
		}
	}
	return nil
}

func (k *survey) countPod(count *status.Count, pod *listedPod) error {
	if err := count.Add(pod.text); err != nil {
		return fmt.Errorf("pod %s in the namespace %s: %w", pod.Metadata.Name, pod.Metadata.Namespace, err)
	}
	k.reportProgress(k.report.Pods.Pods + count.Pods())
	return nil
}

// finishNamespace completes the count of a namespace after its pods were read, for example with the Deployments that own their
// ReplicaSets, and adds it to the report.
func (k *survey) finishNamespace(ctx context.Context, namespace string, count *status.Count) error {
	if err := k.readOwners(ctx, namespace, count); err != nil {
		return err
	}
	if err := k.considerRestarts(ctx, namespace, count); err != nil {
		return err
	}
	if err := k.findMisplaced(ctx, namespace); err != nil {
		return err
	}
	k.report.Add(count)
	k.reportProgress(k.report.Pods.Pods)
	return nil
}

// reportProgress reports how many pods have been read.
func (k *survey) reportProgress(pods int) {
	if k.found > 0 {
		k.progress.Say("%d pods, %d of %d namespaces", pods, len(k.report.Namespaces), k.found)
		return
	}
	k.progress.Say("%d pods, %d namespaces", pods, len(k.report.Namespaces))
}
