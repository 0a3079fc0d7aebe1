package seen

import (
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// span is one that a collector took.
type span struct {
	process, name     string // the process by its service.name
	trace, id, parent string
	attributes        map[string]string
}

// collector takes spans by OTLP over gRPC, as any collector does.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex
	spans []span
}

func collect(t *testing.T) *collector {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &collector{address: l.Addr().String()}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); serving.Wait() })
	return c
}

// env has a process send its spans there, soon.
func (c *collector) env() []string {
	return []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + c.address, "OTEL_BSP_SCHEDULE_DELAY=100"}
}

// Export implements the collector's service.
func (c *collector) Export(_ context.Context, r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		process := ""
		for _, a := range of.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				process = a.GetValue().GetStringValue()
			}
		}
		for _, scope := range of.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				one := span{process, s.GetName(), hex.EncodeToString(s.GetTraceId()), hex.EncodeToString(s.GetSpanId()), hex.EncodeToString(s.GetParentSpanId()), map[string]string{}}
				for _, a := range s.GetAttributes() {
					one.attributes[a.GetKey()] = a.GetValue().GetStringValue()
				}
				c.spans = append(c.spans, one)
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// named are the spans of a name, of one trace or, when that is empty, of all.
func (c *collector) named(name, trace string) (all []span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.name == name && (trace == "" || s.trace == trace) {
			all = append(all, s)
		}
	}
	return all
}
