package activities

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

const (
	// checkpointRetryDelay is the retry delay after a failed write.
	checkpointRetryDelay = 5 * time.Second
	// checkpointWriters is the number of concurrent writes.
	checkpointWriters = 4
	checkpointTimeout = 30 * time.Second
	// checkpointWriteLimit is how long a write takes at most while the store is available.
	checkpointWriteLimit = 2 * time.Second
)

// Checkpoints writes checkpoints of this worker's workflows to the store, each soon after its workflow task is complete, and only the newest
// of a workflow. It does not block callers. A failed write is retried. A checkpoint that is lost with the worker is submitted again by the next
// worker that runs the workflow; until then the state is in the workflow's history.
type Checkpoints struct {
	store *store.Store
	// Metrics counts the writes. Nil: no metrics.
	Metrics client.MetricsHandler
	// IsBehind reports whether a run went back behind the newest checkpoint of its workflow. Nil: no run did. It is called when the newest
	// checkpoint has a change that the one to write does not have.
	IsBehind func(ctx context.Context, newest protocol.Checkpoint, run string) (bool, error)

	held        heldCheckpoints
	stopReports func()

	mu           sync.Mutex
	changed      *sync.Cond
	pending      map[string]pendingCheckpoint // by workflow id: checkpoints to write
	queue        []string                     // workflow ids of pending that are ready to be written
	busy         map[string]bool              // true: being written; false: waiting after a failed write
	pendingSince map[string]time.Time         // by workflow id: time of the oldest checkpoint that may not be in the store
	latest       protocol.Checkpoint          // the latest one by time, without its state
	storeFailed  bool                         // the last request to the store failed
	undecided    map[string]bool              // workflow ids: the store answers, and Temporal did not say whether the workflow went back
	closing      bool
	behindRuns   map[string]string // by workflow id: runs whose checkpoint was behind the newest one, not taken yet
	behind       chan struct{}     // has a value after one was added
	writers      sync.WaitGroup
}

// pendingCheckpoint is a checkpoint without its state, and the state as JSON.
type pendingCheckpoint struct {
	protocol.Checkpoint
	plain []byte
}

// NewCheckpoints returns Checkpoints of the workflows whose tasks a connection has. They run until Close.
func NewCheckpoints(s *store.Store, tasks *Tasks) *Checkpoints {
	c := &Checkpoints{
		store: s, pending: map[string]pendingCheckpoint{}, busy: map[string]bool{}, pendingSince: map[string]time.Time{}, undecided: map[string]bool{},
		behindRuns: map[string]string{},
	}
	c.changed, c.behind = sync.NewCond(&c.mu), make(chan struct{}, 1)
	for range checkpointWriters {
		c.writers.Go(c.write)
	}
	c.held.accept = c.accept
	c.stopReports = tasks.report(c.held.ended)
	return c
}

// AskTaskEnd sets how Temporal is asked how the workflow task of a checkpoint ended, if it did not answer when it was completed.
func (c *Checkpoints) AskTaskEnd(taskEnd func(context.Context, protocol.Checkpoint) (TaskEnd, error)) {
	c.held.mu.Lock()
	defer c.held.mu.Unlock()
	c.held.taskEnd = taskEnd
}

// Take implements workflows.Checkpointer.
func (c *Checkpoints) Take(checkpoint protocol.Checkpoint, state []byte) {
	c.held.hold(pendingCheckpoint{checkpoint, state})
}

// accept queues a checkpoint to be written.
func (c *Checkpoints) accept(checkpoint pendingCheckpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !checkpoint.At.Before(c.latest.At) {
		c.latest = checkpoint.Checkpoint
	}
	before, queued := c.pending[checkpoint.ID]
	if queued && before.Newer(&checkpoint.Checkpoint) {
		return
	}
	if queued {
		checkpoint.Earlier = earlierOf(before.Checkpoint, checkpoint.Checkpoint)
	}
	c.pending[checkpoint.ID] = checkpoint
	if _, known := c.pendingSince[checkpoint.ID]; !known {
		c.pendingSince[checkpoint.ID] = time.Now()
	}
	if _, busy := c.busy[checkpoint.ID]; !queued && !busy {
		c.enqueue(checkpoint.ID)
	}
}

// maxEarlier bounds the changes that a checkpoint lists while the store is unavailable.
const maxEarlier = 1000

// earlierOf is what a checkpoint lists when it replaces another one that is not stored.
func earlierOf(before, c protocol.Checkpoint) []int64 {
	if !c.Follows(before.Change) {
		return c.Earlier
	}
	all := slices.Concat(before.Earlier, []int64{before.Change}, c.Earlier)
	slices.Sort(all)
	all = slices.Compact(all)
	return all[max(0, len(all)-maxEarlier):]
}

// enqueue queues a checkpoint. The caller holds the lock.
func (c *Checkpoints) enqueue(id string) {
	c.queue = append(c.queue, id)
	c.changed.Signal()
}

// write writes checkpoints until Close was called and the queue is empty.
func (c *Checkpoints) write() {
	var packer protocol.Packer
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		for len(c.queue) == 0 {
			if c.closing {
				return
			}
			c.changed.Wait()
		}
		id := c.queue[0]
		c.queue = c.queue[1:]
		next := c.pending[id]
		delete(c.pending, id)
		c.busy[id] = true
		c.mu.Unlock()
		err := c.put(next, &packer)
		if errors.As(err, new(*store.BehindError)) { // it is not stored: the workflow continues from the newest one
			slog.Warn("a workflow went back", "workflow", id, "error", err)
			c.reportBehind(id, next.Run)
			err = nil
		}
		c.mu.Lock()
		delete(c.undecided, id)
		if errors.As(err, new(*undecidedError)) {
			c.undecided[id] = true
		}
		c.storeFailed = err != nil && !c.undecided[id]
		c.count(err)
		if err == nil {
			if _, newer := c.pending[id]; !newer {
				delete(c.pendingSince, id)
			}
			c.release(id)
			continue
		}
		c.busy[id] = false
		slog.Warn("checkpoint not stored; retrying", "workflow", id, "error", err)
		newer, isNewer := c.pending[id]
		if !isNewer {
			newer = next
		}
		newer.Earlier = earlierOf(next.Checkpoint, newer.Checkpoint)
		c.pending[id] = newer
		time.AfterFunc(checkpointRetryDelay, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !c.closing {
				c.release(id)
			}
		})
	}
}

func (c *Checkpoints) put(checkpoint pendingCheckpoint, packer *protocol.Packer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkpointTimeout)
	defer cancel()
	if checkpoint.State, err = packer.Pack(checkpoint.plain); err != nil {
		return err
	}
	if c.IsBehind == nil {
		return c.store.PutCheckpoint(ctx, checkpoint.Checkpoint, nil)
	}
	return c.store.PutCheckpoint(ctx, checkpoint.Checkpoint, func(newest protocol.Checkpoint) (bool, error) {
		behind, err := c.IsBehind(ctx, newest, checkpoint.Run)
		if err != nil {
			err = &undecidedError{err}
		}
		return behind, err
	})
}

// undecidedError means that it is not known whether a workflow went back behind its newest checkpoint. The store answers.
type undecidedError struct{ err error }

func (e *undecidedError) Error() string {
	return "compare with the newest checkpoint: " + e.err.Error()
}

func (e *undecidedError) Unwrap() error { return e.err }

// count counts a write and its result. The caller holds the lock.
func (c *Checkpoints) count(err error) {
	if c.Metrics == nil {
		return
	}
	outcome := "kept"
	if err != nil {
		outcome = "failed"
	}
	c.Metrics.WithTags(labels{"outcome": outcome}).Counter(metricCheckpoints).Inc(1)
	c.Metrics.Gauge(metricCheckpointsWaiting).Update(float64(len(c.pending)))
}

// release allows the next write for a workflow. The caller holds the lock.
func (c *Checkpoints) release(id string) {
	delete(c.busy, id)
	if _, queued := c.pending[id]; queued {
		c.enqueue(id)
	}
}

// KeptUpTo returns the time up to which all submitted checkpoints are in the store: now, or the time of the oldest one that is not.
func (c *Checkpoints) KeptUpTo(now time.Time) time.Time {
	now = c.held.oldest(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, since := range c.pendingSince {
		if since.Before(now) {
			now = since
		}
	}
	return now
}

func (c *Checkpoints) reportBehind(id, run string) {
	c.mu.Lock()
	c.behindRuns[id] = run
	c.mu.Unlock()
	select {
	case c.behind <- struct{}{}:
	default: // it was not noticed yet
	}
}

// Behind returns a channel that gets a value when the state of a workflow is older than its newest checkpoint in the store.
func (c *Checkpoints) Behind() <-chan struct{} { return c.behind }

// TakeBehind returns the runs of which that was seen, by workflow id. Each is returned once.
func (c *Checkpoints) TakeBehind() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	runs := c.behindRuns
	c.behindRuns = map[string]string{}
	return runs
}

// Latest returns the latest checkpoint that workflows of this worker submitted, without its state; none if it has no ID.
func (c *Checkpoints) Latest() protocol.Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// RecordStoreResult records whether the store answered another part of this worker.
func (c *Checkpoints) RecordStoreResult(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.storeFailed = err != nil
}

// StoreUnavailable implements workflows.StoreHealth. It reports whether the last request of this worker to the store failed, or a write
// takes too long.
func (c *Checkpoints) StoreUnavailable() bool {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	overdue := false
	for id, since := range c.pendingSince {
		overdue = overdue || !c.undecided[id] && now.Sub(since) > checkpointWriteLimit
	}
	return c.storeFailed || overdue
}

// Close makes a last attempt to write pending checkpoints and stops. It reports whether all of them are in the store.
func (c *Checkpoints) Close() (complete bool) {
	c.stopReports()
	none := c.held.close()
	c.mu.Lock()
	c.closing = true
	queued := map[string]bool{}
	for _, id := range c.queue {
		queued[id] = true
	}
	for id := range c.pending {
		if !queued[id] && !c.busy[id] { // what is being written comes first
			c.queue = append(c.queue, id)
		}
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	c.writers.Wait()
	return none && len(c.pendingSince) == 0 && len(c.pending) == 0
}
