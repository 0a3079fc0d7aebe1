package tracing

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"go.temporal.io/sdk/interceptor"
	"google.golang.org/protobuf/proto"
)

// Nothing is traced unless a collector is configured, and nothing if tracing is disabled.
func TestOffUnlessConfigured(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]map[string]string{
		"no variables": {}, "no endpoint": {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
		"disabled":    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_SDK_DISABLED": "true"},
		"no exporter": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4317", "OTEL_TRACES_EXPORTER": "none"},
	} {
		traced, err := Start(t.Context(), "converge", func(n string) string { return env[n] })
		require.NoError(t, err, name)
		require.Nil(t, traced, name)
		traced.Stop()
	}
	_, err := Start(t.Context(), "converge", func(n string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}[n]
	})
	require.EqualError(t, err, `traces: OTEL_EXPORTER_OTLP_PROTOCOL="http/json": expected grpc or http/protobuf`)
}

// A collector over HTTP gets the remaining spans when the process ends; OTEL_SERVICE_NAME names the process.
func TestOverHTTP(t *testing.T) {
	var got collectorpb.ExportTraceServiceRequest
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/v1/traces" {
			_ = proto.Unmarshal(body, &got) // the assertions below detect a failure
		}
	}))
	defer collector.Close()
	env := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
	for name, value := range env {
		t.Setenv(name, value)
	}
	t.Setenv("OTEL_SERVICE_NAME", "releases")
	traced, err := Start(t.Context(), "converge", func(n string) string { return env[n] })
	require.NoError(t, err)
	tracer, err := traced.newTracer(false)
	require.NoError(t, err)
	begun, err := tracer.StartSpan(&interceptor.TracerStartSpanOptions{Operation: "UpdateWorkflow", Name: "release"})
	require.NoError(t, err)
	begun.Finish(&interceptor.TracerFinishSpanOptions{})
	follows, err := traced.newTracer(true)
	require.NoError(t, err)
	alone, err := follows.StartSpan(&interceptor.TracerStartSpanOptions{Operation: "RunActivity", Name: "Observe"})
	require.NoError(t, err)
	alone.Finish(&interceptor.TracerFinishSpanOptions{})
	traced.Stop()
	require.Len(t, got.GetResourceSpans(), 1)
	require.Contains(t, got.GetResourceSpans()[0].GetResource().String(), `"releases"`)
	require.Len(t, got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans(), 1, "a span without a parent is not traced")
	require.Equal(t, "UpdateWorkflow:release", got.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()[0].GetName())
}

// The newest releases are known, and the last update is the cause of all others; an update without a trace ends that.
func TestCauses(t *testing.T) {
	t.Parallel()
	type ref struct{ n int }
	c := &causes{byVersion: map[string]interceptor.TracerSpanRef{}}
	release := func(version string, span interceptor.TracerSpanRef) {
		c.record(&interceptor.UpdateInput{Name: "release", Args: []any{raw(`{"version":"` + version + `"}`)}}, span)
	}
	require.Nil(t, c.causeOf("v1"))
	release("v1", ref{1})
	release("v2", ref{2})
	require.Equal(t, ref{1}, c.causeOf("v1"))
	require.Equal(t, ref{1}, c.causeOf("v1-i7"), "of another configuration")
	require.Equal(t, ref{2}, c.causeOf("v0"))
	c.record(&interceptor.UpdateInput{Name: "approve", Args: []any{raw(`{"version":"v1"}`)}}, ref{3})
	require.Equal(t, ref{1}, c.causeOf("v1"))
	require.Equal(t, ref{3}, c.causeOf("v0"))
	release("v1", nil)
	require.Nil(t, c.causeOf("v1"))
	require.Equal(t, ref{2}, c.causeOf("v2"))
	for n := range 3 * maxCauses {
		release(string(rune('a'+n)), ref{n})
	}
	require.Len(t, c.byVersion, maxCauses)
	require.Len(t, c.order, maxCauses)
	release("", ref{9})
	c.record(&interceptor.UpdateInput{Name: "release", Args: []any{raw(`{`)}}, ref{9})
	require.Len(t, c.order, maxCauses)
}

func raw(text string) json.RawMessage { return json.RawMessage(text) }
