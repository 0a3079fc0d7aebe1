package seen

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/internal/stage"
	"github.com/converge-engine/converge/tests/temporaltest"
	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
	"github.com/converge-engine/converge/worker/monitor"
)

// guarded is two channels, production with a check.
const guarded = `apiVersion: converge/v1
kind: Application
name: APP
releaseChannels:
- {name: staging, runtimes: [{name: APP-rt}]}
- name: production
  runtimes: [{name: APP-rt}]
  preconditions: [{releaseChannelStable: {releaseChannel: staging}}]
  protections: [{name: open, always: {verdict: PASS}}]
---
apiVersion: converge/v1
kind: Runtime
name: APP-rt
fake: {pollInterval: 100ms, steadyPollInterval: 300ms, retry: {maxAttempts: 3, backoff: 100ms, maxBackoff: 1s}}
`

// monitored starts a worker that is looked at from outside, and returns where.
func monitored(t *testing.T, w *stage.World) (url string, stop func()) {
	t.Helper()
	m, err := monitor.New("test")
	require.NoError(t, err)
	at, hide, err := m.Serve(t.Context(), "0")
	require.NoError(t, err)
	t.Cleanup(hide)
	return "http://" + at, w.StartWorkerAs(worker.Options{Monitor: m})
}

// page is what is answered there.
func page(t *testing.T, url string) (code int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return answer.StatusCode, string(body)
}

// metricsAt are those that a worker serves, read as Prometheus does.
func metricsAt(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	code, text := page(t, url+"/metrics")
	require.Equal(t, http.StatusOK, code, text)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	require.NoError(t, err)
	return families
}

// value is the sum of what a metric counts where its labels have these values ("outcome=failed"): of a histogram, how often.
func value(families map[string]*dto.MetricFamily, name string, labels ...string) (sum float64) {
	for _, m := range families[name].GetMetric() {
		var has []string
		for _, l := range m.GetLabel() {
			has = append(has, l.GetName()+"="+l.GetValue())
		}
		if !slices.ContainsFunc(labels, func(want string) bool { return !slices.Contains(has, want) }) {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// documented are the metrics of docs/observing.md, with their labels.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/observing.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "<!-- metrics: held to a worker's /metrics by tests/seen -->")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "<!-- end -->")
	rows := map[string][]string{}
	quoted := regexp.MustCompile("`([^`]+)`")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		labels := []string{}
		for _, m := range quoted.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, m[1])
		}
		rows[strings.Trim(cells[1], " `")] = labels
	}
	require.NotEmpty(t, rows)
	return rows
}

// After a release, a failed apply and a lost workflow a worker serves every metric that is documented, with the labels that are,
// and none of ours beside; the SDK's are there too. Each counts what happened.
func TestMetricsAreThoseDocumented_F10(t *testing.T) {
	stage.Long(t, "a minute")
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	url, _ := monitored(t, w)
	w.Write(guarded + stage.Web)
	w.Publish()
	w.Await("web", "staging CONVERGED, production CONVERGED")
	w.Fake.At(w.App, "web", "staging").FailApplies(1, "try again")
	w.Release("web", "v1")
	w.Await("web", "staging CONVERGED v1, production CONVERGED v1")
	require.NoError(t, w.Client.TerminateWorkflow(t.Context(), w.ID("web"), "", "by mistake"))
	var families map[string]*dto.MetricFamily
	temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
		families = metricsAt(t, url)
		return value(families, "converge_workflows_started_again_total") > 0 && value(families, "converge_services", "status=CONVERGED") == 1, "counting"
	})

	want := documented(t)
	delete(want, "converge_hints_total") // the runtime here does not watch: TestHintsAreCounted
	ours := map[string][]string{}
	for name, family := range families {
		if strings.HasPrefix(name, "converge_") {
			labels := []string{}
			for _, l := range family.GetMetric()[0].GetLabel() {
				if !slices.Contains(ofSDK, l.GetName()) {
					labels = append(labels, l.GetName())
				}
			}
			ours[name] = labels
		}
	}
	for name := range want {
		slices.Sort(want[name])
		slices.Sort(ours[name])
	}
	require.Equal(t, want, ours)

	rt := "runtime=" + w.App + "-rt"
	require.InDelta(t, 1, value(families, "converge_apply_duration_seconds", rt, "kind=fake", "outcome=failed"), 0)
	require.InDelta(t, 2, value(families, "converge_apply_duration_seconds", rt, "kind=fake", "outcome=succeeded"), 0)
	require.Positive(t, value(families, "converge_reading_duration_seconds", rt, "kind=fake", "outcome=ok"))
	require.Positive(t, value(families, "converge_check_duration_seconds", "kind=always", "verdict=PASS"))
	require.Positive(t, value(families, "converge_decisions_total", "acted=true"))
	require.Positive(t, value(families, "converge_decisions_total", "acted=false"))
	require.Positive(t, value(families, "converge_checkpoints_total", "outcome=kept"))
	require.Positive(t, value(families, "converge_store_request_duration_seconds", "operation=write", "outcome=ok"))
	require.InDelta(t, 1, value(families, "converge_supervises"), 0)
	require.Positive(t, value(families, "converge_workflows_running"))
	for _, name := range []string{"temporal_request_total", "temporal_worker_task_slots_available", "temporal_activity_schedule_to_start_latency_seconds", "process_cpu_seconds_total", "go_goroutines"} {
		require.Contains(t, families, name)
	}
}

// ofSDK are the labels that Temporal's SDK adds to what a workflow counts.
var ofSDK = []string{"namespace", "client_name", "task_queue", "workflow_type", "worker_type", "activity_type"}

// A worker is ready when it asks for work, the server answers and the store can be read; each that fails is said by name, and
// it is alive all the same.
func TestReadiness_F10(t *testing.T) {
	t.Parallel()
	w := shared.Unserved(t, embedded.Options{})
	m, err := monitor.New("test")
	require.NoError(t, err)
	at, hide, err := m.Serve(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(hide)
	url := "http://" + at
	code, text := page(t, url+"/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "polling: it does not poll for work yet\n", text)

	w.StartWorkerAs(worker.Options{Monitor: m})
	ready := func(code int, pattern string) {
		t.Helper()
		temporaltest.WaitFor(t, stage.Patience, func() (bool, string) {
			has, text := page(t, url+"/readyz")
			return has == code && regexp.MustCompile(pattern).MatchString(text), text
		})
	}
	ready(http.StatusOK, `^polling: ok\ntemporal: ok\nstore: ok\n$`)

	require.NoError(t, os.Rename(w.Store, w.Store+"-away"))
	require.NoError(t, os.WriteFile(w.Store, nil, 0o600)) // no directory: nothing can be read
	ready(http.StatusServiceUnavailable, `(?m)^polling: ok\ntemporal: ok\nstore: .+`)
	require.NoError(t, os.Remove(w.Store))
	require.NoError(t, os.Rename(w.Store+"-away", w.Store))
	ready(http.StatusOK, `(?m)^store: ok$`)

	code, text = page(t, url+"/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", text)
}
