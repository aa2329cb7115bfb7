// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pillion-dev/pillion/cmd/pillion/clitest"
	"github.com/pillion-dev/pillion/inject"
)

// TestSupersededSetsCount checks that a pod that a superseded set injected is correct until the new
// set has settled, and not longer.
func TestSupersededSetsCount(t *testing.T) {
	folder := t.TempDir()
	use := func(image string) {
		clitest.Write(t, filepath.Join(folder, "agent.yaml"), fmt.Sprintf(`apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: agent}
spec:
  required: true
  pod: {spec: {containers: [{name: agent, image: %q}]}}
  validate: {protect: [image]}
`, image))
	}
	use("agent:1")
	e, err := newTemplateReloader(sources{paths: []string{folder}}, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	clitest.Must(t, err)
	var settled []func()
	e.later = func(d time.Duration, f func()) {
		if d != settleTime {
			t.Errorf("settles after %s", d)
		}
		settled = append(settled, f)
	}
	pod := func(image string) inject.Request {
		return inject.Request{Operation: "CREATE", Object: fmt.Appendf(nil,
			`{"metadata":{"annotations":{"agent.pillion.dev/injected":"x"}},"spec":{"containers":[{"name":"web","image":"web"},{"name":"agent","image":%q}]}}`, image)}
	}
	judged := func(image string) string {
		_, judge := e.injectorAndJudge("")
		v, err := judge.Judge(pod(image))
		clitest.Must(t, err)
		if v.Doubt {
			return "doubted"
		}
		return v.Word()
	}
	for i := range 10 {
		use(fmt.Sprint("agent:", i+2))
		e.reloadTemplates()
		if got := judged(fmt.Sprint("agent:", i+2)); got != "allowed" {
			t.Errorf("the set in use: %s", got)
		}
	}
	// In use is 11; 10 to 4 make it eight.
	if a, b := judged("agent:4"), judged("agent:3"); a != "allowed" || b != "doubted" {
		t.Errorf("seven sets ago: %s, eight: %s", a, b)
	}
	settled[5]() // of the load of 7, which superseded 6
	if a, b := judged("agent:7"), judged("agent:6"); a != "allowed" || b != "doubted" {
		t.Errorf("after the load of 7 has settled: 7 is %s, 6 %s", a, b)
	}
	settled[9]()
	if a, b := judged("agent:11"), judged("agent:10"); a != "allowed" || b != "doubted" {
		t.Errorf("after all have settled: 11 is %s, 10 %s", a, b)
	}
}

// TestSeriesOfSuperseded checks that a denial by a template that was just renamed is counted.
func TestSeriesOfSuperseded(t *testing.T) {
	t.Parallel()
	file, registry := filepath.Join(t.TempDir(), "t.yaml"), prometheus.NewRegistry()
	clitest.Write(t, file, clitest.AgentTemplate)
	e, err := newTemplateReloader(sources{paths: []string{file}}, nil, slog.New(slog.DiscardHandler), registry)
	clitest.Must(t, err)
	var settle func()
	e.later = func(_ time.Duration, f func()) { settle = f }
	want := func(when string, some bool) {
		t.Helper()
		families, err := registry.Gather()
		clitest.Must(t, err)
		if got := strings.Contains(fmt.Sprint(families), `value:"agent"`); got != some {
			t.Errorf("%s there are series of the old name: %t", when, got)
		}
	}
	clitest.Write(t, file, strings.Replace(clitest.AgentTemplate, "{name: agent}", "{name: renamed}", 1))
	e.reloadTemplates()
	want("until the set has settled", true)
	settle()
	want("after that", false)
}
