// SPDX-License-Identifier: Apache-2.0

package shipped

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

// expressions are those of all alerts and panels, by what they are for.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range loadRules(t).Spec.Groups[0].Rules {
		all[r.Alert] = r.Expr.String()
	}
	text, err := os.ReadFile(filepath.Join(monitoring, "pillion.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Type    string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		if len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("the panel %q shows nothing", p.Title)
		}
		for i, target := range p.Targets {
			all[p.Title+" "+string(rune('A'+i))] = strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")
		}
	}
	return all
}

// TestExpressions checks that all metrics in alerts and panels exist in the code, and so does each
// value of a label in them.
func TestExpressions(t *testing.T) {
	words := literals(t)
	for what, expr := range expressions(t) {
		ast, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
		if err != nil {
			t.Errorf("%s: %s: %v", what, expr, err)
			continue
		}
		parser.Inspect(ast, func(node parser.Node, _ []parser.Node) error {
			selector, ok := node.(*parser.VectorSelector)
			if !ok || !strings.HasPrefix(selector.Name, "pillion_") {
				return nil
			}
			for _, m := range selector.LabelMatchers {
				if m.Name == model.MetricNameLabel {
					words.check(t, what, m.Name, strings.TrimSuffix(m.Value, "_bucket"))
					continue
				}
				for word := range strings.SplitSeq(m.Value, "|") {
					words.check(t, what, m.Name, word)
				}
			}
			return nil
		})
	}
}

// TestSeries checks that Pillion has the series that the cases of the alerts use.
func TestSeries(t *testing.T) {
	words := literals(t)
	var tests testFile
	decode(t, "alerts_test.yaml", &tests)
	for _, group := range tests.Tests {
		for _, s := range group.InputSeries {
			series, _, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(s.Series)
			if err != nil {
				t.Errorf("%s: %v", group.Name, err)
			} else if strings.HasPrefix(series.Get(model.MetricNameLabel), "pillion_") {
				series.Range(func(l labels.Label) { words.check(t, group.Name, l.Name, l.Value) })
			}
		}
	}
}

// check looks for a label's name and value, if they are for the program to choose.
func (w vocabulary) check(t *testing.T, what, name, value string) {
	t.Helper()
	switch name {
	case "pod": // Prometheus gives it
	case model.MetricNameLabel:
		if !w[value] {
			t.Errorf("%s: no such metric: %s", what, value)
		}
	case "template", "revision":
	default:
		if !w[name] || !w[value] {
			t.Errorf("%s: %s is never %q", what, name, value)
		}
	}
}

// TestHistograms checks that panels show both kinds of histograms. A Prometheus that stores native
// histograms stores the classic ones only if it is configured to.
func TestHistograms(t *testing.T) {
	const with = `name="pod.mutate.pillion.dev", webhook="mutate"`
	n := 0
	for what, expr := range expressions(t) {
		name := regexp.MustCompile(`\w+_bucket`).FindString(expr)
		if name == "" {
			continue
		}
		n++
		for kind, series := range map[string]string{
			"classic": fmt.Sprintf("  %[1]s{%[2]s, le=\"1\"} 0+8x10\n  %[1]s{%[2]s, le=\"+Inf\"} 0+8x10\n", name, with),
			"native":  fmt.Sprintf("  %s{%s} {{count:0}}+{{count:8 sum:4 buckets:[8]}}x10\n", strings.TrimSuffix(name, "_bucket"), with),
		} {
			suite, err := promqltest.NewLazyLoader("load 1m\n"+series, promqltest.LazyLoaderOpts{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = suite.Close() })
			at := time.Unix(600, 0)
			suite.WithSamplesTill(at, func(err error) {
				if err != nil {
					t.Fatal(err)
				}
				if got, err := rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage())(t.Context(), expr, at); err != nil || len(got) != 1 || !(got[0].F > 0) {
					t.Errorf("%s with a %s histogram: %v, %v", what, kind, got, err)
				}
			})
		}
	}
	if n == 0 {
		t.Error("nothing shows a histogram")
	}
}

type vocabulary map[string]bool

// literals are all short strings in the program's source.
func literals(t *testing.T) vocabulary {
	t.Helper()
	words := vocabulary{}
	literal := regexp.MustCompile(`"(\w+)"`)
	for _, dir := range []string{"cmd", "inject", "certs"} {
		err := filepath.WalkDir(filepath.Join("../..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range literal.FindAllSubmatch(text, -1) {
				words[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return words
}

// TestPodMonitor checks that Prometheus finds the controller's pods and their port.
func TestPodMonitor(t *testing.T) {
	var m monitoringv1.PodMonitor
	decode(t, filepath.Join(monitoring, "podmonitor.yaml"), &m)
	var d struct {
		Metadata struct{ Namespace string }
		Spec     struct {
			Template struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					Containers []struct{ Ports []struct{ Name string } }
				}
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(monitoring, "..", "..", "controller", "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	endpoint, pod := m.Spec.PodMetricsEndpoints[0], d.Spec.Template
	if m.Namespace != d.Metadata.Namespace || !maps.Equal(m.Spec.Selector.MatchLabels, pod.Metadata.Labels) || *endpoint.Port != pod.Spec.Containers[0].Ports[0].Name || endpoint.Path != "/metrics" {
		t.Errorf("the PodMonitor misses the controller: %+v, %+v", m.Spec, d)
	}
}

// TestServiceMonitor decodes the ServiceMonitor strictly, because the operator silently drops
// unknown fields.
func TestServiceMonitor(t *testing.T) {
	var m monitoringv1.ServiceMonitor
	decode(t, filepath.Join(monitoring, "servicemonitor.yaml"), &m)
	var service struct {
		APIVersion, Kind string
		Metadata         struct {
			Name, Namespace string
			Labels          map[string]string
		}
		Spec struct {
			ClusterIP                string
			PublishNotReadyAddresses bool
			Selector                 map[string]string
			Ports                    []struct {
				Name, TargetPort string
				Port             int
			}
		}
	}
	decode(t, filepath.Join(monitoring, "service.yaml"), &service)
	for key, value := range m.Spec.Selector.MatchLabels {
		if service.Metadata.Labels[key] != value {
			t.Errorf("the ServiceMonitor misses the Service, whose labels are %v", service.Metadata.Labels)
		}
	}
	if m.Namespace != service.Metadata.Namespace || m.Spec.Endpoints[0].Port != service.Spec.Ports[0].Name || !service.Spec.PublishNotReadyAddresses {
		t.Errorf("the ServiceMonitor misses replicas: %+v, %+v", m.Spec, service.Spec)
	}
	// The name of the job, by which alerts and dashboard know the replicas.
	for what, expr := range expressions(t) {
		if strings.Contains(expr, "job=") && !strings.Contains(expr, `job="`+service.Metadata.Name+`"`) {
			t.Errorf("%s knows another job: %s", what, expr)
		}
	}
}
