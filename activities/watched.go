package activities

import (
	"context"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// watched is one observation on a runtime that learns of changes by itself: its looks are noted, so
// that hints that come later are compared with them.
type watched struct {
	a       *Activities
	request protocol.ObserveRequest
	notes   bool

	mu     sync.Mutex
	shapes map[string]string // by channel, of the last look
	turns  map[string]int    // by channel, what to settle
}

func (a *Activities) watch(ctx context.Context, r protocol.ObserveRequest) *watched {
	w := &watched{a: a, request: r, shapes: map[string]string{}, turns: map[string]int{}}
	line, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if w.notes = err == nil && line.watches && r.Interval > 0; w.notes {
		for _, ref := range r.Instances {
			w.turns[ref.Channel] = a.hints.begin(ownerOf(r, ref.Channel))
		}
	}
	return w
}

func (w *watched) lookAt(ctx context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
	seen := w.a.lookAt(ctx, r, ref)
	if w.notes {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.shapes[ref.Channel] = shapeOf(seen, ref)
	}
	return seen
}

// slowest is the longest that looks at something that moves grow apart by themselves.
const slowest = 30 * time.Second

// interval is the time until the next look. Where changes are watched it grows while nothing is seen
// to change, since a thousand slow rollouts would keep a server busy with looks.
func (w *watched) interval(attempt int32) time.Duration {
	asked := w.request.Interval
	if !w.notes || asked >= slowest {
		return asked
	}
	return min(asked*time.Duration(1+attempt/4), slowest)
}

// pace takes out of the news what can wait, because it only tells more of what the workflow has just
// been told, and returns how long that is: a rollout would be told pod by pod otherwise. What was
// asked for is told at once.
func (w *watched) pace(news map[string]entities.Reading) (wait time.Duration) {
	if !w.notes {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range w.request.Instances {
		seen, ok := news[ref.Channel]
		if !ok || ref.Known == "" {
			continue
		}
		early := w.a.hints.early(ownerOf(w.request, ref.Channel), shapeOf(seen, ref), min(newsGap, w.request.Interval))
		if early > 0 {
			delete(news, ref.Channel)
			wait = max(wait, early)
		}
	}
	return wait
}

// tell notes what the workflow is told.
func (w *watched) tell(news map[string]entities.Reading) {
	if !w.notes {
		return
	}
	for _, ref := range w.request.Instances {
		if seen, ok := news[ref.Channel]; ok {
			w.a.hints.tell(ownerOf(w.request, ref.Channel), shapeOf(seen, ref))
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
		var found *sighting
		if shape, looked := w.shapes[ref.Channel]; looked && asKnown {
			found = &sighting{request: request, ref: ref, shape: shape, until: time.Now().Add(2*request.Interval + time.Minute)}
		}
		w.a.hints.settle(ownerOf(request, ref.Channel), w.turns[ref.Channel], found)
	}
}
