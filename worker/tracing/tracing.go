// Package tracing follows what somebody asks for, by OpenTelemetry: the update, what the workflow decides because of it, and the
// applies that come of that, on whichever worker.
//
// It is off unless the usual variables name a collector, and then leaves no trace in histories. When it is on, updates and the
// activities that come of them have one more header, which no replay looks at. Nothing begins a trace but a person's update, so
// that the observations of a thousand services are none. It imports the protocol.
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

// Tracing is what one process traces.
type Tracing struct {
	provider *sdktrace.TracerProvider
}

// lastSpans bounds how long a process that ends waits for a collector to take its last spans.
const lastSpans = 2 * time.Second

// Start begins to trace as a service of that name, unless OTEL_SERVICE_NAME says another, if OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT name a collector; nil: they do not, or OTEL_SDK_DISABLED or OTEL_TRACES_EXPORTER=none
// forbid it. All else that OpenTelemetry has a variable for, it reads itself.
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
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { slog.Warn("traces are not taken", "error", err) }))
	return &Tracing{sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))}, nil
}

// exporterFor speaks the protocol that is asked for, gRPC unless another is.
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

// Stop hands over what is left, for as long as that may take.
func (t *Tracing) Stop() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastSpans)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// header is where the SDK of Temporal, of whatever language, writes the span that something belongs to.
const header = "_tracer-data"

// tracer makes spans. Follows: only below another one.
func (t *Tracing) tracer(follows bool) (interceptor.Tracer, error) {
	return opentelemetry.NewTracer(opentelemetry.TracerOptions{
		Tracer:               t.provider.Tracer("github.com/converge-engine/converge"),
		TextMapPropagator:    propagation.TraceContext{},
		HeaderKey:            header,
		DisableBaggage:       true, // it is anybody's, and nobody here reads it
		DisableSignalTracing: true, DisableQueryTracing: true,
		AllowInvalidParentSpans: true, // whoever may send an update may write anything into its header
		SpanStarter: func(ctx context.Context, tracer trace.Tracer, name string, o ...trace.SpanStartOption) trace.Span {
			if follows && !trace.SpanContextFromContext(ctx).IsValid() {
				return noop.Span{}
			}
			_, span := tracer.Start(ctx, name, o...)
			return span
		},
	})
}

// Client is for the connection of whoever asks: each update begins a trace.
func (t *Tracing) Client() (interceptor.ClientInterceptor, error) {
	tracer, err := t.tracer(false)
	if err != nil {
		return nil, err
	}
	return clientOnly{interceptor.NewTracingInterceptor(tracer)}, nil
}

// clientOnly is no interceptor of workers: one of a client would become that of its workers too.
type clientOnly struct{ interceptor.ClientInterceptor }

// Worker is for a worker, around all others.
func (t *Tracing) Worker() ([]interceptor.WorkerInterceptor, error) {
	tracer, err := t.tracer(true)
	if err != nil {
		return nil, err
	}
	return []interceptor.WorkerInterceptor{
		&decisions{tracer: tracer}, &applies{tracing: interceptor.NewTracingInterceptor(tracer)}, &described{},
	}, nil
}
