// Package monitor shows what a worker does to who looks from outside: its metrics, ours and those of Temporal's SDK, in the
// form of Prometheus, and whether it lives and can work.
//
// It counts and serves; what is counted is said where it happens (activities/metrics.go). It imports nothing of ours.
package monitor

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
)

// Monitor is what is known of one worker. It is safe for concurrent use.
type Monitor struct {
	registry *prometheus.Registry
	handler  client.MetricsHandler
	polls    Polls
	ready    readiness
}

// New makes one, of a program of that version.
func New(version string) (*Monitor, error) {
	m := &Monitor{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(m.registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	meter := metric.NewMeterProvider(metric.WithReader(reader), metric.WithView(seconds, slots)).Meter("converge")
	m.handler = opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{
		Meter: meter, UseMonotonicCounters: true,
		OnError: func(err error) { slog.Warn("not measured", "error", err) },
	})
	m.handler.WithTags(map[string]string{"version": version}).Gauge("converge_build_info").Update(1)
	m.ready.add("polling", m.polls.check)
	return m, nil
}

// Handler is where metrics go.
func (m *Monitor) Handler() client.MetricsHandler { return m.handler }

// Polls is how the polls of its connection end, if that has their DialOption.
func (m *Monitor) Polls() *Polls { return &m.polls }

// buckets fit what takes milliseconds, as a decision does, and what takes minutes, as an apply.
var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}

// seconds has every duration counted in buckets of these bounds.
func seconds(i metric.Instrument) (metric.Stream, bool) {
	return metric.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit, Aggregation: metric.AggregationExplicitBucketHistogram{Boundaries: buckets}},
		i.Kind == metric.InstrumentKindHistogram
}

// slots keeps out of the SDK's gauges those of what no worker of ours has.
func slots(i metric.Instrument) (metric.Stream, bool) {
	return metric.Stream{Name: i.Name, Aggregation: metric.AggregationDrop{}}, strings.HasPrefix(i.Name, "temporal_nexus_")
}
