// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// requesting returns a pod whose container requests that much memory, as JSON.
func requesting(t *testing.T, memory string) []byte {
	t.Helper()
	pod := corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "web", Image: "web", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}},
	}}}}
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestLedger checks how many pods of several workloads a quota leaves room for.
func TestLedger(t *testing.T) {
	t.Parallel()
	quota := &corev1.ResourceQuota{}
	quota.Name = "memory"
	quota.Status.Hard = corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("1Gi"), corev1.ResourcePods: resource.MustParse("10")}
	quota.Status.Used = corev1.ResourceList{corev1.ResourceRequestsMemory: resource.MustParse("900Mi"), corev1.ResourcePods: resource.MustParse("10")}
	limits := Limits{Quotas: []*corev1.ResourceQuota{quota}}
	e, err := NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	var ledger Ledger
	for _, c := range []struct {
		from, to string
		n, want  int
		why      string // the quota has 124Mi left
	}{
		{from: "10Mi", to: "10Mi", n: 5},
		{from: "10Mi", to: "30Mi", n: 6},
		{from: "10Mi", to: "20Mi", n: 1, want: 1, why: "each new pod needs 10Mi more of requests.memory, but the quota memory has 4Mi of 1Gi left"},
		{from: "30Mi", to: "10Mi", n: 1},
		{from: "10Mi", to: "20Mi", n: 3, want: 1, why: "each new pod needs 10Mi more of requests.memory, but the quota memory has 24Mi of 1Gi left"},
	} {
		got, by, why := ledger.Take(e.Replace(nil, limits, requesting(t, c.from), requesting(t, c.to)), c.n)
		if got != c.want || why != c.why || (by != "") != (c.want > 0) {
			t.Errorf("%d pods, %s to %s: %d rejected by %q: %s; want %d: %s", c.n, c.from, c.to, got, by, why, c.want, c.why)
		}
	}
}

// TestReplace checks that limits that reject the old pod too do not count.
func TestReplace(t *testing.T) {
	t.Parallel()
	e, err := NewEvaluator()
	if err != nil {
		t.Fatal(err)
	}
	item := corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("20Mi")}}
	limits := Limits{Ranges: []*corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}}}
	limits.Ranges[0].Name = "least"
	const why = "the pod requests 10Mi memory, but the LimitRange least requires at least 20Mi"
	if r := e.Replace(nil, limits, requesting(t, "30Mi"), requesting(t, "10Mi")); r.By != "LimitRange least" || r.Why != why {
		t.Errorf("by %q: %s", r.By, r.Why)
	}
	if r := e.Replace(nil, limits, requesting(t, "15Mi"), requesting(t, "10Mi")); r.By != "" {
		t.Errorf("by %q: %s", r.By, r.Why)
	}
}
