// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/inject/webhook"
)

// templateReview is the review of a new template of a namespace. Many users may send one.
func templateReview(spec string) []byte {
	return []byte(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","kind":{"group":"pillion.dev","version":"v1alpha1","kind":"SidecarTemplate"},` +
		`"resource":{"group":"pillion.dev","version":"v1alpha1","resource":"sidecartemplates"},"name":"a","namespace":"team-a","operation":"CREATE","userInfo":{"username":"u"},"object":` +
		`{"apiVersion":"pillion.dev/v1alpha1","kind":"SidecarTemplate","metadata":{"name":"a","namespace":"team-a"},"spec":` + spec + `}}}`)
}

// TestHostileTemplates bounds the CPU time and the memory that a template can take.
func TestHostileTemplates(t *testing.T) {
	mostTime, mostMemory := 4*time.Second, uint64(256<<20)
	if raceEnabled {
		mostTime, mostMemory = 30*time.Second, 384<<20
	}
	many := func(n int, format string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = strings.ReplaceAll(format, "%d", fmt.Sprint(i))
		}
		return strings.Join(all, ",")
	}
	container := func(fields string) string {
		return `{"pod":{"spec":{"containers":[{"name":"c","image":"i",` + fields + `}]}}}`
	}
	loops := `lists.range(30).map(a, lists.range(30).map(b, lists.range(30).map(c, string(a*b*c)).join(',')).join(',')).join(',')`
	e := newEdge(load(t, sidecar))
	e.Log, e.Fit = discard(), evaluator(t)
	createPods(t, e, "team-a", 20, fields{`{"env":[{"name":"A","value":"b"}]}`, ""}) // on which it is tried
	required := func(spec string) string { return `{"default":true,"required":true,` + strings.TrimPrefix(spec, "{") }
	for name, spec := range map[string]string{
		"500 loops, required":        required(container(`"args":[` + many(500, `"${`+loops+`}"`) + `]`)),
		"2,000 containers, required": required(`{"pod":{"spec":{"containers":[` + many(2000, `{"name":"c%d","image":"i"}`) + `]}}}`),
		"400 where, required":        required(`{"forEachContainer":[` + many(400, `{"where":"container.name == 'a%d'","add":{"env":[{"name":"A%d","value":"b"}]}}`) + `]}`),
		"500 expressions":            container(`"args":[` + many(500, `"${pod.metadata.labels[?'app%d'].orValue('x')}"`) + `]`),
		"500 long expressions":       container(`"args":[` + many(500, `"${['a','b'].map(x, x+'c'+string(%d)).join(',').split(',').map(y, y + y).join(';') + pod.spec.containers[0].name}"`) + `]`),
		"500 loops":                  container(`"args":[` + many(500, `"${`+loops+`}"`) + `]`),
		"90 checked fields": `{"params":[` + many(8, `{"name":"p%d","type":"boolean","default":false}`) + `],"pod":{"spec":{"containers":[` + many(90,
			`{"name":"c%d","image":"i","securityContext":{"privileged":"${params.p0 && params.p1 || params.p2 && params.p3 || params.p4 && params.p5 || params.p6 && params.p7}","runAsUser":"${params.p0 ? 0 : 1}","runAsNonRoot":"${!params.p1}"}}`) + `]}}}`,
		"checked loops": `{"params":[` + many(8, `{"name":"p%d","type":"boolean","default":false}`) + `],"pod":{"spec":{"containers":[` + many(20,
			`{"name":"c%d","image":"i","securityContext":{"privileged":"${params.p0 && params.p1 || params.p2 && params.p3 || params.p4 && params.p5 || params.p6 && lists.range(30).map(a, lists.range(30).map(b, string(a*b)).join(',')).join(',').size() > 5}"}}`) + `]}}}`,
		"90 strings in checked fields": `{"params":[` + many(90, `{"name":"p%d","default":"a"}`) + `],"pod":{"spec":{"containers":[` + many(90,
			`{"name":"c%d","image":"i","securityContext":{"capabilities":{"add":["${params.p%d}"]}}}`) + `]}}}`,
		"501 expressions":        container(`"args":[` + many(501, `"${1}"`) + `]`),
		"40,000 expressions":     container(`"args":[` + many(40_000, `"${1}"`) + `]`),
		"a long condition":       `{"match":{"condition":"` + strings.Repeat("has(pod.metadata.labels.a) || ", 3000) + `true"},"pod":{"metadata":{"annotations":{"a":"b"}}}}`,
		"a condition of loops":   `{"match":{"condition":"` + loops + ` == 'x'"},"pod":{"metadata":{"annotations":{"a":"b"}}}}`,
		"a condition to solve":   `{"match":{"condition":"` + strings.TrimSuffix(strings.Repeat("pod.metadata.labels[?'a'].orValue('') + pod.metadata.labels[?'b'].orValue('') == 'ab' && ", 50), " && ") + `"},"pod":{"metadata":{"annotations":{"a":"b"}}}}`,
		"2,000 parameters":       `{"params":[` + many(2000, `{"name":"p%d"}`) + `],"pod":{"metadata":{"annotations":{"a":"b"}}}}`,
		"200 needed parameters":  `{"params":[` + many(200, `{"name":"p%d"}`) + `],"pod":{"metadata":{"annotations":{"a":"` + strings.ReplaceAll(many(200, "${params.p%d}"), ",", "") + `"}}}}`,
		"values that never fit":  `{"params":[` + many(20, `{"name":"p%d"}`) + `],"forEachContainer":[` + many(450, `{"add":{"env":[{"name":"A%d","value":"${params.p1}"}]}}`) + `],"pod":{"metadata":{"annotations":{"a":"${['x'][size(params.p0) + 1]}"}}}}`,
		"values of many loops":   `{"params":[` + many(20, `{"name":"p%d"}`) + `],"pod":{"metadata":{"annotations":{"a":"${` + loops + `}","b":"${` + loops + ` + ['x'][size(params.p0) + 1]}"}}}}`,
		"64 variables":           `{"variables":[` + many(64, `{"name":"v%d","expression":"`+loops+`"}`) + `],"pod":{"metadata":{"annotations":{"a":"` + strings.ReplaceAll(many(64, "${variables.v%d}"), ",", "") + `"}}}}`,
		"100 patterns":           `{"params":[` + many(100, `{"name":"p%d","pattern":"((a{1,100}){1,10}){1,1}","default":"a"}`) + `],"pod":{"metadata":{"annotations":{"a":"b"}}}}`,
		"2,000 containers":       `{"pod":{"spec":{"containers":[` + many(2000, `{"name":"c%d","image":"i"}`) + `]}}}`,
		"250 computed names":     `{"pod":{"spec":{"containers":[` + many(200, `{"${forEach}":{"x":"['a','b']"},"name":"c%d-${x}","image":"i"}`) + `]}}}`,
		"2,000 volumes":          `{"pod":{"spec":{"volumes":[` + many(2000, `{"name":"v%d","emptyDir":{}}`) + `]}}}`,
		"1,000 forEachContainer": `{"forEachContainer":[` + many(1000, `{"add":{"env":[{"name":"A%d","value":"b"}]}}`) + `]}`,
		"400 where":              `{"forEachContainer":[` + many(400, `{"where":"container.name == 'a%d'","add":{"env":[{"name":"A%d","value":"b"}]}}`) + `]}`,
		"deep":                   `{"pod":` + strings.Repeat(`{"a":`, 9000) + `1` + strings.Repeat(`}`, 9000) + `}`,
		"a wide pod":             `{"pod":{"metadata":{"annotations":{` + many(4000, `"example.com/a%d":"b"`) + `}}}}`,
		"unknown keys":           `{"pod":{"spec":{` + many(6000, `"a%d":1`) + `}}}`,
		"a large description":    `{"description":"` + strings.Repeat("x", 2<<20) + `","pod":{"metadata":{"annotations":{"a":"b"}}}}`,
	} {
		body := templateReview(spec)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := cpu.Used(t)
		w := e.answer(post(t, webhook.PathLint, body))
		took := cpu.Used(t) - began
		runtime.ReadMemStats(&after)
		memory := after.TotalAlloc - before.TotalAlloc
		if w.Code != http.StatusOK || took > mostTime || memory > mostMemory {
			t.Errorf("%s: %d after %v and %d MiB: %.300s", name, w.Code, took, memory>>20, w.Body)
			continue
		}
		checkContract(t, webhook.PathLint, body, w)
		t.Logf("%-22s %7d bytes: %10v %4d MiB %.200s", name, len(body), took.Round(time.Microsecond), memory>>20, w.Body)
	}
}
