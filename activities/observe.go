package activities

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// Observe observes instances of one service, each separately and with its own deadline, so that a hung one is reported alone and delays
// no other (A7). It completes when a reading differs from the known state. Otherwise it asks the server for another attempt after the
// interval, which writes no history.
func (a *Activities) Observe(ctx context.Context, r protocol.ObserveRequest) (protocol.ObserveAnswer, error) {
	news, atHand, err := a.observeOn(ctx, r)
	return protocol.ObserveAnswer{Readings: news, AtHand: len(atHand) > 0}, err
}

// ObserveAll is Observe for several runtimes. It skips a runtime whose reading places are all taken.
func (a *Activities) ObserveAll(ctx context.Context, r protocol.ObserveAllRequest) (protocol.ObserveAllAnswer, error) {
	if r.Here && slices.ContainsFunc(r.Of, func(of protocol.ObserveRequest) bool { return !a.prompt.answers(of.RuntimeDigest, time.Now()) }) {
		return protocol.ObserveAllAnswer{}, errNotHere
	}
	news, atHand, err := a.observeOn(ctx, r.Of...)
	if err == nil && r.Here && !whole(news, r.Of) {
		return protocol.ObserveAllAnswer{}, errNotHere
	}
	return protocol.ObserveAllAnswer{Readings: news, AtHand: atHand}, err
}

// errNotHere means that not all instances can be read locally. The workflow then observes all of them with an activity.
var errNotHere = errors.New("not all instances can be read locally")

// whole reports whether all requested instances were read without an error.
func whole(readings map[entities.InstanceID]entities.Reading, asked []protocol.ObserveRequest) bool {
	for _, r := range asked {
		for _, ref := range r.Instances {
			if reading, ok := readings[ref.ID]; !ok || reading.Err != nil {
				return false
			}
		}
	}
	return true
}

// observeOn observes instances on some runtimes until there is news. It also returns the runtimes that have the state cached.
func (a *Activities) observeOn(ctx context.Context, requests ...protocol.ObserveRequest) (news map[entities.InstanceID]entities.Reading, atHand []string, err error) {
	info := activity.GetInfo(ctx)
	if info.Attempt == 1 { // the workflow has just made a decision
		a.follows.moved(info.WorkflowExecution.ID)
	}
	var full string         // a runtime without a free reading place
	var again time.Duration // delay until the next attempt; zero: the interval
	all := watching{}
	for _, r := range requests {
		leave, away := a.readings.take(r.Application+"/"+r.Runtime, time.Now())
		if leave == nil {
			full, again = r.Runtime, max(again, spread(away, info.WorkflowExecution.ID))
			continue
		}
		defer leave()
		all = append(all, a.watch(ctx, r))
		all[len(all)-1].leaves(leave)
	}
	if len(all) == 0 {
		return nil, nil, noPlace("readings of runtime "+full, again)
	}
	news = observeAll(ctx, all.observe, all.requests()...)
	bound(news, entities.SortedIDs(news))
	if ctx.Err() != nil { // the worker is stopping: incomplete readings are discarded
		all.end(false)
		return nil, nil, ctx.Err()
	}
	again = max(again, all.pace(news))
	if len(news) > 0 || requests[0].Interval == 0 {
		all.notified(news)
		all.end(true)
		return news, all.atHand(), nil
	}
	all.end(true)
	if again == 0 {
		again = spread(all.interval(info.Attempt), info.WorkflowExecution.ID)
	}
	return nil, nil, asKnown(again)
}

// watching are concurrent observations of one service on different runtimes.
type watching []*watched

func (all watching) requests() []protocol.ObserveRequest {
	out := make([]protocol.ObserveRequest, 0, len(all))
	for _, w := range all {
		out = append(out, w.request)
	}
	return out
}

func (all watching) observe(ctx context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
	at := slices.IndexFunc(all, func(w *watched) bool { return w.request.Runtime == r.Runtime })
	return all[at].observe(ctx, ref)
}

func (all watching) atHand() (runtimes []string) {
	for _, w := range all {
		if w.atHand {
			runtimes = append(runtimes, w.request.Runtime)
		}
	}
	return runtimes
}

func (all watching) pace(news map[entities.InstanceID]entities.Reading) (wait time.Duration) {
	for _, w := range all {
		wait = max(wait, w.pace(news))
	}
	return wait
}

func (all watching) interval(attempt int32) time.Duration {
	shortest := all[0].interval(attempt)
	for _, w := range all[1:] {
		shortest = min(shortest, w.interval(attempt))
	}
	return shortest
}

func (all watching) notified(news map[entities.InstanceID]entities.Reading) {
	for _, w := range all {
		w.notified(news)
	}
}

func (all watching) end(whole bool) {
	for _, w := range all {
		w.end(whole)
	}
}

// asKnown returns an error that makes the server retry later. The retry writes no history.
func asKnown(wait time.Duration) error {
	return temporal.NewApplicationErrorWithOptions("unchanged", protocol.ErrUnchanged, temporal.ApplicationErrorOptions{
		NextRetryDelay: wait, Category: temporal.ApplicationErrorCategoryBenign,
	})
}

func (a *Activities) observeOne(ctx context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
	line, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if err != nil {
		return unready(err)
	}
	in, err := a.instance(ctx, runtimes.Instance{
		Owner: ownerOf(r, ref.ID), ServiceID: r.ServiceID, FullVersion: ref.FullVersion, Restarted: ref.Restarted,
	}, ref.Payload, true)
	if err == nil {
		err = a.mayUse(ctx, line, &in, lookedUp)
	}
	if err == nil {
		err = a.decrypt(&in)
	}
	if err != nil {
		return unready(err)
	}
	began := time.Now()
	reading, output := line.observe(ctx, in, r.Timeout)
	a.read(began, line, reading)
	a.prompt.read(r.RuntimeDigest, began, time.Since(began), reading)
	if reading.Digest() != ref.Known && ctx.Err() == nil {
		a.logFetch(ctx, in, output, reading)
	}
	return reading
}

// unready returns the reading for an observation that could not start.
func unready(err error) entities.Reading {
	return entities.Reading{At: time.Now().UTC(), Err: &entities.ReadingError{Code: "not-ready", Message: runtimes.Clip(err.Error(), 1000)}}
}

// spread changes an interval by up to a tenth. The change is constant per service, so services that started together do not observe
// together for ever.
func spread(interval time.Duration, key string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return interval + interval*time.Duration(int64(h.Sum32()%201)-100)/1000
}

// watched is one observation on a runtime that reports changes, or of steady instances. Its readings are recorded, so later hints and
// readings are compared with them.
type watched struct {
	a       *Activities
	request protocol.ObserveRequest
	hinted  bool // the runtime sends hints
	atHand  bool // the runtime has the state cached
	notes   bool

	mu    sync.Mutex
	first map[entities.InstanceID]bool // instances without a first reading
	leave func()                       // releases the reading place of the runtime
	last  map[entities.InstanceID]seen
	turns map[entities.InstanceID]int // turns to pass to settle
}

// seen is the recorded part of a reading. digest is set only if the runtime sends no hints, because hints cover less than the digest.
type seen struct {
	shape  shape
	digest string
}

func (a *Activities) watch(ctx context.Context, r protocol.ObserveRequest) *watched {
	w := &watched{a: a, request: r, last: map[entities.InstanceID]seen{}, turns: map[entities.InstanceID]int{}}
	line, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	w.hinted, w.atHand = err == nil && line.watches && r.Interval > 0, err == nil && line.mirrors
	if w.notes = w.hinted || rests(resting(r)) && a.hints.reads(); w.notes { // if the runtime is unreachable, that is the known state
		for _, ref := range r.Instances {
			w.turns[ref.ID] = a.hints.begin(ownerOf(r, ref.ID))
		}
	}
	return w
}

// leaves sets the function that releases the reading place. It is called after the first reading of all instances, even if this
// observation continues because another runtime hangs.
func (w *watched) leaves(place func()) {
	w.first, w.leave = map[entities.InstanceID]bool{}, place
	for _, ref := range w.request.Instances {
		w.first[ref.ID] = true
	}
}

func (w *watched) isRead(id entities.InstanceID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.first, id); len(w.first) == 0 {
		w.leave()
	}
}

func (w *watched) observe(ctx context.Context, ref protocol.InstanceRef) entities.Reading {
	reading := w.a.observeOne(ctx, w.request, ref)
	w.isRead(ref.ID)
	if w.notes {
		w.mu.Lock()
		defer w.mu.Unlock()
		now := seen{shape: shapeOf(reading, ref)}
		if !w.hinted {
			now.digest = reading.Digest()
		}
		w.last[ref.ID] = now
	}
	return reading
}

// slowest is the maximum interval to which readings of an unsteady instance back off.
const slowest = 30 * time.Second

// interval returns the time until the next reading. On a runtime with a watch it grows while nothing changes, because a thousand slow
// rollouts would keep a server busy.
func (w *watched) interval(attempt int32) time.Duration {
	asked := w.request.Interval
	if w.notes && rests(w.request) && w.a.hints.reliedOn() {
		return max(asked, protocol.SafetyInterval)
	}
	if !w.hinted || asked >= slowest {
		return asked
	}
	return min(asked*time.Duration(1+attempt/4), slowest)
}

// pace removes news that can wait from news, and returns the delay. Such news only adds details to a recent notification; without the
// delay a rollout would be reported pod by pod. Requested readings are reported at once.
func (w *watched) pace(news map[entities.InstanceID]entities.Reading) (wait time.Duration) {
	if !w.hinted {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range w.request.Instances {
		reading, ok := news[ref.ID]
		if !ok || ref.Known == "" {
			continue
		}
		early := w.a.hints.early(ownerOf(w.request, ref.ID), shapeOf(reading, ref), min(newsGap, w.request.Interval))
		if early > 0 {
			delete(news, ref.ID)
			wait = max(wait, early)
		}
	}
	return wait
}

// notified records the content of the notification to the workflow.
func (w *watched) notified(news map[entities.InstanceID]entities.Reading) {
	if !w.hinted {
		return
	}
	for _, ref := range w.request.Instances {
		if reading, ok := news[ref.ID]; ok {
			w.a.hints.notified(ownerOf(w.request, ref.ID), shapeOf(reading, ref))
		}
	}
}

// end records the state that the workflow knows from now on, if the readings were whole.
func (w *watched) end(whole bool) {
	if !w.notes {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	request := resting(w.request)
	request.Instances = nil
	for _, ref := range w.request.Instances {
		owner := ownerOf(request, ref.ID)
		var found *observed
		if last, done := w.last[ref.ID]; done && whole {
			ref.Known = last.digest
			found = &observed{request: request, ref: ref, shape: last.shape}
		}
		if found == nil && !w.hinted {
			w.a.hints.passed(owner, w.turns[ref.ID])
			continue
		}
		w.a.hints.settle(owner, w.turns[ref.ID], found)
	}
}
