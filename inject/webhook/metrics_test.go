// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
)

// counted returns the counters that are not 0, as /metrics writes them.
func counted(t *testing.T, registry prometheus.Gatherer) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if n := m.GetCounter().GetValue(); n != 0 {
				lines = append(lines, fmt.Sprintf("%s{%s} %v\n", f.GetName(), strings.Join(labels, ","), n))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// TestMetricsFollowTheConventions checks the metrics with Prometheus's linter.
func TestMetricsFollowTheConventions(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	if problems, err := testutil.GatherAndLint(e.registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// TestSeriesOfTemplates checks that a series exists before its first event, because otherwise an
// increase() misses that event. Series of removed templates must disappear.
func TestSeriesOfTemplates(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	series := func(template string) int {
		families, err := e.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if l.GetName() == "template" && l.GetValue() == template {
						n++
					}
				}
			}
		}
		return n
	}
	// There are 11 series of findings.
	if got, want := series("log-agent"), len(inject.DecisionCodes())+11; got != want {
		t.Errorf("%d series, want %d", got, want)
	}
	ask := func() {
		e.answer(post(t, webhook.PathMutate, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
	}
	ask()
	e.Injector = load(t, sidecar, strings.ReplaceAll(sidecar, "log-agent", "proxy"))
	e.Metrics.Use(e.Injector().Set())
	ask()
	if got := counted(t, e.registry); !strings.Contains(got, `{code="injected",template="log-agent"} 2`) || !strings.Contains(got, `{code="injected",template="proxy"} 1`) {
		t.Error("after a template was added:", got)
	}
	before := e.Injector
	e.Injector = load(t, strings.ReplaceAll(sidecar, "log-agent", "proxy"))
	e.Metrics.Use(e.Injector().Set())
	if n := series("log-agent"); n != 0 {
		t.Errorf("%d series of a template that is gone", n)
	}
	e.Injector = before // a request that began before
	ask()
	if n := series("log-agent"); n != 0 {
		t.Errorf("%d series of a template that is gone come back", n)
	}
}

// TestDoubtIsNoFinding checks a pod about which replicas disagree, so that the API server calls
// again. Each call is a request, but only the findings of the last call count. The log has all
// findings.
func TestDoubtIsNoFinding(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, leaky))
	pod := `{"metadata":{"annotations":{"log-agent.pillion.dev/injected":"ffffffffffff"}},"spec":{"containers":[{"name":"web","image":"x"}]}}`
	path, calls := webhook.PathValidate+"?timeout=5s", 0
	for path != "" {
		w := e.answer(post(t, path, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
		calls++
		path = ""
		if to := w.Header().Get("Location"); w.Code == http.StatusTemporaryRedirect {
			path = webhook.PathValidate + to
		} else if !strings.Contains(w.Body.String(), `"allowed":false`) || w.Header().Get("Connection") != "close" {
			t.Errorf("the last answer is %v %s", w.Header(), w.Body)
		}
	}
	want := `pillion_findings_total{code="not_injected",template="log-agent",webhook="validate"} 1
pillion_webhook_requests_total{decision="denied",status="200",webhook="validate"} 1
pillion_webhook_requests_total{decision="doubted",status="307",webhook="validate"} 4
`
	if got := counted(t, e.registry); got != want || calls != 5 {
		t.Errorf("%d calls; got\n%s\nwant\n%s", calls, got, want)
	}
	if !strings.Contains(e.log.String(), `"decision":"doubted","template":"log-agent","reason":"not_injected"`) {
		t.Errorf("log %s", &e.log)
	}
}

// BenchmarkMetrics measures metrics on the path of a request. They allocate nothing and take almost
// no time.
func BenchmarkMetrics(b *testing.B) {
	for _, n := range []int{1, 20} {
		b.Run(fmt.Sprintf("templates=%d", n), func(b *testing.B) {
			e := newEdge(load(b, sampleTemplates(n, false)...))
			observe := webhook.Observed(b, e.Handler, samplePod(nil))
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					observe()
				}
			})
		})
	}
}

// TestShedCounts checks that the decisions of an answer that is not sent are not counted.
func TestShedCounts(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, strings.Replace(sidecar, `image: "registry.example/log-agent:1"`, `image: "registry.example/log-agent:1", args: ["`+strings.Repeat("x", 60_000)+`"]`, 1)))
	e.Log = discard()
	e.Limiter.SetMemory(10 << 10)
	w := e.answer(post(t, webhook.PathMutate, reviewOf(t, "v1", "CREATE", "shop", []byte(`{"metadata":{"name":"x"},"spec":{"containers":[{"name":"a","image":"b"}]}}`))))
	if all := counted(t, e.registry); w.Code != http.StatusTooManyRequests || strings.Contains(all, "pillion_decisions_total") {
		t.Errorf("status %d, counted:\n%s", w.Code, all)
	}
}
