// Package tracing traces the request of a person with OpenTelemetry: the update, the decision of the workflow, and the applies that result,
// on any worker.
//
// It is off unless the usual variables name a collector, and then it writes nothing to histories. When it is on, updates and the activities
// that result have one more header, which replays ignore. Only an update of a person starts a trace, so the observations of a thousand
// services are not traced. It imports the protocol.
package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"go.temporal.io/sdk/contrib/opentelemetry"
	"go.temporal.io/sdk/interceptor"
)

// Tracing is the tracing of one process.
type Tracing struct {
	provider *sdktrace.TracerProvider
}

// flushTimeout is how long a process that ends waits for a collector to accept its last spans.
const flushTimeout = 2 * time.Second

// Start starts tracing under that service name, or that of OTEL_SERVICE_NAME, if OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT name a collector. It returns nil if they do not, or if OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER=none
// disable it. OpenTelemetry reads its other variables itself.
func Start(ctx context.Context, service string, env func(string) string) (*Tracing, error) {
	if env("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" ||
		env("OTEL_SDK_DISABLED") == "true" || env("OTEL_TRACES_EXPORTER") == "none" {
		return nil, nil
	}
	exporter, err := exporterFor(ctx, env)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service)), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Warn("traces are not exported", "error", err) }))
	return &Tracing{sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))}, nil
}

// exporterFor returns an exporter for the configured protocol; the default is gRPC.
func exporterFor(ctx context.Context, env func(string) string) (*otlptrace.Exporter, error) {
	protocol := env("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		protocol = env("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	switch protocol {
	case "", "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	}
	return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%q: expected grpc or http/protobuf", protocol)
}

// Stop flushes the remaining spans, with a timeout.
func (t *Tracing) Stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// header is where Temporal's SDKs, of all languages, write the parent span.
const header = "_tracer-data"

// newTracer makes spans. If childrenOnly is set, it makes only child spans.
func (t *Tracing) newTracer(childrenOnly bool) (interceptor.Tracer, error) {
	return opentelemetry.NewTracer(opentelemetry.TracerOptions{
		Tracer:               t.provider.Tracer("github.com/converge-engine/converge"),
		TextMapPropagator:    propagation.TraceContext{},
		HeaderKey:            header,
		DisableBaggage:       true, // any client can set it, and no code here reads it
		DisableSignalTracing: true, DisableQueryTracing: true,
		AllowInvalidParentSpans: true, // any client that may send an update can write anything into its header
		SpanStarter: func(ctx context.Context, tracer trace.Tracer, name string, o ...trace.SpanStartOption) trace.Span {
			if childrenOnly && !trace.SpanContextFromContext(ctx).IsValid() {
				return noop.Span{}
			}
			_, span := tracer.Start(ctx, name, o...)
			return span
		},
	})
}

// Client is for the connection of a client: each update starts a trace.
func (t *Tracing) Client() (interceptor.ClientInterceptor, error) {
	tracer, err := t.newTracer(false)
	if err != nil {
		return nil, err
	}
	return clientOnly{interceptor.NewTracingInterceptor(tracer)}, nil
}

// clientOnly hides the worker interceptor: the SDK would use a client's interceptor for its workers too.
type clientOnly struct{ interceptor.ClientInterceptor }

// Worker is for a worker, outside all other interceptors.
func (t *Tracing) Worker() ([]interceptor.WorkerInterceptor, error) {
	tracer, err := t.newTracer(true)
	if err != nil {
		return nil, err
	}
	return []interceptor.WorkerInterceptor{
		&updateTracing{tracer: tracer}, &activityTracing{tracing: interceptor.NewTracingInterceptor(tracer)}, &spanSubject{},
	}, nil
}
