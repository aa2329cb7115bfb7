// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pillion-dev/pillion/inject/lint/limits"
	"github.com/pillion-dev/pillion/inject/testing/cpu"
	"github.com/pillion-dev/pillion/inject/webhook"
)

// many repeats an item; %d in it is its number.
func many(n int, item string) string {
	var all strings.Builder
	for i := range n {
		if i > 0 {
			all.WriteByte(',')
		}
		all.WriteString(strings.ReplaceAll(item, "%d", fmt.Sprint(i)))
	}
	return all.String()
}

// TestHostile checks that any request of a user who can create pods is answered in so little CPU
// time that the API server still waits (the manifests set 5 s), and with a bounded amount of
// memory. It compares total allocations, which are an upper limit for the memory in use and are
// repeatable. It compares CPU time because real time depends on what else runs.
func TestHostile(t *testing.T) {
	mostTime, mostMemory := 2*time.Second, uint64(96<<20) // of 256 MiB
	build, _ := debug.ReadBuildInfo()
	if slices.Contains(build.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		mostTime, mostMemory = 16*time.Second, 128<<20 // with the race detector
	}
	spec := func(containers, more string) string {
		return `{"spec":{"containers":[` + containers + `]` + more + `}}`
	}
	one := func(fields string) string { return spec(`{"name":"a","image":"b",`+fields+`}`, "") }
	e := newEdge(load(t, sampleTemplates(10, true)...))
	e.Log = discard()
	e.Fit, e.Limits = evaluator(t), knownLimits{limits.Limits{Ranges: []*corev1.LimitRange{{}}, Quotas: []*corev1.ResourceQuota{{}}}}
	for name, row := range map[string]struct {
		pod  string
		want int
	}{
		"a string of 3 MiB":      {`{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 3<<20) + `"}},"spec":{"containers":[{"name":"a"}]}}`, http.StatusOK},
		"80,000 variables":       {one(`"env":[` + many(80_000, `{"name":"V%d","value":"x"}`) + `]`), http.StatusOK},
		"250,000 variables":      {one(`"env":[` + many(250_000, `{}`) + `]`), http.StatusOK},
		"50,000 mounts":          {one(`"volumeMounts":[` + many(50_000, `{"mountPath":"/a%d"}`) + `]`), http.StatusOK},
		"100,000 ports":          {one(`"ports":[` + many(100_000, `{"containerPort":%d}`) + `]`), http.StatusOK},
		"500 containers":         {spec(many(500, `{"name":"a%d"}`), ""), http.StatusOK},
		"100,000 containers":     {spec(many(100_000, `{"name":"a%d"}`), ""), http.StatusOK},
		"120,000 the same":       {spec(many(120_000, `{"name":"a"}`), ""), http.StatusOK},
		"100,000 volumes":        {spec(`{"name":"a"}`, `,"volumes":[`+many(100_000, `{"name":"a%d"}`)+`]`), http.StatusOK},
		"100,000 parameters":     {`{"metadata":{"annotations":{` + many(100_000, `"agent-0.pillion.dev/x%d":"y"`) + `}},"spec":{"containers":[{"name":"a"}]}}`, http.StatusOK},
		"100,000 of our keys":    {`{"metadata":{"labels":{` + many(100_000, `"pillion.dev/x%d":"y"`) + `}},"spec":{"containers":[{"name":"a"}]}}`, http.StatusOK},
		"1,000 of our keys":      {`{"metadata":{"labels":{` + many(1000, `"pilion.dev/`+strings.Repeat("x", 200)+`%d":"y"`) + `}},"spec":{"containers":[{"name":"a"}]}}`, http.StatusOK},
		"a million names":        {`{"metadata":{"annotations":{"pillion.dev/templates":"` + strings.Repeat("x,", 1<<20) + `"}},"spec":{"containers":[{"name":"a"}]}}`, http.StatusOK},
		"as deep as JSON may be": {`{"x":` + strings.Repeat("[", 9_990) + strings.Repeat("]", 9_990) + `,"spec":{"containers":[{"name":"a"}]}}`, http.StatusOK},
		"8 MiB of text":          {`{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 8<<20-4096) + `"}},"spec":{"containers":[{"name":"a"}]}}`, http.StatusOK},
		"250,000 containers":     {spec(many(250_000, `0`), ""), http.StatusOK},
		"250,000 annotations":    {`{"metadata":{"annotations":{` + many(250_000, `"":""`) + `}},"spec":{"containers":[{"name":"a"}]}}`, http.StatusOK},
		"125,000 pairs":          {spec(many(125_000, `{"":0}`), ""), http.StatusOK},
		"250,000 volumes":        {spec(`{"name":"a"}`, `,"volumes":[`+many(250_000, `{}`)+`]`), http.StatusOK},
		"250,000 ephemeral":      {spec(`{"name":"a"}`, `,"ephemeralContainers":[`+many(250_000, `{}`)+`]`), http.StatusOK},
		"10,000 ephemeral":       {spec(`{"name":"a"}`, `,"ephemeralContainers":[`+many(9_900, `{}`)+`]`), http.StatusOK},
		"a string of 1 MB":       {`{"metadata":{"annotations":{"a":"` + strings.Repeat("x", 1_000_000) + `"}},"spec":{"containers":[{"name":"a"}]}}`, http.StatusOK},
		"too many tolerations":   {spec(`{"name":"a"}`, `,"tolerations":[`+many(300_000, `{}`)+`]`), http.StatusRequestEntityTooLarge},
		"too many values":        {`{"x":[` + many(4_000_000, `0`) + `]}`, http.StatusRequestEntityTooLarge},
		"deeper":                 {strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000), http.StatusBadRequest},
		"deep objects":           {strings.Repeat(`{"a":`, 500_000) + "1" + strings.Repeat("}", 500_000), http.StatusBadRequest},
	} {
		body := bytes.Replace(reviewOf(t, "v1", "CREATE", "shop", []byte(`"POD"`)), []byte(`"POD"`), []byte(row.pod), 1)
		workload := advised("apps/v1", "Deployment", "CREATE", `{"spec":{"template":`+row.pod+`}}`, "null")
		namespace := advised("v1", "Namespace", "CREATE", row.pod, "null")
		for what, body := range map[string][]byte{webhook.PathMutate: body, webhook.PathValidate: body, webhook.PathShadow: body, webhook.PathAdvise: workload, webhook.PathAdvise + " of a namespace": namespace} {
			path, _, _ := strings.Cut(what, " ")
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := cpu.Used(t)
			w := e.answer(post(t, path, body))
			took := cpu.Used(t) - began
			runtime.ReadMemStats(&after)
			if memory := after.TotalAlloc - before.TotalAlloc; w.Code != row.want || took > mostTime || memory > mostMemory {
				t.Errorf("%s: %s: %d after %v and %d MiB", name, what, w.Code, took, memory>>20)
			} else {
				t.Logf("%-22s %-9s %7d bytes: %10v %4d MiB", name, what, len(body), took.Round(time.Microsecond), memory>>20)
			}
		}
	}
}

// TestReadGrows checks that the memory for a body grows with the received bytes, not with the
// promised length, and all of it is counted. After an error it is free again.
func TestReadGrows(t *testing.T) {
	e := newEdge(load(t, sidecar))
	e.Log = discard()
	for _, promised := range []int64{-1, 1 << 10, 8 << 20} {
		for _, sent := range []int{1, 100 << 10, 1 << 20, 5 << 20} {
			var before, after runtime.MemStats
			counted := 0.0
			r := post(t, webhook.PathMutate, nil)
			r.ContentLength = promised
			r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(bytes.Repeat([]byte(" "), sent)), readerFunc(func([]byte) (int, error) {
				counted = e.metric(t, "pillion_webhook_memory_bytes")
				return 0, io.ErrUnexpectedEOF
			})))
			runtime.ReadMemStats(&before)
			w := e.answer(r)
			runtime.ReadMemStats(&after)
			grown := int(after.TotalAlloc - before.TotalAlloc)
			if w.Code != http.StatusBadRequest || grown > 4*sent+256<<10 {
				t.Errorf("of %d bytes %d came: %d, and %d are allocated", promised, sent, w.Code, grown)
			}
			if sent > 16<<10 && int(counted) < sent || int(counted) > 4*sent {
				t.Errorf("of %d bytes %d came: %v are counted", promised, sent, counted)
			}
		}
	}
	if left := e.metric(t, "pillion_webhook_memory_bytes"); left != 0 {
		t.Errorf("%v are never given back", left)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestSlowAfterLarge checks that the memory of a large pod is not given to slow requests, of which
// there may be thousands.
func TestSlowAfterLarge(t *testing.T) {
	const times, most = 16, 64 << 20
	e := newEdge(load(t, sidecar))
	e.Log = discard()
	large := reviewOf(t, "v1", "CREATE", "shop", []byte(`{"spec":{"containers":[{"name":"a"}],"tolerations":[`+many(60_000, `{}`)+`]}}`))
	before := heap()
	var slow sync.WaitGroup
	defer slow.Wait()
	for range times {
		if w := e.answer(post(t, webhook.PathMutate, large)); w.Code != http.StatusOK {
			t.Fatal(w.Code, w.Body)
		}
		body, sender := io.Pipe()
		defer sender.Close()
		r := post(t, webhook.PathMutate, nil)
		r.Body = body
		slow.Go(func() { e.answer(r) })
		if _, err := sender.Write([]byte("{")); err != nil { // it is being read
			t.Fatal(err)
		}
	}
	if used := heap() - before; used > most {
		t.Errorf("%d requests that have sent one byte hold %d MiB", times, used>>20)
	}
}

// heap returns the memory in use, without what sync.Pool keeps for two collections.
func heap() int64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
