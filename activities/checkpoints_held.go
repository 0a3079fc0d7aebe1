package activities

import (
	"context"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
)

// heldCheckpoints are the checkpoints of workflow tasks that are not known to be complete. An attempt of a task that the server does not record
// leaves no checkpoint: the history has what every other checkpoint has.
type heldCheckpoints struct {
	accept func(pendingCheckpoint) // receives those of complete tasks

	mu      sync.Mutex
	taskEnd func(context.Context, protocol.Checkpoint) (TaskEnd, error) // asks Temporal how the task of a checkpoint ended; nil: nothing does
	byRun   map[string]heldCheckpoint
	closed  bool
}

type heldCheckpoint struct {
	pendingCheckpoint
	since time.Time // a checkpoint of the run is held
	at    time.Time // when this one was handed over
}

// is reports whether a checkpoint is the one that is held.
func (h *heldCheckpoint) is(c protocol.Checkpoint) bool { return h.N == c.N && h.At.Equal(c.At) }

// hold holds the checkpoint of a task that runs. It replaces that of an earlier task of the run, which it includes if that task completed.
func (h *heldCheckpoints) hold(c pendingCheckpoint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held, ok := h.byRun[c.Run]
	if ok {
		c.Earlier = earlierOf(held.Checkpoint, c.Checkpoint)
	} else {
		held.since = time.Now()
	}
	held.pendingCheckpoint, held.at = c, time.Now()
	if h.byRun == nil {
		h.byRun = map[string]heldCheckpoint{}
	}
	h.byRun[c.Run] = held
}

// ended accepts or discards the checkpoint of a task that has ended. A later task of the run, or a query, says nothing about it.
func (h *heldCheckpoints) ended(task workflowTask, how TaskEnd) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held, ok := h.byRun[task.run]; ok && !held.at.Before(task.since) {
		h.end(held, how)
	}
}

// end is ended. The caller holds the lock.
func (h *heldCheckpoints) end(held heldCheckpoint, how TaskEnd) {
	switch {
	case how.Complete:
		delete(h.byRun, held.Run)
		if how.Event > 0 {
			held.Event = how.Event
		}
		h.accept(held.pendingCheckpoint)
	case how.Discarded:
		delete(h.byRun, held.Run)
	default:
		h.examineLater(held.Checkpoint)
	}
}

// examineDelay is the time between two examinations of a task whose end is not known. The server gives up such a task after ten seconds.
const examineDelay = 15 * time.Second

// examineLater asks Temporal how the task of a checkpoint ended, unless it is replaced before.
func (h *heldCheckpoints) examineLater(c protocol.Checkpoint) {
	time.AfterFunc(examineDelay, func() {
		h.mu.Lock()
		held, ok := h.byRun[c.Run]
		taskEnd, over := h.taskEnd, h.closed || !ok || !held.is(c)
		h.mu.Unlock()
		if over || taskEnd == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), checkpointTimeout)
		defer cancel()
		how, err := taskEnd(ctx, c)
		if err != nil {
			how = TaskEnd{}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if held, ok := h.byRun[c.Run]; ok && held.is(c) {
			h.end(held, how)
		}
	})
}

// oldest is now, or the time since when one is held.
func (h *heldCheckpoints) oldest(now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, held := range h.byRun {
		if held.since.Before(now) {
			now = held.since
		}
	}
	return now
}

// close ends all examinations. It reports whether none is held.
func (h *heldCheckpoints) close() (none bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return len(h.byRun) == 0
}
