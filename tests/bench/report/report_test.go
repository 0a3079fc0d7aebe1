package report_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/bench/report"
)

func TestTable(t *testing.T) {
	var r report.Report
	r.Add(report.Line{
		Row: "latency", What: "signal to apply", Measured: report.Dur(9 * time.Millisecond), Spread: "p95 12 ms",
		Reference: report.Ref(report.Dur(8 * time.Millisecond)), Against: "bare", Goal: report.Ref(report.Of(1.25, report.Times)),
	})
	r.Add(report.Line{
		Row: "idle", What: "events", Measured: report.Of(3, "events"), Goal: report.Ref(report.Of(0, "events")),
	})
	r.Add(report.Line{Row: "idle", What: "memory", Measured: report.Of(100<<20, report.Bytes)})
	r.Note("idle", "%d services", 1000)
	r.Fail("startup", errors.New("no compiler"))
	r.Skip("watch", errors.New("no cluster"))
	require.Equal(t, strings.TrimLeft(`
what             measured  spread     reference  ratio  goal      met
───────────────  ────────  ─────────  ─────────  ─────  ────────  ───
signal to apply  9 ms      p95 12 ms  8 ms bare  1.12×  ≤ 1.25×   yes

events           3 events                               0 events  NO
memory           100 MiB

idle
  1000 services

watch: not measured: no cluster

startup: not measured: no compiler
`, "\n"), r.Table())
}

func TestJSON(t *testing.T) {
	var r report.Report
	r.Machine = "two cores"
	r.Add(report.Line{Row: "decision", What: "all", Measured: report.Of(0.04, report.Seconds), Goal: report.Ref(report.Of(0.05, report.Seconds))})
	var out strings.Builder
	require.NoError(t, r.WriteJSON(&out))
	require.JSONEq(t, `{"machine": "two cores", "lines": [{"row": "decision", "what": "all",
		"measured": {"number": 0.04, "unit": "s"}, "goal": {"number": 0.05, "unit": "s"}, "met": true}]}`, out.String())
}

func TestValues(t *testing.T) {
	for want, v := range map[string]report.Value{
		"12.3 ms":         report.Dur(12345 * time.Microsecond),
		"1.50 s":          report.Dur(1500 * time.Millisecond),
		"250 ns":          report.Dur(250),
		"62.5 KiB":        report.Of(64000, report.Bytes),
		"0 B":             report.Of(0, report.Bytes),
		"7.20% of a core": report.Of(0.072, report.Cores),
		"17 events":       report.Of(17, "events"),
		"0.25 looks/s":    report.Of(0.25, "looks/s"),
		"1.25×":           report.Of(1.25, report.Times),
	} {
		require.Equal(t, want, v.String())
	}
}

func TestStatistics(t *testing.T) {
	samples := []time.Duration{50, 10, 40, 20, 30}
	require.Equal(t, time.Duration(30), report.Median(samples))
	require.Equal(t, time.Duration(50), report.Quantile(samples, 0.95))
	require.Equal(t, time.Duration(50), samples[0])
	require.Zero(t, report.Median(nil))

	double := make([]time.Duration, len(samples))
	for i, s := range samples {
		double[i] = 2 * s
	}
	low, high := report.RatioInterval(double, samples)
	require.Less(t, low, 2.0)
	require.Greater(t, high, 2.0)
	again, _ := report.RatioInterval(double, samples)
	require.Equal(t, low, again)
}
