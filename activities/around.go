package activities

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// gather is how long news of one instance waits for news of the others.
const gather = time.Second

// look takes one reading of one instance.
type look func(context.Context, protocol.ObserveRequest, protocol.InstanceRef) entities.Reading

// lookAround looks at all instances at once and returns the readings that are not as known, by
// channel. It returns when every instance was looked at, or a moment after the first news: who hangs
// then is looked at again in the next round, and holds up nobody's news. While somebody hangs, the
// others are looked at again every interval (A7).
func lookAround(ctx context.Context, r protocol.ObserveRequest, at look) map[string]entities.Reading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	round := &round{request: r, at: at, waiting: len(r.Instances), all: make(chan struct{}), news: map[string]entities.Reading{}, first: make(chan struct{})}
	var wg sync.WaitGroup
	for _, ref := range r.Instances {
		wg.Go(func() { round.watch(ctx, ref) })
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-round.first:
		select {
		case <-done:
		case <-time.After(gather):
		}
	}
	return round.seen()
}

// round is one look around.
type round struct {
	request protocol.ObserveRequest
	at      look

	mu      sync.Mutex
	waiting int           // instances not looked at even once
	all     chan struct{} // closed when there are none
	news    map[string]entities.Reading
	first   chan struct{} // closed at the first news
}

// watch looks at one instance until it has news or everybody was looked at.
func (r *round) watch(ctx context.Context, ref protocol.InstanceRef) {
	for n := 0; ; n++ {
		seen := r.at(ctx, r.request, ref)
		if ctx.Err() != nil {
			return // told to stop: what it says now counts for nothing
		}
		news := ref.Known == "" || seen.Digest() != ref.Known
		r.looked(ref.Channel, seen, n == 0, news)
		if news {
			return
		}
		select {
		case <-r.all:
			return
		case <-ctx.Done():
			return
		case <-time.After(max(r.request.Interval, gather)):
		}
	}
}

func (r *round) looked(channel string, seen entities.Reading, first, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first {
		if r.waiting--; r.waiting == 0 {
			close(r.all)
		}
	}
	if !news {
		return
	}
	if len(r.news) == 0 {
		close(r.first)
	}
	r.news[channel] = seen
}

// seen is a copy: who hangs may still come late.
func (r *round) seen() map[string]entities.Reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.news)
}

// maxNews bounds an answer in bytes of JSON. What does not fit stays unknown to the workflow, so it
// is still news at the next look.
const maxNews = 48 << 10

func bound[T any](news map[string]T) map[string]T {
	size := 0
	for _, channel := range slices.Sorted(maps.Keys(news)) {
		data, err := json.Marshal(news[channel])
		if size += len(channel) + len(data); err != nil || size > maxNews {
			delete(news, channel)
		}
	}
	return news
}
