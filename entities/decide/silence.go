package decide

import (
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// This file decides what a runtime without an answer means: nothing for the target. The progress deadline stops at the last answer, an apply
// that could not begin waits for an answer, and the status is UNKNOWN.

// unanswered reports whether nothing can be observed at present, so that no deadline expires.
func (i *instance) unanswered() bool {
	return i.runtime.Observable && i.Observed.Reading.Err.SaysNothing()
}

// waitsForAnswer reports whether an apply could not begin, and waits until the runtime answers. Each attempt costs history; readings do not.
func (i *instance) waitsForAnswer() bool {
	a := &i.Delivery.Apply
	return i.WaitsForWorker() || i.unanswered() && a.FirstStarted.IsZero() && a.Err != ""
}

// awaitsLastReading reports whether a last reading is outstanding: nothing was read since the deadline passed (the engine may have been
// stopped), so a reading comes first. While it does not come, the target has not failed; after some time the state is UNKNOWN.
func (v *view) awaitsLastReading(i *instance, deadline time.Time) bool {
	if !i.runtime.Observable || !i.Observed.At.Before(deadline) {
		return false
	}
	requested := i.Delivery.Apply.Overdue
	if requested.IsZero() {
		v.addChange(state.Change{Kind: state.ChangeRequestReading, Instances: []entities.InstanceID{i.ID}, Cause: "the progress deadline has passed"})
		v.changed = v.changed || !v.fleet()
		return true
	}
	until := requested.Add(2*i.runtime.Timing.FetchTimeout + time.Minute)
	if i.unread = !v.now.Before(until); !i.unread {
		v.due(until)
	}
	return true
}
