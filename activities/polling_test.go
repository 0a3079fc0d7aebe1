package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// workerPool is the workers of a queue and their instances. It uses the time of a bubble (testing/synctest).
type workerPool struct {
	t     *testing.T
	store memoryRecords

	mu      sync.Mutex
	version map[runtimes.Owner]string
	read    map[runtimes.Owner]map[string]int // by worker
	woken   map[runtimes.Owner]int
}

const testPollInterval = 5 * time.Minute

func newWorkerPool(t *testing.T, instances int) *workerPool {
	c := &workerPool{t: t, version: map[runtimes.Owner]string{}, woken: map[runtimes.Owner]int{}}
	for n := range instances {
		c.version[runtimes.Owner{Application: "shop", Service: fmt.Sprintf("s%d", n), ID: entities.Only("prod")}] = "v1"
	}
	c.resetCounts()
	return c
}

// resetCounts resets the counters.
func (c *workerPool) resetCounts() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = map[runtimes.Owner]map[string]int{}
}

// startWorker starts a worker of the queue.
func (c *workerPool) startWorker() *hints { return c.startWorkerWith(workerHeartbeatInterval) }

// startWorkerWith starts a worker with that heartbeat interval.
func (c *workerPool) startWorkerWith(interval time.Duration, setups ...func(*hints)) *hints {
	a := &Activities{readingSlots: keyedSemaphore{total: maxReadings, perKey: maxRuntimeReadings}}
	h := newHints(a)
	h.records, h.polling.interval = &c.store, interval
	h.observe = func(_ context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		c.mu.Lock()
		defer c.mu.Unlock()
		owner := ownerOf(r, ref.ID)
		if c.read[owner] == nil {
			c.read[owner] = map[string]int{}
		}
		c.read[owner][h.polling.peers.me]++
		return c.reading(owner)
	}
	h.wake = func(_ context.Context, owner runtimes.Owner, _ string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.woken[owner]++
		return nil
	}
	for _, setup := range setups {
		setup(h)
	}
	go h.runPolling()
	synctest.Wait()
	return h
}

// unreachable is the version of an instance that cannot be read.
const unreachable = "unreachable"

func (c *workerPool) reading(owner runtimes.Owner) entities.Reading {
	if c.version[owner] == unreachable {
		return entities.Reading{Err: &entities.ReadingError{Code: unreachable}}
	}
	return entities.Reading{Objects: []entities.Object{{
		Name: "web", Type: "Process", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: c.version[owner], Active: true}},
	}}}
}

// twoWorkers returns two workers. The first one observed all instances, that long ago.
func twoWorkers(t *testing.T, instances int, wait time.Duration) (c *workerPool, a, b *hints) {
	t.Helper()
	c = newWorkerPool(t, instances)
	a, b = c.startWorker(), c.startWorker()
	t.Cleanup(a.stop)
	t.Cleanup(b.stop)
	c.observeEverything(a)
	time.Sleep(wait)
	return c, a, b
}

// kill ends a worker without a last heartbeat.
func kill(h *hints) {
	h.mu.Lock()
	h.stopped = true
	h.mu.Unlock()
	h.end()
}

// observe is the workflow's observation of an instance on a worker.
func (c *workerPool) observe(h *hints, owner runtimes.Owner) {
	c.mu.Lock()
	reading := c.reading(owner)
	c.mu.Unlock()
	ref := protocol.InstanceRef{ID: owner.ID, FullVersion: "v1", KnownDigest: reading.Digest()}
	request := protocol.ObserveRequest{Application: owner.Application, Service: owner.Service, Runtime: "vm", Interval: testPollInterval, Steady: true}
	h.settle(owner, h.begin(owner), &observed{request: request, ref: ref, shape: shapeOf(reading, ref)})
}

func (c *workerPool) observeEverything(h *hints) {
	for owner := range c.version {
		c.observe(h, owner)
	}
	synctest.Wait()
}

func (c *workerPool) setVersion(owner runtimes.Owner, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version[owner] = version
}

// deleteInstance deletes an instance.
func (c *workerPool) deleteInstance(owner runtimes.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.version, owner)
}

func (c *workerPool) first() runtimes.Owner {
	return runtimes.Owner{Application: "shop", Service: "s0", ID: entities.Only("prod")}
}

func (c *workerPool) wakeCount(owner runtimes.Owner) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.woken[owner]
}

// readCounts returns how often each worker read since the last reset, and how many instances no worker read.
func (c *workerPool) readCounts() (reads map[string]int, unread int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	reads = map[string]int{}
	for owner := range c.version {
		if len(c.read[owner]) == 0 {
			unread++
		}
		for worker, n := range c.read[owner] {
			reads[worker] += n
		}
	}
	return reads, unread
}

// requirePolledUntilChange requires that the only worker polls the instance every interval, and wakes its workflow once after a change.
func (c *workerPool) requirePolledUntilChange(h *hints) {
	c.t.Helper()
	time.Sleep(10 * testPollInterval)
	synctest.Wait()
	reads, _ := c.readCounts()
	require.InDelta(c.t, 10, reads[h.polling.peers.me], 1)
	require.Zero(c.t, c.wakeCount(c.first()))
	c.setVersion(c.first(), "v0")
	time.Sleep(testPollInterval + testPollInterval/5)
	synctest.Wait()
	require.Equal(c.t, 1, c.wakeCount(c.first()))
}

// A worker polls steady instances every interval. It wakes no workflow until something changes, and then at once.
func TestWorkersPollSteadyInstances_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorkerPool(t, 1)
		h := c.startWorker()
		defer h.stop()
		c.observeEverything(h)
		c.requirePolledUntilChange(h)
		c.observe(h, c.first()) // the workflow
		time.Sleep(10 * testPollInterval)
		synctest.Wait()
		require.Equal(t, 1, c.wakeCount(c.first()))
	})
}

// After an apply, or an observation of an unsteady instance, the last reading is polled like that of a steady instance: no observation
// follows it.
func TestInstanceIsPolledAfterAChange_F9(t *testing.T) {
	for name, finish := range map[string]func(*workerPool, *hints){
		"applied": func(c *workerPool, h *hints) {
			reading := c.reading(c.first())
			request := protocol.ApplyRequest{Application: "shop", Service: "s0", Runtime: "vm", SteadyPollInterval: testPollInterval, Instance: protocol.InstanceRef{ID: entities.Only("prod"), FullVersion: "v1"}}
			h.finishApply(request, h.begin(c.first()), &reading, false)
		},
		"followed": func(c *workerPool, h *hints) {
			ref := protocol.InstanceRef{ID: entities.Only("prod"), FullVersion: "v1"}
			request := protocol.ObserveRequest{Application: "shop", Service: "s0", Runtime: "vm", Interval: time.Second, SteadyPollInterval: testPollInterval, Instances: []protocol.InstanceRef{ref}}
			w := &trackedObservation{
				a: &Activities{hints: h}, request: request, recorded: true, generations: map[entities.InstanceID]int{ref.ID: h.begin(c.first())},
				last: map[entities.InstanceID]recordedReading{ref.ID: {shapeOf(c.reading(c.first()), ref), c.reading(c.first()).Digest()}},
			}
			w.end(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newWorkerPool(t, 1)
				h := c.startWorker()
				defer h.stop()
				finish(c, h)
				c.requirePolledUntilChange(h)
			})
		})
	}
}

// Polls that are due at about the same time run together, and never too early.
func TestPollsAreAligned_F9(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	due := map[time.Time]int{}
	for n := range 1000 {
		since, wait := now.Add(time.Duration(n)*time.Millisecond), spread(testPollInterval, fmt.Sprint(n%2))
		at := since.Add(alignedDelay(since, wait))
		require.True(t, at.After(since.Add(wait)))
		require.LessOrEqual(t, at.Sub(since.Add(wait)), pollAlignment)
		due[at]++
	}
	require.LessOrEqual(t, len(due), 2*6)
}

// The workers of a queue share the steady instances, about half each. Their common state is in the store.
func TestWorkersSharePolling_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a, b := twoWorkers(t, 200, 15*time.Minute) // until the other one is reliable
		c.resetCounts()
		time.Sleep(10 * testPollInterval)
		synctest.Wait()
		reads, unread := c.readCounts()
		require.Zero(t, unread)
		require.InDelta(t, 2000, reads[a.polling.peers.me]+reads[b.polling.peers.me], 200)
		require.Greater(t, reads[a.polling.peers.me], 700)
		require.Greater(t, reads[b.polling.peers.me], 700)
	})
}

// A worker continues its heartbeats during a long scan, so no other worker takes it for gone.
func TestLongScanDoesNotLookLikeAnEnd_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 4 * maxMissedHeartbeats * float64(workerHeartbeatInterval/takeOverInterval)
		c, a, b := twoWorkers(t, int(many), 15*time.Minute)
		c.resetCounts()
		time.Sleep(4 * testPollInterval)
		synctest.Wait()
		reads, unread := c.readCounts()
		require.Zero(t, unread)
		require.InDelta(t, 4*many, reads[a.polling.peers.me]+reads[b.polling.peers.me], many/4)
	})
}

// When a worker is stopped or killed, another one polls all of its instances within a minute.
func TestPollingOfAnEndedWorkerIsTakenOver_F9_H9(t *testing.T) {
	for name, end := range map[string]func(*hints){"stopped": (*hints).stop, "killed": kill} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newWorkerPool(t, 50)
				a, b := c.startWorker(), c.startWorker()
				defer a.stop()
				c.observeEverything(a)
				time.Sleep(20 * time.Minute)
				var assigned []runtimes.Owner
				for owner := range c.version {
					if b.polling.peers.isMine(owner) {
						assigned = append(assigned, owner)
					}
				}
				require.NotEmpty(t, assigned)
				end(b)
				c.resetCounts()
				for _, owner := range assigned {
					c.setVersion(owner, "v0")
				}
				time.Sleep(time.Minute + time.Second)
				synctest.Wait()
				for _, owner := range assigned {
					require.NotZero(t, c.wakeCount(owner), owner)
				}
				remaining, err := c.store.heartbeats(t.Context())
				require.NoError(t, err)
				require.NotContains(t, remaining, b.polling.peers.me)
			})
		})
	}
}

// After another worker's observation this worker compares with the state that the workflow got from it, not with its own older state.
func TestStateRecordedByAnotherWorkerIsUsed_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, b := twoWorkers(t, 20, 20*time.Minute)
		for owner := range c.version { // released; either may observe, and the other still polls its share
			c.setVersion(owner, "v2")
			c.observe(b, owner)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		kill(b)
		for owner := range c.version {
			require.Zero(t, c.wakeCount(owner), owner)
			c.setVersion(owner, "v1") // as at its last reading by the first one
		}
		time.Sleep(testPollInterval + testPollInterval/5)
		synctest.Wait()
		for owner := range c.version {
			require.NotZero(t, c.wakeCount(owner), owner)
		}
	})
}

// While the store is unavailable each worker continues with its share.
func TestPollingContinuesWithoutTheStore_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := twoWorkers(t, 50, 20*time.Minute)
		c.store.setError(errors.New("the store is unavailable"))
		c.resetCounts()
		time.Sleep(testPollInterval + testPollInterval/5)
		synctest.Wait()
		_, unread := c.readCounts()
		require.Zero(t, unread)
		c.setVersion(c.first(), "v0")
		time.Sleep(testPollInterval + testPollInterval/5)
		c.store.setError(nil)
		time.Sleep(testPollInterval)
		synctest.Wait()
		require.NotZero(t, c.wakeCount(c.first()))
	})
}

// An instance that cannot be read any more is news like any other change, once.
func TestUnreadableInstanceWakesOnce_F9_C5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorkerPool(t, 1)
		h := c.startWorker()
		defer h.stop()
		c.observeEverything(h)
		c.setVersion(c.first(), unreachable)
		time.Sleep(testPollInterval + testPollInterval/5)
		synctest.Wait()
		require.Equal(t, 1, c.wakeCount(c.first()))
	})
}

// The state recorded by a worker that has just started, or restarted, is used like that of any other.
func TestStateRecordedByANewWorkerIsUsed_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorkerPool(t, 20)
		a := c.startWorker()
		defer a.stop()
		c.observeEverything(a)
		time.Sleep(20 * time.Minute)
		b := c.startWorkerWith(time.Second)
		for owner := range c.version {
			c.setVersion(owner, "v2")
			c.observe(b, owner)
		}
		time.Sleep(5 * time.Second) // the other one has not seen its first heartbeats
		kill(b)
		synctest.Wait()
		for owner := range c.version {
			c.setVersion(owner, "v1") // as at its last reading by the first one
		}
		time.Sleep(testPollInterval + testPollInterval/5 + time.Minute)
		synctest.Wait()
		for owner := range c.version {
			require.NotZero(t, c.wakeCount(owner), owner)
		}
	})
}

// An instance that one worker removed and another one recreated is polled again by its assigned worker. One that is not recreated is
// forgotten.
func TestRecreatedInstanceIsPolled_F9_A24(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a, b := twoWorkers(t, 20, 20*time.Minute)
		for owner := range c.version {
			a.forget(t.Context(), owner)
		}
		time.Sleep(time.Minute)
		for owner := range c.version {
			if owner != c.first() {
				c.observe(b, owner)
			}
		}
		time.Sleep(30 * time.Minute)
		c.deleteInstance(c.first())
		c.resetCounts()
		time.Sleep(4 * testPollInterval)
		synctest.Wait()
		reads, unread := c.readCounts()
		require.Zero(t, unread)
		require.NotZero(t, reads[a.polling.peers.me])
		a.mu.Lock()
		defer a.mu.Unlock()
		require.NotContains(t, a.instances, c.first())
		require.Len(t, a.instances, 19)
	})
}

// removedWhileListed removes an instance once it is listed.
type removedWhileListed struct {
	records
	onList atomic.Pointer[func()]
}

func (r *removedWhileListed) owners(ctx context.Context) ([]runtimes.Owner, error) {
	all, err := r.records.owners(ctx)
	if remove := r.onList.Swap(nil); remove != nil {
		(*remove)()
	}
	return all, err
}

// An instance that is removed after a scan has listed it stays removed.
func TestRemovalDuringAScanIsKept_A24(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorkerPool(t, 2)
		listing := &removedWhileListed{records: &c.store}
		h := c.startWorkerWith(workerHeartbeatInterval, func(h *hints) { h.records = listing })
		defer h.stop()
		c.observeEverything(h)
		remove := func() { h.forget(t.Context(), c.first()) }
		listing.onList.Store(&remove)
		time.Sleep(2*heartbeatsPerListing*workerHeartbeatInterval + removedTTL)
		synctest.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		require.NotContains(t, h.instances, c.first())
		require.Len(t, h.instances, 1)
	})
}

// A failed write of a record is repeated with the next reading.
func TestFailedRecordIsWrittenLater_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorkerPool(t, 1)
		h := c.startWorker()
		defer h.stop()
		c.store.setError(errors.New("the store is unavailable"))
		c.observeEverything(h)
		c.store.setError(nil)
		time.Sleep(testPollInterval + testPollInterval/5)
		synctest.Wait()
		owners, err := c.store.owners(t.Context())
		require.NoError(t, err)
		require.Equal(t, []runtimes.Owner{c.first()}, owners)
	})
}

// Wakes of a workflow that found nothing new do not slow down polling, however often they happen.
func TestUnneededWakesDoNotSlowPolling_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newWorkerPool(t, 1)
		a := c.startWorker()
		c.observeEverything(a)
		time.Sleep(time.Minute)
		kill(a)
		b := c.startWorker()
		defer b.stop()
		time.Sleep(2 * testPollInterval)
		for range 10 {
			c.setVersion(c.first(), unreachable)
			time.Sleep(testPollInterval + testPollInterval/5)
			c.setVersion(c.first(), "v1")
			time.Sleep(testPollInterval + testPollInterval/5)
		}
		c.resetCounts()
		time.Sleep(10 * testPollInterval)
		synctest.Wait()
		reads, _ := c.readCounts()
		require.InDelta(t, 10, reads[b.polling.peers.me], 1)
	})
}
