// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
	"github.com/pillion-dev/pillion/cmd/pillion/executor"
	"github.com/pillion-dev/pillion/inject/rollout"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// TestRolloutLabel checks that the label of a namespace counts only with the value enabled, and only where Pillion injects pods.
func TestRolloutLabel(t *testing.T) {
	var selector string
	all := map[string]map[string]string{
		"a": nil, "b": {injectLabel: "enabled"}, "c": {injectLabel: "shadow"}, "d": {injectLabel: "disabled"}, "e": {injectLabel: "true"},
		"kube-system": {injectLabel: "enabled"}, "kube-public": nil, "kube-node-lease": nil, "sidecars": {injectLabel: "enabled"},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		selector = r.URL.Query().Get("labelSelector")
		w.Header().Set("Content-Type", "application/json")
		list := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all[name]}})
		}
		_ = json.NewEncoder(w).Encode(list)
	}))
	t.Cleanup(server.Close)
	r, err := (&Options{qps: 50}).newRollouts(&rest.Config{Host: server.URL}, "sidecars", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	names, err := r.namespaces(t.Context())
	if err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("rollouts are in %v, %v", names, err)
	}
	selected, err := labels.Parse(selector)
	if err != nil || selector == "" {
		t.Fatalf("the selector is %q, %v", selector, err)
	}
	for value, want := range map[string]bool{"enabled": true, "disabled": false, "": false} {
		if got := selected.Matches(labels.Set{cluster.LabelRollout: value}); got != want {
			t.Errorf("a namespace with the value %q is selected: %t", value, got)
		}
	}
}

// injectLabel is the label with which namespaces opt in or out.
const injectLabel = "pillion.dev/inject"

// TestRolloutReadsKind checks that a rollout is about a template of the cluster or of a namespace, as requested.
func TestRolloutReadsKind(t *testing.T) {
	a, _ := newAPI()
	a.put("", "one")
	a.put("shop", "one")
	for namespace, want := range map[string]string{"": v1alpha1.ClusterKind, "shop": v1alpha1.NamespacedKind} {
		of := (&rollouts{read: a}).getSubject(types.NamespacedName{Namespace: namespace, Name: "agent"})
		if of == nil || of.object.GetKind() != want || of.object.GetNamespace() != namespace {
			t.Errorf("in the namespace %q, it reads %+v, want a %s", namespace, of, want)
		}
	}
	if of := (&rollouts{read: a}).getSubject(types.NamespacedName{Namespace: "till", Name: "agent"}); of != nil {
		t.Errorf("there is %+v", of)
	}
}

// TestRolloutCountsAgain checks that the pods of a template count again if, and only if, the labelled namespaces change.
func TestRolloutCountsAgain(t *testing.T) {
	r := newRolled()
	n := 0
	r.counted = func(types.NamespacedName) { n++ }
	for _, step := range []struct {
		namespaces []string
		want       int
	}{{[]string{"shop"}, 1}, {[]string{"shop"}, 1}, {[]string{"till", "shop"}, 2}, {[]string{"shop", "till"}, 2}, {nil, 3}} {
		r.namespaces, r.clock = step.namespaces, r.clock.Add(recheckEvery)
		if r.reconcile(t); n != step.want {
			t.Errorf("with the namespaces %q, pods were counted again %d times, want %d", step.namespaces, n, step.want)
		}
	}
}

// TestRolloutCountsWhereItUpdates checks that only outdated pods in the labelled namespaces cause a plan.
func TestRolloutCountsWhereItUpdates(t *testing.T) {
	r := newRolled()
	var counted []string
	r.count = func(template types.NamespacedName, _ string, _ ...string) v1alpha1.PodCounts {
		counted = append(counted, template.String())
		return v1alpha1.PodCounts{}
	}
	r.reconcile(t)
	if slices.Sort(counted); !slices.Equal(slices.Compact(counted), []string{"shop/agent"}) {
		t.Errorf("counted %q", counted)
	}
}

// TestOthers checks that a workload which the controller has restarted is awaited, and one that a user has restarted is
// left alone.
func TestOthers(t *testing.T) {
	await := func(restarted time.Time) *rollout.Workload {
		return &rollout.Workload{Namespace: "shop", Kind: "Deployment", Name: "web", Way: rollout.Await, Restarted: restarted}
	}
	if w := await(time.Unix(1, 0)); excludeReplacing([]*rollout.Workload{w}) || w.Way != rollout.Await {
		t.Errorf("a workload that the controller has restarted: %s (%s)", w.Way, w.Why)
	}
	if w := await(time.Time{}); !excludeReplacing([]*rollout.Workload{w}) || w.Way != rollout.Cannot {
		t.Errorf("a workload that a user has restarted: %s (%s)", w.Way, w.Why)
	}
}

// TestPlaces checks that a namespace in which a rollout changes nothing cannot stop it, and that the status names only
// workloads that the rollout leaves.
func TestPlaces(t *testing.T) {
	left1 := web("left")
	left1.Namespace, left1.Way, left1.Why = "till", rollout.Cannot, "its args differ"
	all := []*rollout.Workload{web("web"), web("zoo"), left1}
	if got := namespacesToChange(all); !slices.Equal(got, []string{"shop"}) {
		t.Errorf("it changes something in %q", got)
	}
	if got, want := describeLeft(all, "updated"), "1 pod of 1 workload is not updated, for example Deployment/left in the namespace till: its args differ."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRolloutFirstFailure checks that the status names the failure that came first.
func TestRolloutFirstFailure(t *testing.T) {
	r := newRolled()
	r.workloads = func() []*rollout.Workload { return []*rollout.Workload{web("web"), web("zoo")} }
	r.run = func(_ context.Context, u *executor.Rollout, _ []*rollout.Workload) error {
		for _, name := range []string{"web", "zoo"} {
			u.Report(executor.Event{Type: "failed", Namespace: "shop", Workload: "Deployment/" + name, Pod: name + "-1", Message: "it crashes"})
		}
		return errors.New("it crashes")
	}
	r.reconcile(t)
	if journal := r.journal.String(); !strings.Contains(journal, "workload: Deployment/web\n") || strings.Contains(journal, "workload: Deployment/zoo") {
		t.Error(journal)
	}
}

// TestMissingRight checks that advice about rights is given only if the controller lacks one.
func TestMissingRight(t *testing.T) {
	lacks := errors.New(`User "x" cannot patch resource "pods" in API group "" in the namespace "shop"`)
	for what, test := range map[string]struct {
		err  error
		want bool
	}{
		"a right is missing":   {apierrors.NewForbidden(corev1.Resource("pods"), "web-1", lacks), true},
		"a plugin denies it":   {apierrors.NewForbidden(corev1.Resource("pods"), "web-1", errors.New("exceeded quota")), false},
		"only the words match": {lacks, false},
	} {
		if got := missingRight(test.err); got != test.want {
			t.Errorf("%s: %t", what, got)
		}
	}
}
