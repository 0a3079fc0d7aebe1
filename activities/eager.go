package activities

import (
	"maps"
	"slices"
	"sync"
	"time"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/converge-engine/converge/entities/protocol"
)

// eager records the request time of each eagerly dispatched activity: the response to a completed workflow task includes the activities that
// it starts. The server cannot have dispatched such an attempt before the request. So an attempt that begins soon after it belongs to this
// worker for a while, and need not wait for its first heartbeat (F7). This is free, while a heartbeat took longer than all other steps before
// an apply.
type eager struct {
	mu        sync.Mutex
	requested map[string]time.Time // request times, by task token
}

// writeActivities are the activities that make external changes.
var writeActivities = []string{protocol.ActivityApply, protocol.ActivityRemove, protocol.ActivityExtension}

func (e *eager) record(answer *workflowservice.RespondWorkflowTaskCompletedResponse, requested time.Time) {
	for _, task := range answer.GetActivityTasks() {
		if slices.Contains(writeActivities, task.GetActivityType().GetName()) {
			e.add(string(task.GetTaskToken()), requested)
		}
	}
}

// add records a request time. It drops old records of activities that never started, because their workflows had ended or the worker
// stops.
func (e *eager) add(token string, requested time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.requested) >= 1000 {
		maps.DeleteFunc(e.requested, func(_ string, old time.Time) bool { return requested.Sub(old) > heartbeatInterval })
	}
	if e.requested == nil {
		e.requested = map[string]time.Time{}
	}
	e.requested[token] = requested
}

// take returns the request time of an attempt that begins now, if it is known and less than a heartbeat interval ago. It also checks the
// wall clock, which advances while the machine is suspended.
func (e *eager) take(token []byte) (requested time.Time, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	requested, ok = e.requested[string(token)]
	delete(e.requested, string(token))
	now := time.Now()
	return requested, ok && now.Sub(requested) < heartbeatInterval && now.Round(0).Sub(requested.Round(0)).Abs() < heartbeatInterval
}
