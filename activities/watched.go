package activities

import (
	"context"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// watched is one observation on a runtime that learns of changes by itself: its readings are noted, so
// that hints that come later are compared with them.
type watched struct {
	a       *Activities
	request protocol.ObserveRequest
	notes   bool

	mu     sync.Mutex
	shapes map[entities.InstanceID]string // of the last reading
	turns  map[entities.InstanceID]int    // what to settle
}

func (a *Activities) watch(ctx context.Context, r protocol.ObserveRequest) *watched {
	w := &watched{a: a, request: r, shapes: map[entities.InstanceID]string{}, turns: map[entities.InstanceID]int{}}
	line, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if w.notes = err == nil && line.watches && r.Interval > 0; w.notes {
		for _, ref := range r.Instances {
			w.turns[ref.ID] = a.hints.begin(ownerOf(r, ref.ID))
		}
	}
	return w
}

func (w *watched) observe(ctx context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
	reading := w.a.observeOne(ctx, r, ref)
	if w.notes {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.shapes[ref.ID] = shapeOf(reading, ref)
	}
	return reading
}

// slowest is the longest that readings of something that moves grow apart by themselves.
const slowest = 30 * time.Second

// interval is the time until the next reading. Where changes are watched it grows while nothing
// changes, since a thousand slow rollouts would keep a server busy.
func (w *watched) interval(attempt int32) time.Duration {
	asked := w.request.Interval
	if !w.notes || asked >= slowest {
		return asked
	}
	return min(asked*time.Duration(1+attempt/4), slowest)
}

// pace takes out of the news what can wait, because it only adds to what the workflow has just been
// notified of, and returns how long that is: a rollout would be announced pod by pod otherwise. What was
// asked for is announced at once.
func (w *watched) pace(news map[entities.InstanceID]entities.Reading) (wait time.Duration) {
	if !w.notes {
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

// notified notes what the workflow is notified of.
func (w *watched) notified(news map[entities.InstanceID]entities.Reading) {
	if !w.notes {
		return
	}
	for _, ref := range w.request.Instances {
		if reading, ok := news[ref.ID]; ok {
			w.a.hints.notified(ownerOf(w.request, ref.ID), shapeOf(reading, ref))
		}
	}
}

// end says how the observation ended: as known, so that it is repeated after the interval, or not.
func (w *watched) end(asKnown bool) {
	if !w.notes {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	request := w.request
	request.Instances = nil
	for _, ref := range w.request.Instances {
		var found *observed
		if shape, done := w.shapes[ref.ID]; done && asKnown {
			found = &observed{request: request, ref: ref, shape: shape, until: time.Now().Add(2*request.Interval + time.Minute)}
		}
		w.a.hints.settle(ownerOf(request, ref.ID), w.turns[ref.ID], found)
	}
}
