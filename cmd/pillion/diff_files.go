// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/manifest"
	"github.com/pillion-dev/pillion/cmd/pillion/yamledit"
	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/report/diff"
	"github.com/pillion-dev/pillion/inject/uninject"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// twoSets are the files of diff.
type twoSets struct {
	files      []string // manifests, or templates for a cluster
	old, with  []string // files and folders of templates
	without    []string
	namespace  string   // of objects without one
	namespaces []string // none: all
}

// compareFiles compares two sets of templates by manifests.
func (o *twoSets) compareFiles(ctx context.Context, stdin io.Reader, stderr io.Writer) (*diff.Report, error) {
	from := templates.NewSet(nil)
	if len(o.old) > 0 {
		var err error
		if from, err = cli.LoadTemplates(stdin, o.old); err != nil {
			return nil, err
		}
	}
	to, err := cli.LoadTemplates(stdin, o.with)
	if err != nil {
		return nil, err
	}
	if to, _, err = diff.Applied(to, templates.NewSet(nil), o.without); err != nil {
		return nil, err
	}
	fits, err := limits.NewEvaluator()
	if err != nil {
		return nil, err
	}
	m := &manifestSet{namespaces: o.namespaces, found: map[diff.Owner]*made{}}
	m.injectOptions = &injectOptions{files: o.files, namespace: o.namespace}
	m.from = inject.New(from)
	m.Comparison = diff.New(m.from, inject.New(to), fits)
	m.injection = newInjection(m.injectOptions, inject.New(to), io.Discard)
	if err := m.readAll(stdin); err != nil {
		return nil, err
	}
	if len(m.order) == 0 {
		return nil, errNoPods
	}
	return m.compareWorkloads(ctx, cli.NewProgress(stderr))
}

// manifestSet has the workloads and pods of files.
type manifestSet struct {
	*injectOptions
	*diff.Comparison

	injection  *injection
	from       *inject.Injector
	namespaces []string // none: all
	order      []diff.Owner
	found      map[diff.Owner]*made
}

// made is what new pods of an owner are made from.
type made struct {
	object manifest.Object // a workload or a pod
	pods   int
}

// readAll reads the files.
func (m *manifestSet) readAll(stdin io.Reader) error {
	files, err := m.readFiles(stdin)
	if err != nil {
		return err
	}
	pods := map[diff.Owner][]manifest.Object{} // of an owner
	for _, file := range files {
		for _, d := range yamledit.Split(file.data) {
			all, err := manifest.InDocument(d)
			if err != nil {
				return locateError(d, file.name, err)
			}
			for _, o := range all {
				m.addObject(o, pods)
			}
		}
	}
	m.assignToOwners(pods)
	return nil
}

// addObject stores a workload, or an object with an owner in pods.
func (m *manifestSet) addObject(o manifest.Object, pods map[diff.Owner][]manifest.Object) {
	namespace := cmp.Or(o.Node.At("metadata", "namespace").Text(), m.namespace)
	if len(m.namespaces) > 0 && !slices.Contains(m.namespaces, namespace) {
		return
	}
	of := diff.Owner{Namespace: namespace, APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name()}
	if o.Kind == "Pod" && !isRunning(o.Node) {
		return
	}
	owners := o.Node.At("metadata", "ownerReferences").Items()
	for i := range owners {
		if w := &owners[i]; w.Get("controller").Kind() == jsontree.True {
			key := diff.Owner{Namespace: namespace, APIVersion: w.Get("apiVersion").Text(), Kind: w.Get("kind").Text(), Name: w.Get("name").Text()}
			pods[key] = append(pods[key], o)
			return
		}
	}
	if m.found[of] == nil {
		m.order = append(m.order, of)
	}
	m.found[of] = &made{o, replicasOf(o)}
}

// isRunning reports whether a pod of the files has not ended, and is no mirror pod.
func isRunning(pod *jsontree.Node) bool {
	phase := corev1.PodPhase(pod.At("status", "phase").Text())
	return phase != corev1.PodSucceeded && phase != corev1.PodFailed && pod.At("metadata", "annotations", corev1.MirrorPodAnnotationKey) == nil
}

// replicasOf returns how many pods an object has according to the files.
func replicasOf(o manifest.Object) int {
	at := map[string][]string{
		"Job": {"spec", "parallelism"}, "CronJob": {"spec", "jobTemplate", "spec", "parallelism"}, "DaemonSet": {"status", "desiredNumberScheduled"},
	}[o.Kind]
	if at == nil {
		at = []string{"spec", "replicas"}
	}
	if n, err := strconv.Atoi(o.Node.At(at...).String()); err == nil && n >= 0 {
		return n
	}
	return 1
}

// assignToOwners counts the pods of owners that are in the files for these owners. An owner that is not in the files is compared by one
// of its pods.
func (m *manifestSet) assignToOwners(pods map[diff.Owner][]manifest.Object) {
	var top func(key diff.Owner) diff.Owner // the owner of an owner
	owned := map[diff.Owner]diff.Owner{}
	keys := slices.SortedFunc(maps.Keys(pods), diff.CompareOwners)
	for _, key := range keys {
		for _, o := range pods[key] {
			if o.Kind != "Pod" {
				owned[diff.Owner{Namespace: key.Namespace, APIVersion: o.APIVersion, Kind: o.Kind, Name: o.Name()}] = key
			}
		}
	}
	top = func(key diff.Owner) diff.Owner {
		if to, ok := owned[key]; ok {
			delete(owned, key) // so that the search ends even if objects own each other
			to = top(to)
			owned[key] = to
			return to
		}
		return key
	}
	counted := map[diff.Owner]int{}
	var rest []diff.Owner
	for _, key := range keys {
		for _, o := range pods[key] {
			to := top(key)
			if o.Kind == "Pod" {
				counted[to]++
			}
			if m.found[to] == nil {
				m.found[to] = &made{object: o}
				rest = append(rest, to)
			} else if of := m.found[to]; of.object.Kind == "Pod" && o.Kind != "Pod" && counted[to] > 0 {
				of.object = o // its pod template
			}
		}
	}
	slices.SortFunc(rest, diff.CompareOwners)
	m.order = append(m.order, rest...)
	for key, n := range counted {
		m.found[key].pods = n
	}
}

// compareWorkloads compares all workloads.
func (m *manifestSet) compareWorkloads(ctx context.Context, progress *cli.Progress) (*diff.Report, error) {
	report := m.NewReport()
	progress.Start()
	defer progress.End()
	for i, owner := range m.order {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		progress.Say("%d of %d workloads", i, len(m.order))
		of := m.found[owner]
		req, wrong, err := m.injection.requestFor(of.object)
		if err != nil {
			return nil, err
		}
		for _, sentence := range wrong.All() {
			report.Notes = append(report.Notes, owner.String()+": "+sentence)
		}
		if of.object.Kind == "Pod" {
			if req.Object, err = uninject.Original(m.from, req); err != nil {
				report.Notes = append(report.Notes, owner.String()+" is not compared, because it is unknown what it was before the injection: "+err.Error())
				continue
			}
		}
		outcome, err := m.Compare(&diff.Workload{Owner: owner, Pods: of.pods, Request: req})
		if err != nil {
			return nil, err
		}
		var changed []*diff.Outcome
		if outcome != nil {
			changed = append(changed, outcome)
		}
		report.Compare(diff.Count{Pods: of.pods, Owners: 1}, changed)
	}
	report.Finish()
	return report, nil
}
