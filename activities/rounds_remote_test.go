package activities

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// remoteCrowd is the crowd of a remote runtime, and the common queue's, which looks after it.
type remoteCrowd struct {
	*crowd
	common *crowd
	told   map[string]int  // how often a service was woken by guards
	deaf   map[string]bool // who cannot be
}

func newRemoteCrowd(t *testing.T, instances int) *remoteCrowd {
	c := &remoteCrowd{crowd: newCrowd(t, instances), common: newCrowd(t, 0), told: map[string]int{}}
	c.store.common = &c.common.store
	return c
}

// remote is a worker of the runtime.
func (c *remoteCrowd) remote() *hints { return c.workerWith(beatEvery, (*hints).guarded) }

// guard is a worker of the common queue.
func (c *remoteCrowd) guard() *hints {
	return c.common.workerWith(beatEvery, func(h *hints) {
		wake := func(_ context.Context, owner runtimes.Owner, runtime string) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Equal(c.t, "edge", runtime)
			if c.deaf[owner.Service] {
				return errors.New("signal rejected")
			}
			c.told[owner.Service]++
			return nil
		}
		h.rounds.guard = &guard{records: edge{&c.store}, wake: wake, mine: h.rounds.peers.mine}
	})
}

// after is how often services were woken by guards once so much time has passed.
func (c *remoteCrowd) after(wait time.Duration) map[string]int {
	time.Sleep(wait)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	told := c.told
	c.told = map[string]int{}
	return told
}

// edge is what the workers of the one remote runtime keep.
type edge struct{ *kept }

func (e edge) remote(ctx context.Context) (map[string]map[string]store.Beat, error) {
	beats, err := e.beats(ctx)
	if len(beats) == 0 {
		return nil, err
	}
	return map[string]map[string]store.Beat{"edge": beats}, err
}

func (e edge) on(ctx context.Context, _ string) ([]runtimes.Owner, error) { return e.all(ctx) }

func (e edge) over(ctx context.Context, _, worker string) error { return e.leave(ctx, worker) }

// once is that each of so many was woken once.
func (c *remoteCrowd) once() map[string]int {
	want := map[string]int{}
	for owner := range c.version {
		want[owner.Service] = 1
	}
	return want
}

// Workers of a remote runtime read what is steady there; where the last of them is gone, services are woken within a minute, once, and find out.
func TestARemoteRuntimeWithoutWorkersIsNoticed_F9_D17(t *testing.T) {
	for name, end := range map[string]func(*hints){"stopped": (*hints).stop, "killed": killed} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRemoteCrowd(t, 20)
				for range 2 {
					t.Cleanup(c.guard().stop)
				}
				a, b := c.remote(), c.remote()
				c.everythingIsObserved(a)
				require.Empty(t, c.after(20*time.Minute))
				require.True(t, a.reliedOn(), "the server need not poll")

				end(a)
				require.Empty(t, c.after(10*time.Minute), "another worker remains")
				c.forget()
				require.Empty(t, c.after(readEvery+readEvery/5))
				_, unread := c.by()
				require.Zero(t, unread)
				end(b)
				require.Equal(t, c.once(), c.after(75*time.Second))
				left, err := c.store.beats(t.Context())
				require.NoError(t, err)
				require.Empty(t, left)
				require.Empty(t, c.after(time.Hour))
			})
		})
	}
}

// Whoever is replaced within a moment is missed by nobody.
func TestARemoteWorkerThatIsReplacedIsNotMissed_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteCrowd(t, 20)
		defer c.guard().stop()
		a := c.remote()
		c.everythingIsObserved(a)
		time.Sleep(20 * time.Minute)
		a.stop()
		require.Empty(t, c.after(25*time.Second))
		b := c.remote()
		defer b.stop()
		require.Empty(t, c.after(time.Hour))
		c.forget()
		require.Empty(t, c.after(readEvery+readEvery/5))
		_, unread := c.by()
		require.Zero(t, unread)
		require.True(t, b.reliedOn())
	})
}

// A remote worker that ends while no guard is there, or while none can wake anybody, is noticed later.
func TestAnEndThatNoGuardSawIsNoticedLater_F9_H9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteCrowd(t, 20)
		first := c.guard()
		a := c.remote()
		c.everythingIsObserved(a)
		time.Sleep(20 * time.Minute)
		killed(first)
		a.stop()
		require.Empty(t, c.after(time.Hour))

		second := c.guard()
		defer second.stop()
		c.store.fails(errors.New("the store is unavailable"))
		require.Empty(t, c.after(10*time.Minute))
		c.store.fails(nil)
		require.Equal(t, c.once(), c.after(75*time.Second))
	})
}

// A service that cannot be woken keeps nobody from being, nobody is woken twice for it, and it is woken once it can be.
func TestAServiceThatCannotBeWokenKeepsNobody_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteCrowd(t, 20)
		c.deaf = map[string]bool{"s3": true}
		guard := c.guard()
		defer guard.stop()
		a := c.remote()
		c.everythingIsObserved(a)
		time.Sleep(20 * time.Minute)
		killed(a)
		woken := c.after(10 * time.Minute)
		require.Len(t, woken, 19)
		require.NotContains(t, woken, "s3")
		for service, times := range woken {
			require.Equal(t, 1, times, service)
		}
		c.mu.Lock()
		c.deaf = nil
		c.mu.Unlock()
		require.Equal(t, map[string]int{"s3": 1}, c.after(time.Minute))
		require.Empty(t, c.after(time.Hour))
	})
}

// Without a guard the server has everything read.
func TestARemoteWorkerWithoutGuardsIsNotReliedOn_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteCrowd(t, 1)
		a := c.remote()
		defer a.stop()
		c.everythingIsObserved(a)
		time.Sleep(10 * time.Minute)
		require.False(t, a.reliedOn())

		guard := c.guard()
		time.Sleep(time.Minute)
		require.True(t, a.reliedOn())
		killed(guard)
		time.Sleep(10 * time.Minute)
		require.False(t, a.reliedOn())
		require.True(t, a.reads(), "it continues to poll")
	})
}
