package activities

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// gather is how long news of one instance waits for news of the others.
const gather = time.Second

// observeOne takes one reading of one instance.
type observeOne func(context.Context, protocol.ObserveRequest, protocol.InstanceRef) entities.Reading

// observeAll observes all instances at once and returns the readings that are not as known. It returns when
// every instance was observed, or a moment after the first news: who hangs then is observed again in the
// next round, and delays no other's news. While somebody hangs, the others are observed again every
// interval (A7).
func observeAll(ctx context.Context, r protocol.ObserveRequest, observe observeOne) map[entities.InstanceID]entities.Reading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	round := &round{
		request: r, observe: observe, waiting: len(r.Instances), all: make(chan struct{}),
		news: map[entities.InstanceID]entities.Reading{}, first: make(chan struct{}),
	}
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
	return round.result()
}

// round is one observation of all instances.
type round struct {
	request protocol.ObserveRequest
	observe observeOne

	mu      sync.Mutex
	waiting int           // instances not observed even once
	all     chan struct{} // closed when there are none
	news    map[entities.InstanceID]entities.Reading
	first   chan struct{} // closed at the first news
}

// watch observes one instance until it has news or all were observed.
func (r *round) watch(ctx context.Context, ref protocol.InstanceRef) {
	for n := 0; ; n++ {
		reading := r.observe(ctx, r.request, ref)
		if ctx.Err() != nil {
			return // it is over: what it says now counts for nothing
		}
		news := ref.Known == "" || reading.Digest() != ref.Known
		r.observed(ref.ID, reading, n == 0, news)
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

func (r *round) observed(id entities.InstanceID, reading entities.Reading, first, news bool) {
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
	r.news[id] = reading
}

// result is a copy: who hangs may still come late.
func (r *round) result() map[entities.InstanceID]entities.Reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.news)
}

// maxNews bounds an answer in bytes of JSON. What does not fit stays unknown to the workflow, so it
// is still news at the next reading.
const maxNews = 48 << 10

func bound[K comparable, T any](news map[K]T, sorted []K) map[K]T {
	size := 0
	for _, key := range sorted {
		data, err := json.Marshal(map[K]T{key: news[key]})
		if size += len(data); err != nil || size > maxNews {
			delete(news, key)
		}
	}
	return news
}
