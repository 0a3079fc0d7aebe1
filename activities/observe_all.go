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

// gatherTime is how long news of one instance waits for news of the others.
const gatherTime = time.Second

// observeFunc takes one reading of one instance.
type observeFunc func(context.Context, protocol.ObserveRequest, protocol.InstanceRef) entities.Reading

// observeAll observes all instances concurrently and returns the readings that differ from the known state. It returns when every
// instance was observed, or a moment after the first news. An instance that hangs then is observed again in the next round and delays no
// other's news. While one hangs, the others are observed again every interval (A7).
func observeAll(ctx context.Context, observe observeFunc, requests ...protocol.ObserveRequest) map[entities.InstanceID]entities.Reading {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all := &observeRound{round: newRound[entities.InstanceID, entities.Reading](), observe: observe}
	var tasks []func()
	for _, r := range requests {
		for _, ref := range r.Instances {
			tasks = append(tasks, func() { all.observeRepeatedly(ctx, r, ref) })
		}
	}
	all.waiting = len(tasks)
	news, _ := all.run(tasks, gatherTime)
	return news
}

// observeRound is one observation of all instances.
type observeRound struct {
	round[entities.InstanceID, entities.Reading]
	observe observeFunc
}

// round is one concurrent reading of several items, by key.
type round[K comparable, T any] struct {
	mu        sync.Mutex
	waiting   int           // items without a first reading
	allRead   chan struct{} // closed when waiting is 0
	news      map[K]T
	firstNews chan struct{} // closed at the first news
}

func newRound[K comparable, T any]() round[K, T] {
	return round[K, T]{allRead: make(chan struct{}), firstNews: make(chan struct{}), news: map[K]T{}}
}

// run runs the tasks until all have ended, or until that time after the first news. The result is a copy, because a hung task may
// still report later. incomplete means that some item was not read.
func (r *round[K, T]) run(tasks []func(), after time.Duration) (news map[K]T, incomplete bool) {
	var wg sync.WaitGroup
	for _, task := range tasks {
		wg.Go(task)
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-r.firstNews:
		select {
		case <-done:
		case <-time.After(after):
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.news), r.waiting > 0
}

// record records a reading. isFirst marks the first reading of an item.
func (r *round[K, T]) record(key K, reading T, isFirst, news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if news {
		if len(r.news) == 0 {
			close(r.firstNews)
		}
		r.news[key] = reading
	}
	if isFirst {
		if r.waiting--; r.waiting == 0 {
			close(r.allRead)
		}
	}
}

// observeRepeatedly observes one instance until it has news or all were observed.
func (r *observeRound) observeRepeatedly(ctx context.Context, of protocol.ObserveRequest, ref protocol.InstanceRef) {
	for n := 0; ; n++ {
		reading := r.observe(ctx, of, ref)
		if ctx.Err() != nil {
			return // the observation is over; the reading is discarded
		}
		news := ref.KnownDigest == "" || reading.Digest() != ref.KnownDigest
		r.record(ref.ID, reading, n == 0, news)
		if news {
			return
		}
		select {
		case <-r.allRead:
			return
		case <-ctx.Done():
			return
		case <-time.After(max(of.Interval, gatherTime)):
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
			r.Reason = runtimes.ClipMessage(r.Reason, bytes)
			readings[key] = r
		}
	}
}

func dropExcess[K comparable, T any](news map[K]T, sorted []K) map[K]T {
	size := 0
	for _, key := range sorted {
		data, err := json.Marshal(map[K]T{key: news[key]})
		if size += len(data); err != nil || size > maxNews {
			delete(news, key)
		}
	}
	return news
}
