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
}

func (a *Activities) watch(ctx context.Context, r protocol.ObserveRequest) *watched {
	w := &watched{a: a, request: r, shapes: map[string]string{}}
	line, err := a.connect(ctx, r.Runtime, r.RuntimeDigest)
	if w.notes = err == nil && line.watches && r.Interval > 0; w.notes {
		for _, ref := range r.Instances {
			a.hints.begin(ownerOf(r, ref.Channel))
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
		w.a.hints.settle(ownerOf(request, ref.Channel), found)
	}
}
