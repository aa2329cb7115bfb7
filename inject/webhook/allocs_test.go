// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"log/slog"
	"os"
	"strings"
	"testing"
)

// TestAllocations is not parallel, because it counts the allocations of the process. More allocations than the
// limit are not wrong, but have a cost. The commit that raises the limit explains the benefit.
func TestAllocations(t *testing.T) {
	for _, c := range []struct {
		name       string
		templates  []string
		annotation string
		most       float64
	}{
		{"one sidecar", sampleTemplates(1, true), "a", 40},
		{"two templates with CEL, forEachContainer and parameters", features(t), "log-agent.pillion.dev/level", 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEdge(load(t, c.templates...))
			e.Log = slog.New(slog.DiscardHandler)
			again := again(t, e.Handler, sampleBody(samplePod(map[string]string{c.annotation: "debug"})))
			allocs := testing.AllocsPerRun(200, again)
			t.Logf("%.0f allocations", allocs)
			if !raceEnabled && allocs > c.most {
				t.Errorf("a request makes %.0f allocations, more than %.0f", allocs, c.most)
			}
		})
	}
}

// TestUnreadParts checks that parts of a pod that no template reads or adds to cost no allocations.
func TestUnreadParts(t *testing.T) {
	e := newEdge(load(t, sampleTemplates(1, false)...))
	e.Log = slog.New(slog.DiscardHandler)
	count := func(pod string) float64 {
		return testing.AllocsPerRun(200, again(t, e.Handler, sampleBody([]byte(pod))))
	}
	pod := string(samplePod(nil))
	few := count(pod)
	many := count(strings.Replace(pod, `"env":[`, `"env":[`+strings.Repeat(`{"name":"MORE","value":"x"},`, 200), 1))
	if !raceEnabled && many > few {
		t.Errorf("%.0f allocations, and %.0f with 200 more variables", few, many)
	}
}

// features are the templates of the benchmark.
func features(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, name := range []string{"log-agent", "telemetry"} {
		text, err := os.ReadFile("../../e2e/bench/heavy/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}
