// SPDX-License-Identifier: Apache-2.0

package shipped

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

const monitoring = "../../manifests/components/monitoring"

// decode decodes strictly.
func decode(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func loadRules(t *testing.T) monitoringv1.PrometheusRule {
	t.Helper()
	var r monitoringv1.PrometheusRule
	decode(t, filepath.Join(monitoring, "prometheusrule.yaml"), &r)
	return r
}

// testFile is as much of the format of "promtool test rules" as is used here.
type testFile struct {
	RuleFiles          []string       `json:"rule_files"`
	EvaluationInterval model.Duration `json:"evaluation_interval"`
	Tests              []testGroup    `json:"tests"`
}

type testGroup struct {
	Name        string `json:"name"`
	InputSeries []struct {
		Series string `json:"series"`
		Values string `json:"values"`
	} `json:"input_series"`
	AlertRuleTest []struct {
		EvalTime  model.Duration `json:"eval_time"`
		Alertname string         `json:"alertname"`
		ExpAlerts []struct {
			ExpLabels      map[string]string `json:"exp_labels"`
			ExpAnnotations map[string]string `json:"exp_annotations"` // those that are of interest
		} `json:"exp_alerts"`
	} `json:"alert_rule_test"`
}

// TestAlerts checks that each alert fires in one case and does not in another.
func TestAlerts(t *testing.T) {
	rule := loadRules(t)
	spec, err := yaml.Marshal(rule.Spec)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, spec, 0o600); err != nil {
		t.Fatal(err)
	}
	var tests testFile
	decode(t, "alerts_test.yaml", &tests)
	fires, rests := map[string]bool{}, map[string]bool{}
	for _, group := range tests.Tests {
		for _, a := range group.AlertRuleTest {
			fires[a.Alertname] = fires[a.Alertname] || len(a.ExpAlerts) > 0
			rests[a.Alertname] = rests[a.Alertname] || len(a.ExpAlerts) == 0
		}
		t.Run(group.Name, func(t *testing.T) { group.run(t, time.Duration(tests.EvaluationInterval), file) })
	}
	for _, r := range rule.Spec.Groups[0].Rules {
		if !fires[r.Alert] || !rests[r.Alert] {
			t.Errorf("%s has no case where it fires, or none where it does not", r.Alert)
		}
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks a severity, a summary or a description", r.Alert)
		}
	}
}

// run evaluates the rules at every interval, as Prometheus would.
func (g *testGroup) run(t *testing.T, interval time.Duration, file string) {
	load := "load " + model.Duration(interval).String() + "\n"
	for _, s := range g.InputSeries {
		load += fmt.Sprintf("  %s %s\n", s.Series, s.Values)
	}
	suite, err := promqltest.NewLazyLoader(load, promqltest.LazyLoaderOpts{})
	if err != nil {
		t.Fatal(err)
	}
	defer suite.Close()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:  rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
		Appendable: suite.Storage(),
		Context:    t.Context(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     promslog.NewNopLogger(),
		Parser:     parser.NewParser(parser.Options{}),
	})
	groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, file)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for at := time.Duration(0); at <= g.last(); at += interval {
		suite.WithSamplesTill(time.Unix(0, 0).Add(at), func(err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, group := range groups {
				group.Eval(suite.Context(), time.Unix(0, 0).Add(at))
				g.check(t, at, group)
			}
		})
	}
}

func (g *testGroup) last() (last time.Duration) {
	for _, a := range g.AlertRuleTest {
		last = max(last, time.Duration(a.EvalTime))
	}
	return last
}

// check compares what fires now with what should.
func (g *testGroup) check(t *testing.T, at time.Duration, group *rules.Group) {
	t.Helper()
	firing, told := map[string][]string{}, map[string]labels.Labels{}
	for _, r := range group.AlertingRules() {
		if r.LastError() != nil {
			t.Errorf("%s: %v", r.Name(), r.LastError())
		}
		for _, a := range r.ActiveAlerts() {
			if a.State == rules.StateFiring {
				firing[r.Name()] = append(firing[r.Name()], a.Labels.String())
				told[a.Labels.String()] = a.Annotations
			}
			for name, text := range a.Annotations.Map() {
				if strings.Contains(text, "error expanding template") || strings.Contains(text, "<no value>") {
					t.Errorf("%s: %s is %q", r.Name(), name, text)
				}
			}
		}
	}
	for _, a := range g.AlertRuleTest {
		if time.Duration(a.EvalTime) != at {
			continue
		}
		var want []string
		for _, e := range a.ExpAlerts {
			alert := labels.NewBuilder(labels.FromMap(e.ExpLabels)).Set(labels.AlertName, a.Alertname).Labels().String()
			want = append(want, alert)
			for name, text := range e.ExpAnnotations {
				if got := told[alert].Get(name); got != text {
					t.Errorf("the %s of %s is %q, want %q", name, alert, got, text)
				}
			}
		}
		slices.Sort(want)
		slices.Sort(firing[a.Alertname])
		if got := firing[a.Alertname]; !slices.Equal(got, want) {
			t.Errorf("%s at %s fires for %q, want %q", a.Alertname, at, got, want)
		}
	}
}
