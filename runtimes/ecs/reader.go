package ecs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/aws/aws-sdk-go-v2/service/ecs/types"

	"github.com/converge-engine/converge/runtimes"
)

const (
	maxServicesPerCall = 10 // services in one call of DescribeServices
	maxConcurrentCalls = 4  // concurrent calls
)

// cluster is the shared reader of all requested services of a cluster, ten with each call. It polls them, so that changes are
// noticed, and reads at once for a waiting caller. It drops services that are no longer requested.
type cluster struct {
	account *account
	name    string
	timing  timing
	// ctx ends when the cluster is closed: it is the context of all background work.
	ctx   context.Context //nolint:containedctx // of the worker: it reads for all
	stop  context.CancelFunc
	wake  chan struct{} // a caller waits
	slots chan struct{} // calls under way

	listing chan struct{} // held while all services are listed; it guards owners
	owners  serviceOwners

	mu       sync.Mutex
	started  bool
	entries  map[string]*entry // by name of the service
	watchers map[int]func(runtimes.Owner)
	next     int // id of the next watcher
}

// entry is the cached state of one service.
type entry struct {
	service       *types.Service // nil: it does not exist
	fingerprint   string         // of its content, to notify watchers of changes
	readAt        time.Time      // when its reading began; zero: never
	err           error          // of the last reading, if it failed
	triedAt       time.Time      // when that reading began
	done          chan struct{}  // closed and replaced whenever a reading ends
	reading       bool
	wantedAt      time.Time // a caller waits for a reading that begins at this time or later
	lastRequested time.Time
	owner         runtimes.Owner
	pendingWrite  *pendingWrite

	rollback rollback // of its service deployments, as last read
	stopped  stopped
	stage    stage
}

// pendingWrite is the state after a write, while reads may still show the earlier state.
type pendingWrite struct {
	before []string // fingerprints of readings from before it, and before writes right before it
	until  time.Time
}

func newCluster(a *account, name string, timing timing) *cluster {
	ctx, stop := context.WithCancel(context.Background())
	return &cluster{
		account: a, name: name, timing: timing, ctx: ctx, stop: stop,
		wake: make(chan struct{}, 1), slots: make(chan struct{}, maxConcurrentCalls), listing: make(chan struct{}, 1),
		entries: map[string]*entry{}, watchers: map[int]func(runtimes.Owner){},
	}
}

// watch calls hint for the owner of a service after each reading that differs from the last.
func (c *cluster) watch(hint func(runtimes.Owner)) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.next
	c.next++
	c.watchers[n] = hint
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, n)
	}
}

// entry returns the cached state of a service; c.mu is held.
func (c *cluster) entry(name string) *entry {
	e := c.entries[name]
	if e == nil {
		e = &entry{done: make(chan struct{})}
		c.entries[name] = e
	}
	return e
}

// read returns a service as it was at some time or later; nil: it does not exist. All callers share the value.
func (c *cluster) read(ctx context.Context, owner runtimes.Owner, name string, since time.Time) (*types.Service, error) {
	requested := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.ctx.Err() != nil {
			return nil, errClosed
		}
		c.mu.Lock()
		e := c.entry(name)
		e.lastRequested, e.owner = time.Now(), owner
		if !e.readAt.Before(since) && !e.readAt.IsZero() {
			defer c.mu.Unlock()
			return e.service, nil
		}
		if e.err != nil && !e.triedAt.Before(requested) {
			defer c.mu.Unlock()
			return nil, e.err
		}
		wanted := since
		if e.err != nil && e.triedAt.After(since) {
			wanted = time.Now() // an earlier failure is not waited for
		}
		e.wantedAt = latest(e.wantedAt, wanted)
		done := e.done
		c.startReader()
		c.mu.Unlock()
		c.wakeReader()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, c.timeoutError(ctx)
		case <-c.ctx.Done():
		}
	}
}

// timeoutError says why a reading was not complete in time: the rate limit is a more useful reason than the timeout.
func (c *cluster) timeoutError(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded && !c.account.limiter.hasSpare(serviceReads) {
		return &rateLimitError{serviceReads}
	}
	return ctx.Err()
}

func (c *cluster) wakeReader() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// startReader starts the reader; c.mu is held.
func (c *cluster) startReader() {
	if !c.started {
		c.started = true
		go c.runReader()
	}
}

// runReader reads the due services until the cluster is closed.
func (c *cluster) runReader() {
	for c.ctx.Err() == nil {
		select {
		case c.slots <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		names, wait := c.due(time.Now())
		if len(names) > 0 {
			go func() {
				c.readServices(names)
				<-c.slots
			}()
			continue
		}
		<-c.slots
		timer := time.NewTimer(wait)
		select {
		case <-c.wake:
			time.Sleep(c.timing.batchDelay) // concurrent requests join this one
		case <-timer.C:
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
}

// due lists the services to read next, at most ten: those with waiting callers first. It fills a call with the services that were
// read longest ago. If none is due, it returns how long to wait.
func (c *cluster) due(now time.Time) (names []string, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	interval := max(c.timing.pollInterval, time.Duration(len(c.entries))*c.timing.perService)
	wait = interval
	var idle []string
	for name, e := range c.entries {
		last := latest(e.readAt, e.triedAt)
		switch {
		case e.reading:
		case e.wantedAt.After(e.readAt) && e.wantedAt.After(e.triedAt):
			names = append(names, name)
		case now.Sub(e.lastRequested) > c.timing.idleTimeout:
			delete(c.entries, name)
		default:
			idle = append(idle, name)
			wait = min(wait, last.Add(interval).Sub(now))
		}
	}
	slices.Sort(names)
	slices.SortFunc(idle, func(a, b string) int {
		return latest(c.entries[a].readAt, c.entries[a].triedAt).Compare(latest(c.entries[b].readAt, c.entries[b].triedAt))
	})
	if len(names) == 0 && wait > 0 {
		return nil, wait
	}
	names = append(names, idle...)
	names = names[:min(len(names), maxServicesPerCall)]
	for _, name := range names {
		c.entries[name].reading = true
	}
	return names, 0
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// readServices reads some services and notifies watchers of changes.
func (c *cluster) readServices(names []string) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, c.timing.callTimeout+longestPause)
	defer cancel()
	found := map[string]*types.Service{}
	client, err := c.account.client(ctx)
	if err == nil {
		var out *ecs.DescribeServicesOutput
		out, err = call(ctx, c, serviceReads, client.DescribeServices, &ecs.DescribeServicesInput{
			Cluster: &c.name, Services: names, Include: []types.ServiceField{types.ServiceFieldTags},
		})
		if err == nil {
			err = indexServices(out, found)
		}
	}
	for _, sendHint := range c.storeReadings(names, found, began, err) {
		sendHint()
	}
}

// storeReadings stores the result of a reading, and returns the hints to send.
func (c *cluster) storeReadings(names []string, found map[string]*types.Service, began time.Time, err error) (hints []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		e := c.entry(name)
		e.reading, e.triedAt, e.err = false, began, err
		if err == nil && e.update(found[name], began) {
			owner := e.owner
			for _, hint := range c.watchers {
				hints = append(hints, func() { hint(owner) })
			}
		}
		close(e.done)
		e.done = make(chan struct{})
	}
	return hints
}

// indexServices adds the services of an answer by name. A missing or INACTIVE service does not exist. Single names may fail in an otherwise
// successful answer.
func indexServices(out *ecs.DescribeServicesOutput, found map[string]*types.Service) error {
	for i := range out.Services {
		if s := &out.Services[i]; text(s.Status) != "INACTIVE" {
			found[text(s.ServiceName)] = s
		}
	}
	for _, f := range out.Failures {
		if text(f.Reason) != "MISSING" {
			return fmt.Errorf("%s: %s %s", text(f.Arn), text(f.Reason), text(f.Detail))
		}
	}
	return nil
}

// update stores a reading, and reports whether it is a change. While reads may lag behind a write, it ignores a reading that shows the
// state before the write.
func (e *entry) update(s *types.Service, began time.Time) (changed bool) {
	if began.Before(e.readAt) { // of two concurrent readings the later one counts
		return false
	}
	e.readAt = began
	if w := e.pendingWrite; w != nil {
		if began.Before(w.until) && slices.Contains(w.before, stateOf(s)) {
			return false
		}
		e.pendingWrite = nil
	}
	print := fingerprintOf(s)
	changed, e.service, e.fingerprint = print != e.fingerprint, s, print
	return changed
}

// recordWrite stores the answer to a write as the current state, until reads show it too.
func (c *cluster) recordWrite(name string, before, now *types.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(name)
	written := time.Now()
	e.service, e.fingerprint, e.readAt = now, fingerprintOf(now), written
	pending := &pendingWrite{until: written.Add(c.timing.readLag)}
	if e.pendingWrite != nil {
		pending.before = e.pendingWrite.before
	}
	pending.before = append(pending.before, stateOf(before))
	e.pendingWrite = pending
}

// fingerprintOf is equal for equal services, without their events: those continue without changes.
func fingerprintOf(s *types.Service) string {
	if s == nil {
		return ""
	}
	bare := *s
	bare.Events = nil
	bare.Deployments = slices.Clone(s.Deployments)
	for i := range bare.Deployments {
		bare.Deployments[i].UpdatedAt = nil
	}
	data, err := json.Marshal(bare)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// stateOf identifies the state of a service by the last action of ECS: its deployments, their states, and its newest event. A
// rollback to the earlier deployment leaves events.
func stateOf(s *types.Service) string {
	if s == nil {
		return ""
	}
	parts := []string{text(s.Status), fmt.Sprint(s.DesiredCount)}
	for _, d := range s.Deployments {
		parts = append(parts, text(d.Id), text(d.Status), string(d.RolloutState))
	}
	if len(s.Events) > 0 {
		parts = append(parts, text(s.Events[0].Id))
	}
	for _, t := range s.Tags {
		parts = append(parts, text(t.Key)+"="+text(t.Value))
	}
	return strings.Join(parts, " ")
}
