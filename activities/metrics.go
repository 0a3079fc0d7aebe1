package activities

import (
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Metrics that a worker counts, as they are called in it: in Prometheus a duration ends with _seconds, and a count with _total.
// Labels take few values: a runtime is one of those that are declared, and nothing is labelled by application or service.
const (
	metricApply       = "converge_apply_duration"
	metricReading     = "converge_reading_duration"
	metricCheck       = "converge_check_duration"
	metricHints       = "converge_hints"
	metricCheckpoints = "converge_checkpoints"
	metricUnkept      = "converge_checkpoints_waiting"
	metricStore       = "converge_store_request_duration"
)

// metrics is where this worker counts.
func (a *Activities) metrics() client.MetricsHandler {
	if a.Metrics == nil {
		return client.MetricsNopHandler
	}
	return a.Metrics
}

type labels = map[string]string

func (a *Activities) took(metric string, since time.Time, l labels) {
	a.metrics().WithTags(l).Timer(metric).Record(time.Since(since))
}

// applied measures an apply that began then, by how it ended.
func (a *Activities) applied(since time.Time, r protocol.ApplyRequest, answer protocol.ApplyAnswer, err error) {
	outcome := "succeeded"
	switch {
	case err != nil:
		outcome = "interrupted"
	case answer.Fenced != nil:
		outcome = "fenced"
	case answer.Unready:
		outcome = "unready"
	case answer.Err != "":
		outcome = "failed"
	}
	a.took(metricApply, since, labels{"runtime": r.Runtime, "kind": a.kindOf(r.Runtime, r.RuntimeDigest), "outcome": outcome})
}

// kindOf is of what kind a runtime is that was connected to here; "": none was.
func (a *Activities) kindOf(name, digest string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, line := range a.lines {
		if strings.HasPrefix(key, name+"/"+digest+"/") {
			return string(line.definition.Kind)
		}
	}
	return ""
}

// read measures a reading that began then.
func (a *Activities) read(since time.Time, of connection, reading entities.Reading) {
	outcome := "ok"
	if reading.Err != nil {
		outcome = "error"
	}
	a.took(metricReading, since, labels{"runtime": of.definition.Name, "kind": string(of.definition.Kind), "outcome": outcome})
}

// evaluated measures a check that began to be evaluated then.
func (a *Activities) evaluated(since time.Time, e entities.Evaluation, reading entities.CheckReading) {
	a.took(metricCheck, since, labels{"kind": string(e.Kind), "verdict": string(reading.Verdict)})
}

// hinted counts what came of a hint that somebody followed.
func (a *Activities) hinted(outcome string) {
	a.metrics().WithTags(labels{"outcome": outcome}).Counter(metricHints).Inc(1)
}

// Requested measures a request to the store; it is what a store is told to call.
func (a *Activities) Requested(operation string, took time.Duration, failed bool) {
	outcome := "ok"
	if failed {
		outcome = "error"
	}
	a.metrics().WithTags(labels{"operation": operation, "outcome": outcome}).Timer(metricStore).Record(took)
}
