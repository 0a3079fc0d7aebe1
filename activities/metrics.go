package activities

import (
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// Metrics of a worker, by their internal names. In Prometheus a duration ends with _seconds and a count with _total. Labels have few
// values: a runtime is a declared one, and there is no label for an application or a service.
const (
	metricApply              = "converge_apply_duration"
	metricReading            = "converge_reading_duration"
	metricCheck              = "converge_check_duration"
	metricHints              = "converge_hints"
	metricCheckpoints        = "converge_checkpoints"
	metricCheckpointsWaiting = "converge_checkpoints_waiting"
	metricStore              = "converge_store_request_duration"
)

// metrics returns the handler of this worker.
func (a *Activities) metrics() client.MetricsHandler {
	if a.Metrics == nil {
		return client.MetricsNopHandler
	}
	return a.Metrics
}

type labels = map[string]string

func (a *Activities) recordDuration(metric string, since time.Time, l labels) {
	a.metrics().WithTags(l).Timer(metric).Record(time.Since(since))
}

// recordApply records the duration and the result of an apply.
func (a *Activities) recordApply(since time.Time, r protocol.ApplyRequest, answer protocol.ApplyAnswer, err error) {
	outcome := "succeeded"
	switch {
	case IsPutOff(err):
		outcome = "put-off"
	case err != nil:
		outcome = "interrupted"
	case answer.Fenced != nil:
		outcome = "fenced"
	case answer.Unready:
		outcome = "unready"
	case answer.Err != "":
		outcome = "failed"
	}
	a.recordDuration(metricApply, since, labels{"runtime": r.Runtime, "kind": a.kindOf(r.Runtime, r.RuntimeDigest), "outcome": outcome})
}

// kindOf returns the kind of a runtime that is connected here; "": not connected.
func (a *Activities) kindOf(name, digest string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, conn := range a.connections {
		if strings.HasPrefix(key, name+"/"+digest+"/") {
			return string(conn.definition.Kind)
		}
	}
	return ""
}

// recordReading records the duration of a reading.
func (a *Activities) recordReading(since time.Time, of connection, reading entities.Reading) {
	outcome := "ok"
	if reading.Err != nil {
		outcome = "error"
	}
	a.recordDuration(metricReading, since, labels{"runtime": of.definition.Name, "kind": string(of.definition.Kind), "outcome": outcome})
}

// recordCheck records the duration of a check.
func (a *Activities) recordCheck(since time.Time, e entities.Evaluation, reading entities.CheckReading) {
	a.recordDuration(metricCheck, since, labels{"kind": string(e.Kind), "verdict": string(reading.Verdict)})
}

// recordHint counts the outcome of a followed hint.
func (a *Activities) recordHint(outcome string) {
	a.metrics().WithTags(labels{"outcome": outcome}).Counter(metricHints).Inc(1)
}

// RecordStoreRequest records a request to the store. The store calls it.
func (a *Activities) RecordStoreRequest(operation string, took time.Duration, failed bool) {
	outcome := "ok"
	if failed {
		outcome = "error"
	}
	a.metrics().WithTags(labels{"operation": operation, "outcome": outcome}).Timer(metricStore).Record(took)
}
