// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/testing/size"
	"github.com/pillion-dev/pillion/inject/workloads"
	"github.com/pillion-dev/pillion/templates"
	"github.com/pillion-dev/pillion/templates/jsontree"
)

// TestOwnerSelector checks with random labels and selectors that no template takes the pods of a workload out of its selector,
// that such a template is left out for this reason, and that the selector changes nothing if the injected pod is in it anyway.
func TestOwnerSelector(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	keys := []string{"app", "example.com/a", "example.com/b", "t0.pillion.dev/c"}
	someLabels := func(of []string) map[string]string {
		some := map[string]string{}
		for _, key := range of {
			if rnd.IntN(2) == 0 {
				some[key] = fmt.Sprint(rnd.IntN(2) + 1)
			}
		}
		return some
	}
	var pool [2][]*templates.Template
	for i := range pool {
		for n := range size.Choose(t, 8, 100) {
			pool[i] = append(pool[i], labeling(t, fmt.Sprint("t", i), someLabels(keys[1:4-i]), n))
		}
	}
	conflicts, left := 0, 0
	for range size.Choose(t, 500, 20_000) {
		selector := metav1.LabelSelector{}
		own := someLabels(keys[:2])
		for _, key := range keys {
			if own[key] != "" && rnd.IntN(4) > 0 {
				metav1.AddLabelToSelector(&selector, key, own[key])
				continue
			}
			r := metav1.LabelSelectorRequirement{Key: key, Operator: []metav1.LabelSelectorOperator{"NotIn", "DoesNotExist", "In", "Exists"}[min(rnd.IntN(8), rnd.IntN(4))]}
			if r.Operator == "In" || r.Operator == "NotIn" {
				r.Values = []string{"1", "2"}[:1+rnd.IntN(2)]
			}
			if rnd.IntN(3) == 0 {
				selector.MatchExpressions = append(selector.MatchExpressions, r)
			}
		}
		injector := inject.New(templates.NewSet([]*templates.Template{pool[0][rnd.IntN(len(pool[0]))], pool[1][rnd.IntN(len(pool[1]))]}))
		request := inject.Request{Operation: "CREATE", OptedIn: true, Object: jsonText(t, map[string]any{
			"metadata": map[string]any{"labels": own}, "spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "i"}}},
		})}
		without, err := injector.Inject(request)
		if err != nil {
			t.Fatal(err)
		}
		object, err := jsontree.Parse(jsonText(t, map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"selector": selector}}))
		if err != nil {
			t.Fatal(err)
		}
		request.Owner = workloads.OwnerOf("Deployment", object)
		with, _ := checkInvariants(t, injector, request)
		finds, err := metav1.LabelSelectorAsSelector(&selector)
		if err != nil {
			t.Fatal(err)
		}
		wasFound := finds.Matches(labels.Set(own))
		if wasFound && !finds.Matches(labelsOf(t, with)) {
			t.Fatalf("%s found %v, and does not find the injected pod with %v", finds, own, labelsOf(t, with))
		}
		if !wasFound {
			continue // a label may even bring it in
		}
		if finds.Matches(labelsOf(t, without)) {
			if got, want := with.Patch(), without.Patch(); !bytes.Equal(got, want) {
				t.Fatalf("%s finds the injected pod, and changes the result:\n%s\n%s", finds, got, want)
			}
			continue
		}
		left++
		if slices.ContainsFunc(with.Decisions, func(d inject.Decision) bool {
			return d.Code == inject.CodeConflict && strings.Contains(d.Message, "out of the selector of the Deployment ("+request.Owner.Selector+")")
		}) {
			conflicts++
		}
	}
	t.Logf("%d pods would leave the selector", left)
	if left == 0 || conflicts != left {
		t.Errorf("%d pods would leave the selector, and %d have such a conflict", left, conflicts)
	}
}

// labeling returns a template that adds labels and a container.
func labeling(t *testing.T, name string, add map[string]string, version int) *templates.Template {
	t.Helper()
	found, problems := templates.Parse(name, jsonText(t, map[string]any{
		"apiVersion": "pillion.dev/v1alpha1", "kind": "ClusterSidecarTemplate", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"default": true, "labelDomains": []any{"example.com"}, "pod": map[string]any{
			"metadata": map[string]any{"labels": add},
			"spec":     map[string]any{"initContainers": []any{map[string]any{"name": name, "image": fmt.Sprint("i:", version), "restartPolicy": "Always"}}},
		}},
	}))
	if len(problems) > 0 {
		t.Fatal(problems.Error())
	}
	return found[0]
}

func labelsOf(t *testing.T, r *inject.Result) labels.Set {
	t.Helper()
	var pod struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(r.InjectedJSON(), &pod); err != nil {
		t.Fatal(err)
	}
	return pod.Metadata.Labels
}

func jsonText(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
