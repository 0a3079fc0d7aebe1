package activities

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

// crowd is a queue of workers and what they look after. Time is that of a bubble (testing/synctest).
type crowd struct {
	t     *testing.T
	store kept

	mu      sync.Mutex
	version map[runtimes.Owner]string
	read    map[runtimes.Owner]map[string]int // by worker
	woken   map[runtimes.Owner]int
}

const readEvery = 5 * time.Minute

func newCrowd(t *testing.T, instances int) *crowd {
	c := &crowd{t: t, version: map[runtimes.Owner]string{}, woken: map[runtimes.Owner]int{}}
	for n := range instances {
		c.version[runtimes.Owner{Application: "shop", Service: fmt.Sprintf("s%d", n), ID: entities.Only("prod")}] = "v1"
	}
	c.forget()
	return c
}

// forget begins to count anew.
func (c *crowd) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = map[runtimes.Owner]map[string]int{}
}

// worker begins to serve the queue.
func (c *crowd) worker() *hints { return c.workerWith(beatEvery) }

// workerWith says of itself so often that it is there.
func (c *crowd) workerWith(every time.Duration, as ...func(*hints)) *hints {
	a := &Activities{readings: places{all: readingPlaces, each: runtimePlaces}}
	h := newHints(a)
	h.records, h.rounds.every = &c.store, every
	h.observe = func(_ context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		c.mu.Lock()
		defer c.mu.Unlock()
		owner := ownerOf(r, ref.ID)
		if c.read[owner] == nil {
			c.read[owner] = map[string]int{}
		}
		c.read[owner][h.rounds.peers.me]++
		return c.reading(owner)
	}
	h.wake = func(_ context.Context, owner runtimes.Owner, _ string) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.woken[owner]++
		return nil
	}
	for _, set := range as {
		set(h)
	}
	go h.goRounds()
	synctest.Wait()
	return h
}

// unreachable is the version of what cannot be read.
const unreachable = "unreachable"

func (c *crowd) reading(owner runtimes.Owner) entities.Reading {
	if c.version[owner] == unreachable {
		return entities.Reading{Err: &entities.ReadingError{Code: unreachable}}
	}
	return entities.Reading{Objects: []entities.Object{{
		Name: "web", Type: "Process", Status: entities.ObjectSucceeded, Versions: []entities.ObjectVersion{{Version: c.version[owner], Active: true}},
	}}}
}

// pair are two workers, the first of which observed everything so long ago.
func pair(t *testing.T, instances int, ago time.Duration) (c *crowd, a, b *hints) {
	t.Helper()
	c = newCrowd(t, instances)
	a, b = c.worker(), c.worker()
	t.Cleanup(a.stop)
	t.Cleanup(b.stop)
	c.everythingIsObserved(a)
	time.Sleep(ago)
	return c, a, b
}

// killed ends a worker that says nothing more.
func killed(h *hints) {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.end()
}

// observed is the workflow's observation of an instance by a worker.
func (c *crowd) observed(h *hints, owner runtimes.Owner) {
	c.mu.Lock()
	reading := c.reading(owner)
	c.mu.Unlock()
	ref := protocol.InstanceRef{ID: owner.ID, FullVersion: "v1", Known: reading.Digest()}
	request := protocol.ObserveRequest{Application: owner.Application, Service: owner.Service, Runtime: "vm", Interval: readEvery, Steady: true}
	h.settle(owner, h.begin(owner), &observed{request: request, ref: ref, shape: shapeOf(reading, ref)})
}

func (c *crowd) everythingIsObserved(h *hints) {
	for owner := range c.version {
		c.observed(h, owner)
	}
	synctest.Wait()
}

func (c *crowd) change(owner runtimes.Owner, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version[owner] = version
}

// never is as if it had not been there.
func (c *crowd) never(owner runtimes.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.version, owner)
}

func (c *crowd) one() runtimes.Owner {
	return runtimes.Owner{Application: "shop", Service: "s0", ID: entities.Only("prod")}
}

func (c *crowd) wakes(owner runtimes.Owner) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.woken[owner]
}

// by is how often each worker read since it was counted anew, and how many instances nobody read.
func (c *crowd) by() (reads map[string]int, unread int) {
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

// isReadUntilItChanges: the one instance is read every interval by the only worker, and its workflow told once it is otherwise.
func (c *crowd) isReadUntilItChanges(h *hints) {
	c.t.Helper()
	time.Sleep(10 * readEvery)
	synctest.Wait()
	reads, _ := c.by()
	require.InDelta(c.t, 10, reads[h.rounds.peers.me], 1)
	require.Zero(c.t, c.wakes(c.one()))
	c.change(c.one(), "v0")
	time.Sleep(readEvery + readEvery/5)
	synctest.Wait()
	require.Equal(c.t, 1, c.wakes(c.one()))
}

// What is steady is read every interval by a worker; nobody is told anything until something is otherwise, and then at once.
func TestWhatIsSteadyIsReadByWorkers_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1)
		h := c.worker()
		defer h.stop()
		c.everythingIsObserved(h)
		c.isReadUntilItChanges(h)
		c.observed(h, c.one()) // the workflow
		time.Sleep(10 * readEvery)
		synctest.Wait()
		require.Equal(t, 1, c.wakes(c.one()))
	})
}

// What an apply, or an observation of what moved, read last is read again like what is steady: no observation of that begins after it.
func TestWhatMovedIsReadAgain_F9(t *testing.T) {
	for name, how := range map[string]func(*crowd, *hints){
		"applied": func(c *crowd, h *hints) {
			reading := c.reading(c.one())
			request := protocol.ApplyRequest{Application: "shop", Service: "s0", Runtime: "vm", Rest: readEvery, Instance: protocol.InstanceRef{ID: entities.Only("prod"), FullVersion: "v1"}}
			h.applied(request, h.begin(c.one()), &reading, false)
		},
		"followed": func(c *crowd, h *hints) {
			ref := protocol.InstanceRef{ID: entities.Only("prod"), FullVersion: "v1"}
			request := protocol.ObserveRequest{Application: "shop", Service: "s0", Runtime: "vm", Interval: time.Second, Rest: readEvery, Instances: []protocol.InstanceRef{ref}}
			w := &watched{
				a: &Activities{hints: h}, request: request, notes: true, turns: map[entities.InstanceID]int{ref.ID: h.begin(c.one())},
				last: map[entities.InstanceID]seen{ref.ID: {shapeOf(c.reading(c.one()), ref), c.reading(c.one()).Digest()}},
			}
			w.end(true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 1)
				h := c.worker()
				defer h.stop()
				how(c, h)
				c.isReadUntilItChanges(h)
			})
		})
	}
}

// What is due at about the same time is so in one moment, never too early.
func TestWhatIsReadTogetherIsDueTogether_F9(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	due := map[time.Time]int{}
	for n := range 1000 {
		since, wait := now.Add(time.Duration(n)*time.Millisecond), spread(readEvery, fmt.Sprint(n%2))
		at := since.Add(together(since, wait))
		require.True(t, at.After(since.Add(wait)))
		require.LessOrEqual(t, at.Sub(since.Add(wait)), dueEvery)
		due[at]++
	}
	require.LessOrEqual(t, len(due), 2*6)
}

// Workers of a queue share what is steady, each about half; what they have in common is in the store.
func TestWorkersShareWhatIsSteady_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a, b := pair(t, 200, 15*time.Minute) // until the other is relied on
		c.forget()
		time.Sleep(10 * readEvery)
		synctest.Wait()
		reads, unread := c.by()
		require.Zero(t, unread)
		require.InDelta(t, 2000, reads[a.rounds.peers.me]+reads[b.rounds.peers.me], 200)
		require.Greater(t, reads[a.rounds.peers.me], 700)
		require.Greater(t, reads[b.rounds.peers.me], 700)
	})
}

// However many there are: a worker that looks through its part says meanwhile that it is there, so nobody else takes it for gone.
func TestWorkersOfManyTakeNoneForGone_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 4 * silentBeats * float64(beatEvery/takeOverPace)
		c, a, b := pair(t, int(many), 15*time.Minute)
		c.forget()
		time.Sleep(4 * readEvery)
		synctest.Wait()
		reads, unread := c.by()
		require.Zero(t, unread)
		require.InDelta(t, 4*many, reads[a.rounds.peers.me]+reads[b.rounds.peers.me], many/4)
	})
}

// Of a worker that is gone, stopped or killed, another one reads everything within a minute.
func TestRoundsOfAWorkerThatIsGone_F9_H9(t *testing.T) {
	for name, end := range map[string]func(*hints){"stopped": (*hints).stop, "killed": killed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 50)
				a, b := c.worker(), c.worker()
				defer a.stop()
				c.everythingIsObserved(a)
				time.Sleep(20 * time.Minute)
				var its []runtimes.Owner
				for owner := range c.version {
					if b.rounds.peers.mine(owner) {
						its = append(its, owner)
					}
				}
				require.NotEmpty(t, its)
				end(b)
				c.forget()
				for _, owner := range its {
					c.change(owner, "v0")
				}
				time.Sleep(time.Minute + time.Second)
				synctest.Wait()
				for _, owner := range its {
					require.NotZero(t, c.wakes(owner), owner)
				}
				left, err := c.store.beats(t.Context())
				require.NoError(t, err)
				require.NotContains(t, left, b.rounds.peers.me)
			})
		})
	}
}

// What another worker's observation told the workflow is what this one compares with from then on, and not what it remembers.
func TestWhatAnotherWorkerToldIsKnown_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, b := pair(t, 20, 20*time.Minute)
		for owner := range c.version { // released; either may observe, and the other still reads its part
			c.change(owner, "v2")
			c.observed(b, owner)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		killed(b)
		for owner := range c.version {
			require.Zero(t, c.wakes(owner), owner)
			c.change(owner, "v1") // as it was when the first one read it last
		}
		time.Sleep(readEvery + readEvery/5)
		synctest.Wait()
		for owner := range c.version {
			require.NotZero(t, c.wakes(owner), owner)
		}
	})
}

// While the store is away each goes on with its part.
func TestRoundsWithoutTheStore_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := pair(t, 50, 20*time.Minute)
		c.store.fails(errors.New("the store is unavailable"))
		c.forget()
		time.Sleep(readEvery + readEvery/5)
		synctest.Wait()
		_, unread := c.by()
		require.Zero(t, unread)
		c.change(c.one(), "v0")
		time.Sleep(readEvery + readEvery/5)
		c.store.fails(nil)
		time.Sleep(readEvery)
		synctest.Wait()
		require.NotZero(t, c.wakes(c.one()))
	})
}

// What can be read no more is news like any other change, once.
func TestWhatCannotBeReadAnyMoreIsTold_F9_C5(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1)
		h := c.worker()
		defer h.stop()
		c.everythingIsObserved(h)
		c.change(c.one(), unreachable)
		time.Sleep(readEvery + readEvery/5)
		synctest.Wait()
		require.Equal(t, 1, c.wakes(c.one()))
	})
}

// What a worker told that has just begun, or that comes back, is believed like that of any other.
func TestWhatANewWorkerToldIsKnown_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 20)
		a := c.worker()
		defer a.stop()
		c.everythingIsObserved(a)
		time.Sleep(20 * time.Minute)
		b := c.workerWith(time.Second)
		for owner := range c.version {
			c.change(owner, "v2")
			c.observed(b, owner)
		}
		time.Sleep(5 * time.Second) // the other one has not seen the first of what it said
		killed(b)
		synctest.Wait()
		for owner := range c.version {
			c.change(owner, "v1") // as it was when the first one read it last
		}
		time.Sleep(readEvery + readEvery/5 + time.Minute)
		synctest.Wait()
		for owner := range c.version {
			require.NotZero(t, c.wakes(owner), owner)
		}
	})
}

// What was taken down by one worker, and came back by another, is read again by whichever reads it; what does not come back is forgotten.
func TestWhatCameBackIsReadAgain_F9_A24(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, a, b := pair(t, 20, 20*time.Minute)
		for owner := range c.version {
			a.forget(t.Context(), owner)
		}
		time.Sleep(time.Minute)
		for owner := range c.version {
			if owner != c.one() {
				c.observed(b, owner)
			}
		}
		time.Sleep(30 * time.Minute)
		c.never(c.one())
		c.forget()
		time.Sleep(4 * readEvery)
		synctest.Wait()
		reads, unread := c.by()
		require.Zero(t, unread)
		require.NotZero(t, reads[a.rounds.peers.me])
		a.mu.Lock()
		defer a.mu.Unlock()
		require.NotContains(t, a.owners, c.one())
		require.Len(t, a.owners, 19)
	})
}

// What could not be written down at first is written down with the next reading.
func TestWhatCouldNotBeWrittenDownIsLater_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1)
		h := c.worker()
		defer h.stop()
		c.store.fails(errors.New("the store is unavailable"))
		c.everythingIsObserved(h)
		c.store.fails(nil)
		time.Sleep(readEvery + readEvery/5)
		synctest.Wait()
		owners, err := c.store.all(t.Context())
		require.NoError(t, err)
		require.Equal(t, []runtimes.Owner{c.one()}, owners)
	})
}

// A worker that woke a workflow, which found nothing new, reads on as ever: however often that happens.
func TestWakesForNothingSlowNobodyDown_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1)
		a := c.worker()
		c.everythingIsObserved(a)
		time.Sleep(time.Minute)
		killed(a)
		b := c.worker()
		defer b.stop()
		time.Sleep(2 * readEvery)
		for range 10 {
			c.change(c.one(), unreachable)
			time.Sleep(readEvery + readEvery/5)
			c.change(c.one(), "v1")
			time.Sleep(readEvery + readEvery/5)
		}
		c.forget()
		time.Sleep(10 * readEvery)
		synctest.Wait()
		reads, _ := c.by()
		require.InDelta(t, 10, reads[b.rounds.peers.me], 1)
	})
}
