// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
)

const (
	// exportTime limits one export, including the last one at shutdown.
	exportTime = 3 * time.Second
	// traceName is the name of this program in traces.
	traceName = "pillion"
)

// traceOptions are the flags of serve for traces.
type traceOptions struct {
	endpoint string
	ratio    float64
}

func (o *traceOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.endpoint, "trace-endpoint", "", "send OpenTelemetry traces to the collector at this `URL`, by OTLP over HTTP, for example http://collector.example:4318 (default: no traces)")
	f.Float64Var(&o.ratio, "trace-ratio", 0, "trace this `SHARE` of requests, from 0 to 1, if the API server does not decide it")
}

// checkFlags returns an error for flags that contradict each other.
func (o *traceOptions) checkFlags() error {
	if o.endpoint == "" {
		if o.ratio != 0 {
			return errors.New("--trace-ratio needs --trace-endpoint")
		}
		return nil
	}
	if u, err := url.Parse(o.endpoint); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("--trace-endpoint must be a URL such as http://collector.example:4318, not %q", o.endpoint)
	}
	if !(o.ratio >= 0 && o.ratio <= 1) {
		return errors.New("--trace-ratio must be from 0 to 1")
	}
	return nil
}

// newTracer creates and exports spans until stop has exported the last ones. It is nil if tracing
// is off. Spans follow the sampling decision of the API server. If the collector is too slow,
// spans are dropped; requests never wait for it.
func (o *traceOptions) newTracer(ctx context.Context, log *slog.Logger) (tracer trace.Tracer, stop func(), err error) {
	if o.endpoint == "" {
		return nil, func() {}, nil
	}
	target, err := url.Parse(o.endpoint)
	if err != nil {
		return nil, nil, err
	}
	if target.Path == "" || target.Path == "/" {
		target.Path = "/v1/traces"
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", traceName), attribute.String("service.version", cli.BuildVersion().Version)),
		resource.WithFromEnv()) // may add attributes by OTEL_RESOURCE_ATTRIBUTES
	if err != nil {
		return nil, nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.ratio))),
		sdktrace.WithBatcher(&exporter{url: target.String(), log: log}, sdktrace.WithExportTimeout(exportTime)))
	return provider.Tracer(traceName), func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), exportTime)
		defer cancel()
		_ = provider.Shutdown(last) // failed exports were logged already
	}, nil
}

// exporter sends spans by OTLP/HTTP. It replaces the SDK's exporter, which imports gRPC and
// makes the program 15 MB larger.
type exporter struct {
	url     string
	log     *slog.Logger
	failing bool
}

// ExportSpans implements [sdktrace.SpanExporter], which makes no concurrent calls. A failure
// is logged once, until exports succeed again.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.sendSpans(ctx, spans)
	switch {
	case err != nil && !e.failing:
		e.log.Warn("traces cannot be sent, so they are dropped", "error", err)
	case err == nil && e.failing:
		e.log.Info("traces can be sent again")
	}
	e.failing = err != nil
	return nil
}

func (e *exporter) sendSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	body, err := proto.Marshal(convertSpans(spans))
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-protobuf")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body) // otherwise the connection is closed
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("the collector returned %s", response.Status)
	}
	return nil
}

// Shutdown implements [sdktrace.SpanExporter].
func (e *exporter) Shutdown(context.Context) error { return nil }

// convertSpans converts spans of one process to OTLP.
func convertSpans(spans []sdktrace.ReadOnlySpan) *collectorpb.ExportTraceServiceRequest {
	process := &tracepb.ResourceSpans{Resource: &resourcepb.Resource{}}
	scope := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: traceName}}
	process.ScopeSpans = []*tracepb.ScopeSpans{scope}
	for _, s := range spans {
		process.Resource.Attributes = convertAttributes(s.Resource().Attributes())
		id, of, parent := s.SpanContext().SpanID(), s.SpanContext().TraceID(), s.Parent().SpanID()
		span := &tracepb.Span{
			TraceId: of[:], SpanId: id[:], TraceState: s.SpanContext().TraceState().String(),
			Name: s.Name(), Kind: tracepb.Span_SPAN_KIND_SERVER,
			StartTimeUnixNano: uint64(s.StartTime().UnixNano()), EndTimeUnixNano: uint64(s.EndTime().UnixNano()),
			Attributes: convertAttributes(s.Attributes()),
			Status:     &tracepb.Status{},
		}
		if s.Parent().HasSpanID() {
			span.ParentSpanId = parent[:]
		}
		if s.Status().Code == codes.Error {
			span.Status.Code = tracepb.Status_STATUS_CODE_ERROR
		}
		scope.Spans = append(scope.Spans, span)
	}
	return &collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{process}}
}

func convertAttributes(all []attribute.KeyValue) []*commonpb.KeyValue {
	var out []*commonpb.KeyValue
	for _, a := range all {
		value := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: a.Value.String()}}
		if a.Value.Type() == attribute.INT64 {
			value.Value = &commonpb.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		}
		out = append(out, &commonpb.KeyValue{Key: string(a.Key), Value: value})
	}
	return out
}
