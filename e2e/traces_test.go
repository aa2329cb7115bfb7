// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const tracesLabel = "e2e.example.com/traces"

// collector takes spans as an OpenTelemetry Collector does: from the API server by gRPC, from Pillion by HTTP.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	grpc, http string // where

	mu    sync.Mutex
	spans []*tracepb.Span
}

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }() // until it is stopped
	t.Cleanup(server.Stop)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := &collectorpb.ExportTraceServiceRequest{}
		if err != nil || proto.Unmarshal(body, request) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_, _ = c.Export(r.Context(), request)
	}))
	t.Cleanup(web.Close)
	c.grpc, c.http = listener.Addr().String(), web.URL
	return c
}

// Export implements [collectorpb.TraceServiceServer].
func (c *collector) Export(_ context.Context, request *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, process := range request.GetResourceSpans() {
		for _, scope := range process.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// callOf finds Pillion's span of that name about a namespace, and the API server's span that it is a part of.
func (c *collector) callOf(name, namespace string) (span, parent *tracepb.Span, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]*tracepb.Span{}
	for _, s := range c.spans {
		byID[hex.EncodeToString(s.GetTraceId())+hex.EncodeToString(s.GetSpanId())] = s
		for _, a := range s.GetAttributes() {
			if s.GetName() == name && a.GetKey() == "k8s.namespace.name" && a.GetValue().GetStringValue() == namespace {
				span = s
			}
		}
	}
	if span == nil {
		return nil, nil, errors.New("no span of Pillion's")
	}
	parent = byID[hex.EncodeToString(span.GetTraceId())+hex.EncodeToString(span.GetParentSpanId())]
	if parent == nil {
		return nil, nil, fmt.Errorf("no span of the API server's with the id %x", span.GetParentSpanId())
	}
	return span, parent, nil
}

// TestTraces: what Pillion does is a part of the API server's trace, under its call of the webhook.
func TestTraces(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	c := startCollector(t)
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	config := fmt.Sprintf("apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: 1000000\n", c.grpc)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	pillion, err := env.StartGuarded(t.Context(), env.binary, env.templates, "--trace-endpoint", c.http)
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSuffix(namespacePrefix("traces"), "-")
	manifests := env.manifests.ForNamespaces(id, map[string]string{tracesLabel: id})
	g := &guarded{pillion: pillion}
	g.lead(&manifests.Mutating.Webhooks[0].ClientConfig)
	if _, err := env.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx, manifests.Mutating, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Uninstall(cleanupContext(), manifests); err != nil {
			t.Error(err)
		}
	})
	ns := plainNamespace(t, withLabel(tracesLabel, id), withLabel(injectLabel, "by-a-traced-one"))
	server, err := env.StartAPIServer(t.Context(), "--tracing-config-file", file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() }) // how it ends does not matter
	tries := 0
	eventually(t, "Pillion injects", func(ctx context.Context) error {
		tries++
		pod, err := createAt(ctx, server, ns, newPod(fmt.Sprintf("web-%d", tries)))
		if err == nil && pod.Annotations["logger.pillion.dev/injected"] == "" {
			err = errors.New("not yet")
		}
		return err
	})
	eventually(t, "the spans come", func(context.Context) error {
		span, parent, err := c.callOf("mutate", ns)
		if err == nil && !strings.Contains(strings.ToLower(parent.GetName()), "webhook") && parent.GetKind() != tracepb.Span_SPAN_KIND_CLIENT {
			err = fmt.Errorf("%s is a part of %s", span.GetName(), parent.GetName())
		}
		if err == nil {
			t.Logf("the API server's span is %q, %s", parent.GetName(), parent.GetKind())
		}
		return err
	})
}
