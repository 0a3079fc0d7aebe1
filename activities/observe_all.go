package activities

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// gather is how long news of one instance waits for news of the others.
const gather = time.Second

// observeOne takes one reading of one instance.
type observeOne func(context.Context, protocol.ObserveRequest, protocol.InstanceRef) entities.Reading

// observeAll observes all instances concurrently and returns the readings that differ from the known state. It returns when every
// instance was observed, or a moment after the first news. An instance that hangs then is observed again in the next round and delays no
// other's news. While one hangs, the others are observed again every interval (A7).
func observeAll(ctx context.Context, observe observeOne, requests ...protocol.ObserveRequest) map[entities.InstanceID]entities.Reading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := &observation{round: newRound[entities.InstanceID, entities.Reading](), observe: observe}
	var watches []func()
	for _, r := range requests {
		for _, ref := range r.Instances {
			watches = append(watches, func() { all.watch(ctx, r, ref) })
		}
	}
	all.waiting = len(watches)
	news, _ := all.run(watches, gather)
	return news
}

// observation is one observation of all instances.
type observation struct {
	round[entities.InstanceID, entities.Reading]
	observe observeOne
}

// round is one concurrent reading of several items, by key.
type round[K comparable, T any] struct {
	mu      sync.Mutex
	waiting int           // items without a first reading
	all     chan struct{} // closed when waiting is 0
	news    map[K]T
	first   chan struct{} // closed at the first news
}

func newRound[K comparable, T any]() round[K, T] {
	return round[K, T]{all: make(chan struct{}), first: make(chan struct{}), news: map[K]T{}}
}

// run runs the watches until all have ended, or until that time after the first news. The result is a copy, because a hung watch may
// still report later. cut means that some item was not read.
func (r *round[K, T]) run(watches []func(), after time.Duration) (news map[K]T, cut bool) {
	var wg sync.WaitGroup
	for _, watch := range watches {
		wg.Go(watch)
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-r.first:
		select {
		case <-done:
		case <-time.After(after):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.news), r.waiting > 0
}

// read records a reading. counted marks the first reading of an item.
func (r *round[K, T]) read(key K, reading T, counted, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if news {
		if len(r.news) == 0 {
			close(r.first)
		}
		r.news[key] = reading
	}
	if counted {
		if r.waiting--; r.waiting == 0 {
			close(r.all)
		}
	}
}

// watch observes one instance until it has news or all were observed.
func (r *observation) watch(ctx context.Context, of protocol.ObserveRequest, ref protocol.InstanceRef) {
	for n := 0; ; n++ {
		reading := r.observe(ctx, of, ref)
		if ctx.Err() != nil {
			return // the observation is over; the reading is discarded
		}
		news := ref.Known == "" || reading.Digest() != ref.Known
		r.read(ref.ID, reading, n == 0, news)
		if news {
			return
		}
		select {
		case <-r.all:
			return
		case <-ctx.Done():
			return
		case <-time.After(max(of.Interval, gather)):
		}
	}
}

// maxNews bounds an answer in bytes of JSON. What does not fit stays unknown to the workflow, so it
// is still news at the next reading.
const maxNews = 48 << 10

// clipReasons limits an answer that must contain every reading.
func clipReasons(readings map[string]entities.CheckReading) {
	for _, bytes := range []int{200, 60, 0} {
		if raw, err := json.Marshal(readings); err != nil || len(raw) <= maxNews {
			return
		}
		for key, r := range readings {
			r.Reason = runtimes.Clip(r.Reason, bytes)
			readings[key] = r
		}
	}
}

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
