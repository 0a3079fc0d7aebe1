package activities

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

const (
	// checkpointAgain is when one is tried again that the store did not take.
	checkpointAgain = 5 * time.Second
	// checkpointWriters is how many are written at a time.
	checkpointWriters = 4
	checkpointTimeout = 30 * time.Second
	// checkpointLate is how long one is on its way when the store answers.
	checkpointLate = 2 * time.Second
)

// Checkpoints keeps checkpoints of this worker's workflows in the store, each soon after its workflow task, the newest of a
// workflow only. It blocks nobody: what the store does not take is held, and tried again. What is lost with the worker is
// handed over again by the next one that runs the workflow, and is in the workflow's history meanwhile.
type Checkpoints struct {
	store *store.Store
	// Metrics is where it counts. Nil: nowhere.
	Metrics client.MetricsHandler

	mu      sync.Mutex
	changed *sync.Cond
	newest  map[string]taken     // by workflow id: what is to be kept
	queue   []string             // of these, those whose turn it is
	resting map[string]bool      // being written, or not taken a moment ago
	since   map[string]time.Time // by workflow id: when the first was taken that may not be in the store
	away    bool                 // the store did not answer the last time
	closing bool
	writers sync.WaitGroup
}

// taken is a checkpoint without its state, and the state as JSON.
type taken struct {
	protocol.Checkpoint
	plain []byte
}

// NewCheckpoints makes one; Close ends it.
func NewCheckpoints(s *store.Store) *Checkpoints {
	c := &Checkpoints{store: s, newest: map[string]taken{}, resting: map[string]bool{}, since: map[string]time.Time{}}
	c.changed = sync.NewCond(&c.mu)
	for range checkpointWriters {
		c.writers.Go(c.write)
	}
	return c
}

// Take implements workflows.Checkpointer.
func (c *Checkpoints) Take(checkpoint protocol.Checkpoint, state []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, waits := c.newest[checkpoint.ID]
	if waits && before.Newer(&checkpoint) {
		return
	}
	c.newest[checkpoint.ID] = taken{checkpoint, state}
	if _, known := c.since[checkpoint.ID]; !known {
		c.since[checkpoint.ID] = time.Now()
	}
	if !waits && !c.resting[checkpoint.ID] {
		c.enqueue(checkpoint.ID)
	}
}

// enqueue has a checkpoint written. The lock is held.
func (c *Checkpoints) enqueue(id string) {
	c.queue = append(c.queue, id)
	c.changed.Signal()
}

// write writes checkpoints until there are none left once it is to end.
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
		one := c.newest[id]
		delete(c.newest, id)
		c.resting[id] = true
		c.mu.Unlock()
		err := c.put(one, &packer)
		c.mu.Lock()
		c.away = err != nil
		c.count(err)
		if err == nil {
			if _, newer := c.newest[id]; !newer {
				delete(c.since, id)
			}
			c.rested(id)
			continue
		}
		slog.Warn("checkpoint not kept; it is tried again", "workflow", id, "error", err)
		if _, newer := c.newest[id]; !newer {
			c.newest[id] = one
		}
		time.AfterFunc(checkpointAgain, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.rested(id)
		})
	}
}

func (c *Checkpoints) put(one taken, packer *protocol.Packer) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), checkpointTimeout)
	defer cancel()
	if one.State, err = packer.Pack(one.plain); err != nil {
		return err
	}
	return c.store.PutCheckpoint(ctx, one.Checkpoint)
}

// count counts one that was written, or not. The lock is held.
func (c *Checkpoints) count(err error) {
	if c.Metrics == nil {
		return
	}
	outcome := "kept"
	if err != nil {
		outcome = "failed"
	}
	c.Metrics.WithTags(labels{"outcome": outcome}).Counter(metricCheckpoints).Inc(1)
	c.Metrics.Gauge(metricUnkept).Update(float64(len(c.newest)))
}

// rested lets the next checkpoint of a workflow be written. The lock is held.
func (c *Checkpoints) rested(id string) {
	delete(c.resting, id)
	if _, waits := c.newest[id]; waits && !c.closing {
		c.enqueue(id)
	}
}

// KeptUpTo is the time up to which all that was taken is in the store: now, or when the oldest was taken that is not.
func (c *Checkpoints) KeptUpTo(now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, since := range c.since {
		if since.Before(now) {
			now = since
		}
	}
	return now
}

// Saw notes whether the store answered somebody else of this worker.
func (c *Checkpoints) Saw(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = err != nil
}

// Away implements workflows.Watcher: the store did not answer this worker the last time, or takes long over it.
func (c *Checkpoints) Away() bool {
	now := time.Now()
	late := now.Sub(c.KeptUpTo(now)) > checkpointLate
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.away || late
}

// Close tries once more to write what waits, and ends it. It tells whether all is in the store.
func (c *Checkpoints) Close() (all bool) {
	c.mu.Lock()
	c.closing = true
	queued := map[string]bool{}
	for _, id := range c.queue {
		queued[id] = true
	}
	for id := range c.newest {
		if !queued[id] {
			c.queue = append(c.queue, id)
		}
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	c.writers.Wait()
	return len(c.since) == 0
}
