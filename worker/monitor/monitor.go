// Package monitor exposes the state of a worker: its metrics, ours and those of Temporal's SDK, in Prometheus format, and its liveness and
// readiness.
//
// It collects and serves; the metrics are defined where they are measured (activities/metrics.go). It imports nothing of ours.
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

// Monitor is the monitor of one worker. It is safe for concurrent use.
type Monitor struct {
	registry *prometheus.Registry
	handler  client.MetricsHandler
	polls    Polls
	ready    readiness
}

// New makes a monitor for a program of that version.
func New(version string) (*Monitor, error) {
	m := &Monitor{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := exporter.New(exporter.WithRegisterer(m.registry), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	meter := metric.NewMeterProvider(metric.WithReader(reader), metric.WithView(durationBuckets, dropNexus)).Meter("converge")
	m.handler = opentelemetry.NewMetricsHandler(opentelemetry.MetricsHandlerOptions{
		Meter: meter, UseMonotonicCounters: true,
		OnError: func(err error) { slog.Warn("not measured", "error", err) },
	})
	m.handler.WithTags(map[string]string{"version": version}).Gauge("converge_build_info").Update(1)
	m.ready.add("polling", m.polls.check)
	return m, nil
}

// Handler receives metrics.
func (m *Monitor) Handler() client.MetricsHandler { return m.handler }

// Polls is the result of the polls of a connection that has its DialOption.
func (m *Monitor) Polls() *Polls { return &m.polls }

// buckets fit both milliseconds, as of a decision, and minutes, as of an apply.
var buckets = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}

// durationBuckets makes every duration a histogram with these buckets.
func durationBuckets(i metric.Instrument) (metric.Stream, bool) {
	return metric.Stream{Name: i.Name, Description: i.Description, Unit: i.Unit, Aggregation: metric.AggregationExplicitBucketHistogram{Boundaries: buckets}},
		i.Kind == metric.InstrumentKindHistogram
}

// dropNexus drops the gauges of the SDK for worker types that we do not use.
func dropNexus(i metric.Instrument) (metric.Stream, bool) {
	return metric.Stream{Name: i.Name, Aggregation: metric.AggregationDrop{}}, strings.HasPrefix(i.Name, "temporal_nexus_")
}
