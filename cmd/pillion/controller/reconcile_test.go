// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/pillion-dev/pillion/cmd/pillion/kube"
	"github.com/pillion-dev/pillion/inject/testing/golden"
	"github.com/pillion-dev/pillion/templates/problem"
	"github.com/pillion-dev/pillion/templates/v1alpha1"
)

// api has templates, and records what the controller writes.
type api struct {
	objects map[types.NamespacedName]*unstructured.Unstructured
	journal strings.Builder
	counts  map[types.NamespacedName]v1alpha1.PodCounts
	gone    bool // templates are deleted before their status is written
}

// catalog is what the controller knows of the objects.
func (a *api) catalog() *kube.Catalog {
	c := kube.NewCatalog(kube.NewLimits(), nil, true, func([]types.NamespacedName) {})
	for _, o := range a.objects {
		c.Put(entryOf(c, o))
	}
	return c
}

func entryOf(c *kube.Catalog, o *unstructured.Unstructured) *kube.Entry {
	text, err := o.MarshalJSON()
	if err != nil {
		panic(err)
	}
	e, err := c.Read(text)
	if err != nil {
		panic(err)
	}
	return e
}

// Get implements [reader].
func (a *api) Get(name types.NamespacedName) (*kube.Entry, bool) { return a.catalog().Get(name) }

// Of implements [reader].
func (a *api) Of(namespace string) []*kube.Entry { return a.catalog().Of(namespace) }

// Excess implements [reader].
func (a *api) Excess(name types.NamespacedName) string { return a.catalog().Excess(name) }

// Content implements [reader].
func (a *api) Content(_ context.Context, e *kube.Entry) ([]byte, error) {
	return kube.TemplateText(a.objects[e.Key()])
}

// apply stores a status as the API server does.
func (a *api) apply(_ context.Context, status *unstructured.Unstructured) error {
	o, ok := a.objects[client.ObjectKeyFromObject(status)]
	if !ok || a.gone || status.GetUID() != o.GetUID() {
		return apierrors.NewNotFound(schema.GroupResource{}, status.GetName())
	}
	text, err := json.Marshal(status.Object["status"])
	if err != nil {
		return err
	}
	lines, err := yaml.JSONToYAML(text)
	if err != nil {
		return err
	}
	fmt.Fprintf(&a.journal, "status of %s:\n%s", client.ObjectKeyFromObject(status), indented(string(lines)))
	o.Object["status"] = runtime.DeepCopyJSONValue(status.Object["status"])
	return nil
}

func indented(text string) string {
	return "  " + strings.TrimSuffix(strings.ReplaceAll(text, "\n", "\n  "), "  ")
}

func (a *api) event(_ *unstructured.Unstructured, kind, reason, message string) {
	fmt.Fprintf(&a.journal, "event: %s %s: %s\n", kind, reason, message)
}

// put creates or changes a template. Its pod gets this value.
func (a *api) put(namespace, value string) {
	key := types.NamespacedName{Namespace: namespace, Name: "agent"}
	o := newObject(v1alpha1.ClusterKind)
	if namespace != "" {
		o = newObject(v1alpha1.NamespacedKind)
	}
	if old := a.objects[key]; old != nil {
		o = old
	}
	o.SetNamespace(namespace)
	o.SetName("agent")
	o.SetUID("1")
	o.SetGeneration(o.GetGeneration() + 1)
	o.Object["spec"] = map[string]any{"pod": map[string]any{"metadata": map[string]any{"annotations": map[string]any{"example.com/agent": value}}}}
	a.objects[key] = o
}

func newAPI() (*api, *reconciler) {
	a := &api{objects: map[types.NamespacedName]*unstructured.Unstructured{}, counts: map[types.NamespacedName]v1alpha1.PodCounts{}}
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	return a, &reconciler{
		read: a, apply: a.apply, event: a.event, known: map[types.NamespacedName]known{},
		missing:    func(types.NamespacedName) *int64 { return nil },
		namespaces: func(*unstructured.Unstructured) []string { return []string{"shop"} },
		count: func(template types.NamespacedName, _ string, _ ...string) v1alpha1.PodCounts {
			return a.counts[template]
		},
		now: func() metav1.Time {
			clock = clock.Add(time.Hour)
			return metav1.NewTime(clock)
		},
	}
}

// TestReconcile checks what the controller writes in the life of templates, in testdata/reconcile.txt.
// Each step is reconciled twice: the second time, there is nothing to write.
func TestReconcile(t *testing.T) {
	a, r := newAPI()
	of := types.NamespacedName{Name: "agent"}
	ofTeam := types.NamespacedName{Namespace: "team-a", Name: "agent"}
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"a template that is invalid from the start", func() { a.put("", "${nonsense}") }},
		{"it is fixed", func() { a.put("", "one") }},
		{"a template of a namespace with the same name", func() { a.put("team-a", "two") }},
		{"pods have the first one", func() {
			a.counts[of], a.counts[ofTeam] = v1alpha1.PodCounts{Current: 2, Outdated: 1}, v1alpha1.PodCounts{Outdated: 3}
		}},
		{"it is changed", func() { a.put("", "three") }},
		{"it is broken", func() { a.put("", "${nonsense}") }},
		{"another controller adds a condition", func() {
			conditions := a.objects[of].Object["status"].(map[string]any)["conditions"].([]any)
			a.objects[of].Object["status"].(map[string]any)["conditions"] = append(conditions, map[string]any{"type": "Seen", "status": "True", "reason": "Seen", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"})
		}},
		{"it is fixed again, and the condition is not the controller's", func() { a.put("", "one") }},
		{"it is deleted", func() { delete(a.objects, of) }},
		{"it is created again", func() { a.put("", "one") }},
		{"it is deleted while its status is written", func() { a.put("", "two"); a.gone = true }},
	} {
		step.do()
		fmt.Fprintf(&a.journal, "# %s\n", step.what)
		for range 2 {
			for _, key := range []types.NamespacedName{of, ofTeam} {
				if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
					t.Errorf("%s: %v", step.what, err)
				}
			}
		}
	}
	if n := len(r.known); n != 2 {
		t.Errorf("%d contents are remembered, want 2", n)
	}
	golden.File(t, "testdata/reconcile.txt", []byte(a.journal.String()))
}

// TestRestart checks that a controller that starts writes nothing about templates with a status.
func TestRestart(t *testing.T) {
	a, r := newAPI()
	for _, value := range []string{"one", "${nonsense}"} {
		a.put("", value)
		for range 2 {
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "agent"}}); err != nil {
				t.Fatal(err)
			}
			a.journal.Reset()
			r.known = map[types.NamespacedName]known{}
		}
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "agent"}}); err != nil || a.journal.Len() > 0 {
			t.Errorf("it writes %s, %v", a.journal.String(), err)
		}
	}
}

// TestTooMany checks that the youngest of too many templates of a namespace is not used, until one of
// them is deleted, and that it is requested then.
func TestTooMany(t *testing.T) {
	a, r := newAPI()
	a.put("team-a", "one")
	key := types.NamespacedName{Namespace: "team-a", Name: "agent"}
	a.objects[key].SetCreationTimestamp(metav1.NewTime(time.Unix(60, 0)))
	for i := range kube.NewLimits().Count {
		older := a.objects[key].DeepCopy()
		older.SetName(fmt.Sprint("older-", i))
		older.SetCreationTimestamp(metav1.NewTime(time.Unix(int64(i), 0)))
		a.objects[client.ObjectKeyFromObject(older)] = older
	}
	all := followTemplates(nil, kube.NewLimits())
	for _, o := range a.objects {
		all.Put(entryOf(all.Catalog, o))
	}
	gone := types.NamespacedName{Namespace: "team-a", Name: "older-7"}
	for _, want := range []string{v1alpha1.ReasonTooMany, v1alpha1.ReasonValid} {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		e, _ := a.Get(key)
		if status := statusOf(e); readyCondition(status).Reason != want {
			t.Errorf("the status is %+v, want %s", status, want)
		}
		if has := strings.Contains(a.journal.String(), "event:"); has != (want == v1alpha1.ReasonValid) {
			t.Errorf("the journal is %s", &a.journal)
		}
		delete(a.objects, gone)
	}
	if n := len(r.known); n != 1 {
		t.Errorf("%d contents are remembered, want 1", n)
	}
	queue := &requested{}
	all.queues = append(all.queues, queue)
	all.Drop(gone)
	if want := []types.NamespacedName{gone, key}; !slices.Equal(queue.names, want) {
		t.Errorf("requested are %v, want %v", queue.names, want)
	}
}

// requested is a queue that records requests.
type requested struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	names []types.NamespacedName
}

// Add implements [workqueue.TypedInterface].
func (q *requested) Add(r reconcile.Request) { q.names = append(q.names, r.NamespacedName) }

// TestRequested checks that a change of a template of the cluster is one for those with its name.
func TestRequested(t *testing.T) {
	a, _ := newAPI()
	a.put("", "one")
	a.put("team-a", "one")
	other := a.objects[types.NamespacedName{Name: "agent"}].DeepCopy()
	other.SetName("other")
	all := followTemplates(nil, kube.NewLimits())
	all.Put(entryOf(all.Catalog, a.objects[types.NamespacedName{Namespace: "team-a", Name: "agent"}]))
	all.Put(entryOf(all.Catalog, other))
	queue := &requested{}
	all.queues = append(all.queues, queue)
	all.Put(entryOf(all.Catalog, a.objects[types.NamespacedName{Name: "agent"}]))
	names := slices.Compact(slices.SortedFunc(slices.Values(queue.names), kube.CompareNames))
	if got, want := fmt.Sprint(names), "[/agent team-a/agent]"; got != want {
		t.Errorf("requested %s, want %s", got, want)
	}
}

// TestShortened checks the limits of a message about many and long problems.
func TestShortened(t *testing.T) {
	var problems problem.Problems
	for i := range 12 {
		problems = append(problems, problem.Problem{File: "clustersidecartemplate/agent", Path: fmt.Sprintf("spec.params[%d]", i), Message: "is wrong"})
	}
	if got, want := invalidMessage("", listProblems(problems)), "; spec.params[9]: is wrong; and 2 more"; !strings.HasSuffix(got, want) || strings.Contains(got, "clustersidecartemplate") {
		t.Errorf("the message is %q, want the end %q", got, want)
	}
	problems[0].Message = strings.Repeat("ä", mostText)
	if got := invalidMessage("", listProblems(problems)); len(got) > mostText || len(got) < mostText-1 || !strings.HasSuffix(got, "ä ...") {
		t.Errorf("the message has %d bytes: %s", len(got), got)
	}
}

// TestReconcileSettles checks that the status of a new content is written only when replicas use it.
func TestReconcileSettles(t *testing.T) {
	a, r := newAPI()
	clock := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	r.now = func() metav1.Time { return metav1.NewTime(clock) }
	of := types.NamespacedName{Name: "agent"}
	for _, value := range []string{"one", "two"} {
		a.put("", value)
		a.journal.Reset()
		for _, passed := range []time.Duration{0, settleTime / 4, settleTime * 3 / 4} {
			if a.journal.Len() > 0 {
				t.Errorf("after less than %v: %s", settleTime, a.journal.String())
			}
			clock = clock.Add(passed)
			result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: of})
			if err != nil || passed < settleTime/2 && result.RequeueAfter != settleTime-passed {
				t.Errorf("%v later it returns %v, %v", passed, result, err)
			}
		}
		if !strings.Contains(a.journal.String(), "status: \"True\"") {
			t.Errorf("after %v: %q", settleTime, a.journal.String())
		}
	}
}
