// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/pillion-dev/pillion/cmd/pillion/check"
	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

// TestServeMetrics checks that clients get native histograms if they request protobuf, and
// OpenMetrics if they request that. And pillion version finds what it needs in the text.
func TestServeMetrics(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates")
	s.mutate(t)
	scrape := func(accept string) map[string]*dto.MetricFamily {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.admin+"/metrics", nil)
		must(t, err)
		r.Header.Set("Accept", accept)
		response, err := s.client.Do(r)
		must(t, err)
		defer response.Body.Close()
		if kind, _, _ := strings.Cut(accept, ";"); !strings.HasPrefix(response.Header.Get("Content-Type"), kind) {
			t.Errorf("%s for %s", response.Header.Get("Content-Type"), accept)
		}
		all := map[string]*dto.MetricFamily{}
		decoder := expfmt.NewDecoder(response.Body, expfmt.ResponseFormat(response.Header))
		for family := new(dto.MetricFamily); decoder.Decode(family) == nil; family = new(dto.MetricFamily) {
			all[family.GetName()] = family
		}
		return all
	}
	scrape("application/openmetrics-text;version=1.0.0")
	all := scrape("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	native := 0
	for _, m := range all["pillion_webhook_duration_seconds"].GetMetric() {
		native += len(m.GetHistogram().GetPositiveSpan())
		if first := m.GetHistogram().GetBucket()[0].GetUpperBound(); first != 50e-6 {
			t.Errorf("the first bucket ends at %v", first)
		}
	}
	if native == 0 {
		t.Error("no native histogram")
	}
	if n := len(all["pillion_build_info"].GetMetric()); n != 1 {
		t.Errorf("%d builds", n)
	}
	_, text := s.get(t, s.admin+"/metrics")
	if got, own := check.ReadServerVersion([]byte(text)), cli.BuildVersion(); got.Version != own.Version || len(got.Templates) != 12 {
		t.Errorf("the metrics name the version %q and the templates %q", got.Version, got.Templates)
	}
	seconds := func(name string) float64 { return all[name].GetMetric()[0].GetGauge().GetValue() }
	from, until := seconds("pillion_certificate_not_before_timestamp_seconds"), seconds("pillion_certificate_expires_timestamp_seconds")
	if now := float64(time.Now().Unix()); from == 0 || from > now || until < now {
		t.Errorf("the certificate is valid from %v to %v", from, until)
	}
	if since := all["pillion_templates_loaded_timestamp_seconds"].GetMetric()[0].GetGauge().GetValue(); time.Since(time.Unix(int64(since), 0)) > patience {
		t.Errorf("templates are in use since %v", since)
	}
}

// TestMetricsPage checks that the page lists every metric and no other, wherever the code registers it, and that a test uses each
// one.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(contents(t, "../../manifests/docs/metrics.md"), "\n## Metrics\n")
	section, _, _ = strings.Cut(section, "\n## ")
	names := func(pattern, text string) map[string]bool {
		all := map[string]bool{}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all[m[1]] = true
		}
		return all
	}
	said, made := names("`(pillion_\\w+)`", section), map[string]bool{}
	eachGoFile(t, func(path, text string) {
		if !strings.HasSuffix(path, "_test.go") && strings.Contains(text, `"github.com/prometheus/client_golang/`) {
			maps.Copy(made, names(`"(pillion_\w+)"`, text))
		}
	})
	if len(made) < 20 {
		t.Errorf("only %d metrics are found in the code", len(made))
	}
	tested := testedMetrics(t)
	for name := range made {
		if !said[name] {
			t.Errorf("manifests/docs/metrics.md does not list %s", name)
		}
		if !tested[name] {
			t.Errorf("no test mentions %s", name)
		}
	}
	for name := range said {
		if !made[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
}

// testedMetrics are the metrics that tests mention.
func testedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	eachGoFile(t, func(path, text string) {
		if strings.HasSuffix(path, "_test.go") {
			for _, name := range regexp.MustCompile(`pillion_\w+`).FindAllString(text, -1) {
				all[name] = true
			}
		}
	})
	return all
}

// eachGoFile calls visit for all files of Go in the repository.
func eachGoFile(t *testing.T, visit func(path, text string)) {
	t.Helper()
	must(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		visit(path, string(text))
		return err
	}))
}
