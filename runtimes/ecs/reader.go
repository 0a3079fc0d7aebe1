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
	atOnce  = 10 // services that DescribeServices takes
	readers = 4  // calls under way at a time
)

// cluster is read for all services on it that somebody asks about, ten with each call: again and again, so that changes are
// noticed, and at once for who wants to know. Services that nobody asks about any more are left out.
type cluster struct {
	account *account
	name    string
	timing  timing
	// ctx ends when the cluster is closed: what goes on in the background goes on under it.
	ctx  context.Context //nolint:containedctx // of the worker: it reads for all
	stop context.CancelFunc
	wake chan struct{} // somebody wants to know
	slot chan struct{} // calls under way

	listing chan struct{} // whoever lists all services; it guards owners
	owners  owners

	mu       sync.Mutex
	started  bool
	entries  map[string]*entry // by name of the service
	watchers map[int]func(runtimes.Owner)
	next     int // number of the next watcher
}

// entry is what is known of one service.
type entry struct {
	service *types.Service // nil: it is not there
	print   string         // of what it says, for who is told of changes
	began   time.Time      // when the reading of it began; zero: never
	err     error          // of the last reading, if it failed
	tried   time.Time      // when that began
	done    chan struct{}  // closed, and made anew, whenever a reading ends
	reading bool
	wanted  time.Time // somebody waits for a reading that begins at this time or later
	asked   time.Time
	owner   runtimes.Owner
	wrote   *written

	undone  undone // of its service deployments, as they were when it was last asked
	stopped stopped
	stage   stage
}

// written is what a write left, while reads may still show what was before it.
type written struct {
	before []string // what readings say that know nothing of it, nor of writes right before it
	until  time.Time
}

func newCluster(a *account, name string, timing timing) *cluster {
	ctx, stop := context.WithCancel(context.Background())
	return &cluster{
		account: a, name: name, timing: timing, ctx: ctx, stop: stop,
		wake: make(chan struct{}, 1), slot: make(chan struct{}, readers), listing: make(chan struct{}, 1),
		entries: map[string]*entry{}, watchers: map[int]func(runtimes.Owner){},
	}
}

// watch calls hint for the owner of a service that was read and differs from what it was.
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

// entry finds what is known of a service; c.mu is held.
func (c *cluster) entry(name string) *entry {
	e := c.entries[name]
	if e == nil {
		e = &entry{done: make(chan struct{})}
		c.entries[name] = e
	}
	return e
}

// read returns a service as it was at some time or later; nil: it is not there. The same value is given to all who ask.
func (c *cluster) read(ctx context.Context, owner runtimes.Owner, name string, since time.Time) (*types.Service, error) {
	asked := time.Now()
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if c.ctx.Err() != nil {
			return nil, errClosed
		}
		c.mu.Lock()
		e := c.entry(name)
		e.asked, e.owner = time.Now(), owner
		if !e.began.Before(since) && !e.began.IsZero() {
			defer c.mu.Unlock()
			return e.service, nil
		}
		if e.err != nil && !e.tried.Before(asked) {
			defer c.mu.Unlock()
			return nil, e.err
		}
		wanted := since
		if e.err != nil && e.tried.After(since) {
			wanted = time.Now() // what failed before is not waited for
		}
		e.wanted = later(e.wanted, wanted)
		done := e.done
		c.start()
		c.mu.Unlock()
		c.stir()
		select {
		case <-done:
		case <-ctx.Done():
			return nil, c.why(ctx)
		case <-c.ctx.Done():
		}
	}
}

// why says why what was asked for did not come in time: what ECS allows counts for more than that time was up.
func (c *cluster) why(ctx context.Context) error {
	if ctx.Err() == context.DeadlineExceeded && !c.account.pace.spare(serviceReads) {
		return &slowedError{serviceReads}
	}
	return ctx.Err()
}

func (c *cluster) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// start begins to read; c.mu is held.
func (c *cluster) start() {
	if !c.started {
		c.started = true
		go c.follow()
	}
}

// follow reads what is due until the cluster is closed.
func (c *cluster) follow() {
	for c.ctx.Err() == nil {
		select {
		case c.slot <- struct{}{}:
		case <-c.ctx.Done():
			return
		}
		names, wait := c.due(time.Now())
		if len(names) > 0 {
			go func() {
				c.describe(names)
				<-c.slot
			}()
			continue
		}
		<-c.slot
		timer := time.NewTimer(wait)
		select {
		case <-c.wake:
			time.Sleep(c.timing.gather) // others who ask at the same time go with it
		case <-timer.C:
		case <-c.ctx.Done():
		}
		timer.Stop()
	}
}

// due lists the services to read next, at most ten: those that somebody waits for first. A call that is made anyway is
// filled up with those that were not read for the longest. Where nothing is due it says for how long.
func (c *cluster) due(now time.Time) (names []string, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	every := max(c.timing.watch, time.Duration(len(c.entries))*c.timing.each)
	wait = every
	var idle []string
	for name, e := range c.entries {
		last := later(e.began, e.tried)
		switch {
		case e.reading:
		case e.wanted.After(e.began) && e.wanted.After(e.tried):
			names = append(names, name)
		case now.Sub(e.asked) > c.timing.interest:
			delete(c.entries, name)
		default:
			idle = append(idle, name)
			wait = min(wait, last.Add(every).Sub(now))
		}
	}
	slices.Sort(names)
	slices.SortFunc(idle, func(a, b string) int {
		return later(c.entries[a].began, c.entries[a].tried).Compare(later(c.entries[b].began, c.entries[b].tried))
	})
	if len(names) == 0 && wait > 0 {
		return nil, wait
	}
	names = append(names, idle...)
	names = names[:min(len(names), atOnce)]
	for _, name := range names {
		c.entries[name].reading = true
	}
	return names, 0
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// describe reads some services and tells of those that changed.
func (c *cluster) describe(names []string) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(c.ctx, c.timing.call+longestPause)
	defer cancel()
	found := map[string]*types.Service{}
	client, err := c.account.client(ctx)
	if err == nil {
		var out *ecs.DescribeServicesOutput
		out, err = call(ctx, c, serviceReads, client.DescribeServices, &ecs.DescribeServicesInput{
			Cluster: &c.name, Services: names, Include: []types.ServiceField{types.ServiceFieldTags},
		})
		if err == nil {
			err = file(out, found)
		}
	}
	for _, tell := range c.noted(names, found, began, err) {
		tell()
	}
}

// noted files what a reading found, and returns the hints to give.
func (c *cluster) noted(names []string, found map[string]*types.Service, began time.Time, err error) (hints []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		e := c.entry(name)
		e.reading, e.tried, e.err = false, began, err
		if err == nil && e.take(found[name], began) {
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

// file files the services of an answer by name. A service that is missing, or INACTIVE, is not there; a name may fail for
// other reasons in an answer that is well otherwise.
func file(out *ecs.DescribeServicesOutput, found map[string]*types.Service) error {
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

// take notes what was read, and reports whether it is something new. While reads may lag behind a write, one that says
// what was before it says nothing.
func (e *entry) take(s *types.Service, began time.Time) (changed bool) {
	if began.Before(e.began) { // of two at once the later one counts
		return false
	}
	e.began = began
	if w := e.wrote; w != nil {
		if began.Before(w.until) && slices.Contains(w.before, stampOf(s)) {
			return false
		}
		e.wrote = nil
	}
	print := printOf(s)
	changed, e.service, e.print = print != e.print, s, print
	return changed
}

// wrote notes what a write answered: it is what there is, until reads know of it too.
func (c *cluster) wrote(name string, before, now *types.Service) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entry(name)
	began := time.Now()
	e.service, e.print, e.began = now, printOf(now), began
	mark := &written{until: began.Add(c.timing.settle)}
	if e.wrote != nil {
		mark.before = e.wrote.before
	}
	mark.before = append(mark.before, stampOf(before))
	e.wrote = mark
}

// printOf is equal for equal services, their events left out: those go on while nothing happens.
func printOf(s *types.Service) string {
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

// stampOf tells apart the states of a service by what ECS did with it last: its deployments, what they do, and its newest
// event. A rollback that brings back the deployment before leaves events.
func stampOf(s *types.Service) string {
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
