// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// alert is a rule of the component monitoring.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func loadAlerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile("components/monitoring/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rule struct {
		Spec struct{ Groups []struct{ Rules []alert } }
	}
	if err := yaml.Unmarshal(text, &rule); err != nil {
		t.Fatal(err)
	}
	for _, g := range rule.Spec.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// TestAlerts checks for each alert which metrics it reads, with which values of their labels, when it fires and for how
// long that must last. The tests in e2e/shipped evaluate the expressions with Prometheus.
func TestAlerts(t *testing.T) {
	const ours = `name=~".+[.](mutate|validate)[.]pillion[.]dev"`
	want := map[string]struct {
		severity, lasts string
		metrics         []string // in the order of their names
		matchers        []string // all of them
		numbers         []string // each number of the expression, in order: windows and thresholds
	}{
		"PillionFailingOpen": {
			"warning", "",
			[]string{"apiserver_admission_webhook_fail_open_count", "up"},
			[]string{ours},
			[]string{"[10m]", "> 0", "offset 10m", "offset 10m", "== 1", "> 0"},
		},
		"PillionNotAnswering": {
			"critical", "",
			[]string{"apiserver_admission_webhook_rejection_count", "up"},
			[]string{`error_type!="no_error"`, ours},
			[]string{"[10m]", "> 0", "offset 10m", "offset 10m", "== 1", "> 0"},
		},
		"PillionTooFewReplicas": {
			"warning", "10m",
			[]string{"kube_deployment_status_replicas_ready", "up"},
			[]string{`deployment="pillion"`, `job="pillion-metrics"`, `namespace="pillion-system"`},
			[]string{"== 1", "< 2"},
		},
		"PillionDown": {
			"critical", "2m",
			[]string{"kube_deployment_status_replicas_ready", "up"},
			[]string{`deployment="pillion"`, `job="pillion-metrics"`, `namespace="pillion-system"`},
			[]string{"== 1", "< 1"},
		},
		"PillionControllerDown": {
			"warning", "10m",
			[]string{"kube_deployment_status_replicas_ready", "leader_election_master_status"},
			[]string{`deployment="pillion-controller"`, `namespace="pillion-system"`},
			[]string{"< 1", "< 1"},
		},
		"PillionPodsLackSidecars": {
			"warning", "", []string{"pillion_findings_total"}, []string{`code=~"missing|not_injected|conflict|render_failed|unknown_service_account"`, `webhook="validate"`}, []string{"[10m]", "> 0"},
		},
		"PillionDenying": { // more than a few pods, and more than a tenth of them
			"warning", "5m",
			[]string{"pillion_webhook_requests_total"},
			[]string{`decision="denied"`, `decision=~"allowed|warned|denied"`, `webhook="validate"`},
			[]string{"[10m]", "> 5", "[10m]", "> 0.1", "[10m]"},
		},
		"PillionTemplatesInvalid": {"warning", "5m", []string{"pillion_template_problems"}, nil, []string{"> 0"}},
		"PillionReplicasDisagree": {"warning", "15m", []string{"pillion_templates"}, nil, []string{"> 1"}},
		"PillionRolloutStopped":   {"warning", "", []string{"pillion_controller_rollouts"}, []string{`state=~"stopped|undoing|undone"`}, []string{"> 0"}},
		"PillionConfigInvalid":    {"warning", "5m", []string{"pillion_config_problems"}, nil, []string{"> 0"}},
		"PillionShedding":         {"warning", "5m", []string{"pillion_webhook_requests_total"}, []string{`decision="shed"`}, []string{"[5m]", "> 0"}},
		"PillionPatchWithheld":    {"warning", "", []string{"pillion_webhook_patches_withheld_total"}, nil, []string{"[10m]", "> 0"}},
		"PillionPanicking":        {"warning", "", []string{"pillion_webhook_panics_total"}, nil, []string{"[10m]", "> 0"}},
		"PillionCertificateExpiring": { // 14 days, and a fifth of the lifetime
			"critical", "10m",
			[]string{"pillion_certificate_expires_timestamp_seconds", "pillion_certificate_not_before_timestamp_seconds"},
			nil,
			[]string{"< 14 * 86400", "5 *", "<"},
		},
		"PillionCertificateNotTrusted": {"critical", "5m", []string{"pillion_certificate_mismatched_webhooks"}, nil, []string{"> 0"}},
	}
	page, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics, matchers := regexp.MustCompile(`\b(?:pillion|apiserver|kube|leader)_\w+|\bup\b`), regexp.MustCompile(`\w+(?:=~|!=|!~|=)"[^"]*"`)
	numbers := regexp.MustCompile(`\[\d+m\]|offset \d+m|\d+ \*|[<>=]=? [\d.]+(?: \* \d+)?|[<>]`)
	for _, a := range loadAlerts(t) {
		w, ok := want[a.Alert]
		delete(want, a.Alert)
		if !ok || a.Labels["severity"] != w.severity || a.For != w.lasts || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has the severity %q and is for %q, want %q and %q", a.Alert, a.Labels["severity"], a.For, w.severity, w.lasts)
		}
		expression := matchers.ReplaceAllString(a.Expr, "")
		for _, c := range []struct {
			what      string
			got, want []string
		}{
			{"metrics", sortedSet(metrics.FindAllString(expression, -1)), w.metrics},
			{"matchers", sortedSet(matchers.FindAllString(a.Expr, -1)), w.matchers},
			{"numbers", numbers.FindAllString(expression, -1), w.numbers},
		} {
			if !slices.Equal(c.got, c.want) {
				t.Errorf("%s: the %s are %q, want %q", a.Alert, c.what, c.got, c.want)
			}
		}
		for _, metric := range w.metrics {
			if strings.HasPrefix(metric, "pillion_") && !strings.Contains(string(page), "`"+metric+"`") {
				t.Errorf("%s: Pillion has no metric %s", a.Alert, metric)
			}
		}
	}
	for name := range want {
		t.Errorf("there is no alert %s", name)
	}
}

func sortedSet(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}
