// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/pillion-dev/pillion/inject"
	"github.com/pillion-dev/pillion/inject/webhook"
)

// leaky has a way to fail for every kind of string that a pod may contain.
const leaky = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: log-agent}
spec:
  required: true
  params: [{name: level, default: info, enum: [debug, info]}]
  validate: {protect: [env, args, image]}
  pod:
    spec:
      initContainers:
      - {name: log-agent, image: "registry.example/log-agent:1", restartPolicy: Always, args: ["--level=${params.level}"], env: [{name: A, value: a}]}
`

const failing = `apiVersion: pillion.dev/v1alpha1
kind: ClusterSidecarTemplate
metadata: {name: failing}
spec:
  default: true
  pod: {spec: {containers: [{name: failing, image: "x:${pod.metadata.labels.secret.split('-')[9]}"}]}}
`

// TestLogHoldsNothingOfThePod checks that no log line at any level has content of a pod, because it
// may be secret.
func TestLogHoldsNothingOfThePod(t *testing.T) {
	t.Parallel()
	const mark = "HUNTER2"
	replace := strings.NewReplacer("SECRET", mark)
	pods := map[string]string{
		"parameter":  `{"metadata":{"annotations":{"log-agent.pillion.dev/level":"SECRET"}},"spec":{"containers":[{"name":"web","image":"x"}]}}`,
		"names":      `{"metadata":{"annotations":{"pillion.dev/templates":"+SECRET","log-agent.pillion.dev/colour":"SECRET"}},"spec":{"containers":[{"name":"web","image":"x"}]}}`,
		"label":      `{"metadata":{"labels":{"pillion.dev/inject":"SECRET"}},"spec":{"containers":[{"name":"web","image":"x"}]}}`,
		"expression": `{"metadata":{"labels":{"secret":"SECRET"}},"spec":{"containers":[{"name":"web","image":"x"}]}}`,
		"conflict":   `{"spec":{"containers":[{"name":"log-agent","image":"SECRET","env":[{"name":"A","value":"SECRET"}]}]}}`,
		"altered": `{"metadata":{"annotations":{"log-agent.pillion.dev/injected":"SECRET"}},"spec":{"initContainers":[{"name":"log-agent","image":"SECRET",` +
			`"args":["SECRET"],"env":[{"name":"A","value":"SECRET"}]}],"containers":[{"name":"web","image":"x"}]}}`,
		"no pod":  `"SECRET"`,
		"no JSON": `{"SECRET":SECRET}`,
		"twice":   `{"spec":{"SECRET":1,"SECRET":2}}`,
	}
	lines := map[string]int{}
	for name, text := range pods {
		for _, path := range []string{webhook.PathMutate, webhook.PathValidate, webhook.PathShadow} {
			e := newEdge(load(t, leaky, failing))
			e.Log = slog.New(slog.NewJSONHandler(&e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			body := bytes.Replace(reviewOf(t, "v1", "CREATE", "shop", []byte("{}")), []byte(`"object":{}`), []byte(`"object":`+replace.Replace(text)), 1)
			w := e.answer(post(t, path, body))
			if log := e.log.String(); strings.Contains(log, mark) {
				t.Errorf("%s to %s: the log says\n%s", name, path, log)
			}
			if strings.Contains(w.Body.String(), mark) {
				lines["told"]++ // the answer has it, so it could be in the log
			}
			lines[path] += strings.Count(e.log.String(), "\n")
		}
	}
	if lines["told"] < 8 || lines[webhook.PathMutate] < 12 || lines[webhook.PathValidate] < 12 {
		t.Errorf("these pods have nothing to tell: %v", lines)
	}
}

// TestLogIsNoFlood checks that a template that fails on every pod does not fill the disk with log
// lines.
func TestLogIsNoFlood(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, failing))
	body := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
	const requests = 1000
	for range requests {
		e.answer(post(t, webhook.PathMutate, body))
		e.answer(post(t, webhook.PathMutate, []byte("hello")))
	}
	e.Injector = func() *inject.Injector { panic("broken") }
	for range requests {
		e.answer(post(t, webhook.PathMutate, body))
	}
	log := e.log.String()
	for _, message := range []string{`"reason":"render_failed"`, `"status":400`, `"status":500`, `"msg":"panic"`} {
		// There are ten per second, and the duration is unknown.
		if n := strings.Count(log, message); n < 10 || n > requests/2 {
			t.Errorf("%d lines with %s", n, message)
		}
	}
	if !strings.Contains(counted(t, e.registry), fmt.Sprintf(`pillion_decisions_total{code="render_failed",template="failing"} %d`, requests)) {
		t.Error("not all are counted")
	}
}

// TestLogRoutine checks that usual events are logged only at level debug.
func TestLogRoutine(t *testing.T) {
	t.Parallel()
	e := newEdge(load(t, sidecar))
	body := reviewOf(t, "v1", "CREATE", "shop", []byte(pod))
	if w := e.answer(post(t, webhook.PathMutate, body)); w.Code != http.StatusOK || e.log.Len() > 0 {
		t.Errorf("%d, log %s", w.Code, &e.log)
	}
	e.Log = slog.New(slog.NewJSONHandler(&e.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e.answer(post(t, webhook.PathMutate, body))
	if want := `"webhook":"mutate","uid":"705ab4f5-6393-11e8-b7cc-42010a800002","namespace":"shop","pod":"web-0","owner":"","decision":"injected","status":200,`; !strings.Contains(e.log.String(), want) ||
		!strings.Contains(e.log.String(), `"decisions":{"log-agent":"injected"}`) {
		t.Errorf("log %s", &e.log)
	}
}

// TestLogSuperseded checks that each denial names the template, even if it is no longer in use
// because its set was just superseded, or was removed during the request.
func TestLogSuperseded(t *testing.T) {
	t.Parallel()
	required := strings.Replace(leaky, "required: true", "required: true\n  validate: {mode: Deny, protect: [image]}", 1)
	required = strings.Replace(required, "  validate: {protect: [env, args, image]}\n", "", 1)
	older, newer := load(t, required)(), load(t, strings.ReplaceAll(required, "log-agent", "renamed"))
	pod := fmt.Appendf(nil, `{"metadata":{"annotations":{"log-agent.pillion.dev/injected":%q}},"spec":{"initContainers":[{"name":"log-agent","image":"evil"}],`+
		`"containers":[{"name":"web","image":"x"}]}}`, older.Set().Templates[0].Revision)
	for _, kept := range []bool{true, false} {
		e := newEdge(newer)
		e.Judge = func() *inject.Judge { return inject.NewJudge(newer(), []*inject.Injector{older}, true) }
		if e.Metrics.Use(newer().Set()); kept {
			e.Metrics.Use(newer().Set(), older.Set())
		}
		e.answer(post(t, webhook.PathValidate, reviewOf(t, "v1", "CREATE", "shop", pod)))
		if log := e.log.String(); !strings.Contains(log, `"decision":"denied","template":"log-agent","reason":"altered","path":"/spec/initContainers/0/image"`) {
			t.Errorf("with its series: %t: the log says %s", kept, log)
		}
		counts := strings.Contains(counted(t, e.registry), `pillion_findings_total{code="altered",template="log-agent",webhook="validate"} `)
		if counts != kept {
			t.Errorf("with its series: %t; counted:\n%s", kept, counted(t, e.registry))
		}
	}
}

// TestLogLinesAreBounded checks that callers cannot make log lines of unlimited length.
func TestLogLinesAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	pod := `{"metadata":{"generateName":"` + long + `","annotations":{"log-agent.pillion.dev/` + long + `":"y"}},"spec":{"containers":[{"name":"log-agent","image":"x"}]}}`
	for _, path := range []string{webhook.PathMutate, webhook.PathValidate, webhook.PathShadow} {
		e := newEdge(load(t, leaky))
		e.answer(post(t, path, reviewOf(t, "v1", "CREATE", "shop", []byte(pod))))
		if n := e.log.Len(); n == 0 || n > 8<<10 {
			t.Errorf("%s: %d bytes of log", path, n)
		}
	}
}
