// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/report/diff"
	"github.com/pillion-dev/pillion/inject/report/explain"
	"github.com/pillion-dev/pillion/templates"
)

// Change is what to change in the templates of a cluster.
type Change struct {
	Files      *templates.Set // templates that are applied
	Without    []string       // IDs of templates that are removed
	Namespaces []string       // none: all namespaces that opted in
	Installed  []string       // files and folders with the templates of the cluster; none: read from the cluster
}

// Compare compares what new pods get now with what they would get after a change of the cluster's templates. If that takes long, it
// writes its progress to stderr.
func (c *Client) Compare(ctx context.Context, change Change, stderr io.Writer) (*diff.Report, error) {
	l := &podLister{c, cli.NewProgress(stderr)}
	l.progress.Start()
	defer l.progress.End()
	k, err := l.newSurvey(ctx, Query{Templates: change.Installed})
	if err != nil {
		return nil, err
	}
	incomplete := slices.Clone(k.unsure.problems)
	set, notes, err := diff.Applied(k.injector.All(), change.Files, change.Without)
	if err != nil {
		return nil, err
	}
	p := &comparer{survey: k, Comparison: diff.New(k.injector, k.injector.With(set), k.fits), namespaces: map[string]*scope{}, workloads: map[workload]*tally{}}
	p.out = p.NewReport()
	p.out.Problems, p.out.Notes = incomplete, append(append(notes, mountedFirst(k.injector.All(), change.Files)...), k.report.Doubts...)
	p.noteProblems(k.report.Problems[len(incomplete):])
	k.report.Problems = nil
	if err := p.compareNamespaces(ctx, change.Namespaces); err != nil {
		return nil, err
	}
	p.out.Problems = append(p.out.Problems, k.report.Problems...)
	p.out.Notes = append(p.out.Notes, slices.Sorted(maps.Keys(k.notes))...)
	p.out.Finish()
	return p.out, nil
}

// mountedFirst returns a note for each template of the files whose ID is that of an installed template in a mounted file.
func mountedFirst(installed, files *templates.Set) (notes []string) {
	for _, t := range installed.Templates {
		if !strings.HasPrefix(t.File, "configmap/") {
			continue
		}
		if slices.ContainsFunc(files.Templates, func(f *templates.Template) bool { return f.ID() == t.ID() }) {
			notes = append(notes, fmt.Sprintf("The template %s is in a mounted file now (%s). Change it there: an object with the same name would have no effect.", t.ID(), t.File))
		}
	}
	return notes
}

// noteProblems notes problems of Pillion itself. If its webhooks are not installed, the comparison assumes that they are.
func (p *comparer) noteProblems(problems []string) {
	for _, problem := range problems {
		p.addNote("Pillion has a problem now: " + problem)
	}
	mutating := func(e explain.Entry) bool { return e.Type == explain.Mutating }
	p.assume = p.own.Unknown || !slices.ContainsFunc(p.own.Entries, mutating)
}

// many is the number of namespaces above which lists of the whole cluster need fewer requests.
const many = 20

// compareNamespaces compares the workloads of the named namespaces, or of all that opted in.
func (p *comparer) compareNamespaces(ctx context.Context, named []string) error {
	add := func(ns *unstructured.Unstructured) error {
		p.namespaces[ns.GetName()] = &scope{Namespace: p.namespaceScope(ns).Namespace}
		return nil
	}
	var elsewhere map[string]*unstructured.Unstructured
	if len(named) > 0 {
		if err := p.eachNamed(ctx, named, add); err != nil {
			return err
		}
	} else {
		chosen, others, err := p.chooseNamespaces(ctx)
		if err != nil {
			return explainForbidden(err, "list", "namespaces", "", "name those that you are allowed to read with --namespace")
		}
		for _, ns := range chosen {
			_ = add(ns) // it returns no error
		}
		elsewhere = others
	}
	lists := slices.Sorted(maps.Keys(p.namespaces))
	if len(named) == 0 && len(lists) > many {
		lists = []string{metav1.NamespaceAll}
	}
	for _, namespace := range lists {
		if err := p.compareNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	if err := p.compareOptedInPods(ctx, elsewhere); err != nil {
		return err
	}
	for why, example := range p.lost {
		p.addNote(fmt.Sprintf("What the pod %s was before the injection is unknown, so it is not compared: %s.", example, why))
	}
	return nil
}

// compareNamespace compares the workloads of one namespace, or, for "", of all namespaces in p.namespaces.
func (p *comparer) compareNamespace(ctx context.Context, namespace string) error {
	if err := p.tallyPods(ctx, namespace, ""); err != nil {
		return err
	}
	return p.compareWorkloads(ctx, namespace)
}

// compareWorkloads compares the workloads of a namespace after its pods.
func (p *comparer) compareWorkloads(ctx context.Context, namespace string) error {
	for _, kind := range kindsOwnedFirst() {
		if err := p.compareKind(ctx, kind, namespace); err != nil {
			return err
		}
	}
	return p.compareOthers(ctx)
}

// compareOptedInPods compares the workloads of pods that opted in although their namespaces did not. It does
// not find such workloads without pods.
func (p *comparer) compareOptedInPods(ctx context.Context, namespaces map[string]*unstructured.Unstructured) error {
	if len(namespaces) == 0 {
		return nil
	}
	clear(p.namespaces)
	for name, ns := range namespaces {
		p.namespaces[name] = &scope{Namespace: p.namespaceScope(ns).Namespace, onlyPods: true}
	}
	if err := p.tallyPods(ctx, metav1.NamespaceAll, inject.LabelInject+"="+inject.Enabled); err != nil {
		return err
	}
	found := map[string]bool{}
	for key := range p.workloads {
		found[key.namespace] = true
	}
	for _, namespace := range slices.Sorted(maps.Keys(found)) {
		if err := p.compareWorkloads(ctx, namespace); err != nil {
			return err
		}
	}
	return nil
}

// kindsOwnedFirst returns the kinds with pod templates, first those whose objects other kinds own: their pods count for the owners,
// which are compared later.
func kindsOwnedFirst() []Kind {
	all := slices.DeleteFunc(Kinds(), func(k Kind) bool { return k.Kind == "Pod" || k.Kind == "PodTemplate" })
	slices.SortStableFunc(all, func(a, b Kind) int {
		switch {
		case a.owned == b.owned:
			return 0
		case a.owned:
			return -1
		}
		return 1
	})
	return all
}
