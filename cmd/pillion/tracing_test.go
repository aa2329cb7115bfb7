// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// collector takes spans as an OpenTelemetry Collector does.
type collector struct {
	*httptest.Server
	down  atomic.Bool
	spans chan *tracepb.ResourceSpans
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{spans: make(chan *tracepb.ResourceSpans, 100)}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := &collectorpb.ExportTraceServiceRequest{}
		switch {
		case c.down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, request) != nil:
			w.WriteHeader(http.StatusBadRequest)
		default:
			for _, s := range request.GetResourceSpans() {
				c.spans <- s
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// ask sends a review that is a part of a trace.
func (s *served) ask(t *testing.T, traceparent string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhook+"/mutate", strings.NewReader("no review"))
	must(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", traceparent)
	response, err := s.client.Do(r)
	must(t, err)
	response.Body.Close()
	if response.StatusCode != http.StatusBadRequest {
		t.Errorf("the answer is %s", response.Status)
	}
}

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// TestServeTraces checks that spans arrive in OTLP format, the last ones at the end of the process,
// and that a collector that is down is logged once and delays nothing.
func TestServeTraces(t *testing.T) {
	c := newCollector(t)
	c.down.Store(true)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=test")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10") // milliseconds
	s := startServe(t, "--standalone", "--tls-self-signed", "--templates", "testdata/templates", "--trace-endpoint", c.URL)
	s.ask(t, parent)
	if said := s.logged(t, "traces cannot be sent, so they are dropped"); said["error"] != "the collector returned 503 Service Unavailable" {
		t.Error(said)
	}
	c.down.Store(false)
	s.ask(t, parent)
	s.logged(t, "traces can be sent again")
	s.ask(t, strings.TrimSuffix(parent, "1")+"0") // not to be kept
	s.ask(t, parent)
	if code := s.stop(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	close(c.spans)
	n := 0
	for process := range c.spans {
		about := map[string]string{}
		for _, a := range process.GetResource().GetAttributes() {
			about[a.GetKey()] = a.GetValue().GetStringValue()
		}
		if about["service.name"] != "pillion" || about["k8s.cluster.name"] != "test" || about["telemetry.sdk.name"] == "" {
			t.Errorf("the resource is %v", about)
		}
		for _, span := range process.GetScopeSpans()[0].GetSpans() {
			n++
			attributes := map[string]any{}
			for _, a := range span.GetAttributes() {
				attributes[a.GetKey()] = a.GetValue().GetValue()
			}
			took := int64(span.GetEndTimeUnixNano() - span.GetStartTimeUnixNano())
			if span.GetName() != "mutate" || !bytes.HasPrefix(span.GetTraceId(), []byte{0x0a, 0xf7}) || !bytes.HasPrefix(span.GetParentSpanId(), []byte{0xb7, 0xad}) ||
				len(span.GetSpanId()) != 8 || span.GetKind() != tracepb.Span_SPAN_KIND_SERVER || took <= 0 || len(attributes) != 3 {
				t.Errorf("the span is %v", span)
			}
		}
	}
	if n != 2 {
		t.Errorf("%d spans arrived", n)
	}
}

func TestTraceFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--trace-ratio 0.5":                           "--trace-ratio needs --trace-endpoint",
		"--trace-endpoint collector:4318":             "must be a URL",
		"--trace-endpoint http://c --trace-ratio 2":   "from 0 to 1",
		"--trace-endpoint http://c --trace-ratio NaN": "from 0 to 1",
		"--trace-endpoint grpc://c:4317":              "must be a URL",
	} {
		var out bytes.Buffer
		code := run(append([]string{"serve", "--standalone", "--tls-self-signed", "--templates", "testdata/templates"}, strings.Fields(args)...), nil, &out, &out)
		if code != exitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, %s", args, code, &out)
		}
	}
}
