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
	"slices"
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

// above are the names of the spans above Pillion's own about a namespace, of the same trace.
func (c *collector) above(name, namespace string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var span *tracepb.Span
	id := func(span []byte, s *tracepb.Span) string {
		return hex.EncodeToString(s.GetTraceId()) + hex.EncodeToString(span)
	}
	byID := map[string]*tracepb.Span{}
	for _, s := range c.spans {
		byID[id(s.GetSpanId(), s)] = s
		for _, a := range s.GetAttributes() {
			if s.GetName() == name && a.GetKey() == "k8s.namespace.name" && a.GetValue().GetStringValue() == namespace {
				span = s
			}
		}
	}
	var names []string
	for span != nil {
		if span = byID[id(span.GetParentSpanId(), span)]; span != nil {
			names = append(names, span.GetName())
		}
	}
	return names
}

// TestTraces checks that Pillion's spans are part of the API server's trace, under its call of the
// webhook.
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
		if err := env.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(cleanupContext(), manifests.Mutating.Name, metav1.DeleteOptions{}); err != nil {
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
	eventually(t, "Pillion's span is under the API server's call of the webhook", func(context.Context) error {
		if above := c.above("mutate", ns); !slices.Contains(above, "Call mutating webhook") {
			return fmt.Errorf("it is under %q", above)
		}
		return nil
	})
}
