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

// remoteWorkers is the worker pool of a remote runtime, and that of the common queue, which monitors it.
type remoteWorkers struct {
	*workerPool
	monitorPool  *workerPool
	monitorWakes map[string]int  // how often monitors woke each service
	unwakable    map[string]bool // services that cannot be woken
}

func newRemoteWorkers(t *testing.T, instances int) *remoteWorkers {
	c := &remoteWorkers{workerPool: newWorkerPool(t, instances), monitorPool: newWorkerPool(t, 0), monitorWakes: map[string]int{}}
	c.store.monitors = &c.monitorPool.store
	return c
}

// startRemote starts a worker of the runtime.
func (c *remoteWorkers) startRemote() *hints {
	return c.startWorkerWith(workerHeartbeatInterval, (*hints).requireMonitors)
}

// startMonitor starts a worker of the common queue.
func (c *remoteWorkers) startMonitor() *hints {
	return c.monitorPool.startWorkerWith(workerHeartbeatInterval, func(h *hints) {
		wake := func(_ context.Context, owner runtimes.Owner, runtime string) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Equal(c.t, "edge", runtime)
			if c.unwakable[owner.Service] {
				return errors.New("signal rejected")
			}
			c.monitorWakes[owner.Service]++
			return nil
		}
		h.polling.monitor = &remoteWorkerMonitor{records: edgeRecords{&c.store}, wake: wake, isMine: h.polling.peers.isMine}
	})
}

// wakesAfter waits and returns how often monitors woke each service since.
func (c *remoteWorkers) wakesAfter(wait time.Duration) map[string]int {
	time.Sleep(wait)
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	wakes := c.monitorWakes
	c.monitorWakes = map[string]int{}
	return wakes
}

// edgeRecords are the records of the workers of the remote runtime.
type edgeRecords struct{ *memoryRecords }

func (e edgeRecords) remoteHeartbeats(ctx context.Context) (map[string]map[string]store.Heartbeat, error) {
	heartbeats, err := e.heartbeats(ctx)
	if len(heartbeats) == 0 {
		return nil, err
	}
	return map[string]map[string]store.Heartbeat{"edge": heartbeats}, err
}

func (e edgeRecords) ownersOn(ctx context.Context, _ string) ([]runtimes.Owner, error) {
	return e.owners(ctx)
}

func (e edgeRecords) removeRemoteHeartbeat(ctx context.Context, _, worker string) error {
	return e.removeHeartbeat(ctx, worker)
}

// eachOnce returns one wake for each service.
func (c *remoteWorkers) eachOnce() map[string]int {
	want := map[string]int{}
	for owner := range c.version {
		want[owner.Service] = 1
	}
	return want
}

// Workers of a remote runtime poll its steady instances. When the last one has ended, the services are woken once, within a minute.
func TestRemoteRuntimeWithoutWorkersIsDetected_F9_D17(t *testing.T) {
	for name, end := range map[string]func(*hints){"stopped": (*hints).stop, "killed": kill} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newRemoteWorkers(t, 20)
				for range 2 {
					t.Cleanup(c.startMonitor().stop)
				}
				a, b := c.startRemote(), c.startRemote()
				c.observeEverything(a)
				require.Empty(t, c.wakesAfter(20*time.Minute))
				require.True(t, a.isReliable(), "the server need not poll")

				end(a)
				require.Empty(t, c.wakesAfter(10*time.Minute), "another worker remains")
				c.resetCounts()
				require.Empty(t, c.wakesAfter(testPollInterval+testPollInterval/5))
				_, unread := c.readCounts()
				require.Zero(t, unread)
				end(b)
				require.Equal(t, c.eachOnce(), c.wakesAfter(75*time.Second))
				remaining, err := c.store.heartbeats(t.Context())
				require.NoError(t, err)
				require.Empty(t, remaining)
				require.Empty(t, c.wakesAfter(time.Hour))
			})
		})
	}
}

// A worker that is replaced within a moment causes no wakes.
func TestReplacedRemoteWorkerWakesNoService_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteWorkers(t, 20)
		defer c.startMonitor().stop()
		a := c.startRemote()
		c.observeEverything(a)
		time.Sleep(20 * time.Minute)
		a.stop()
		require.Empty(t, c.wakesAfter(25*time.Second))
		b := c.startRemote()
		defer b.stop()
		require.Empty(t, c.wakesAfter(time.Hour))
		c.resetCounts()
		require.Empty(t, c.wakesAfter(testPollInterval+testPollInterval/5))
		_, unread := c.readCounts()
		require.Zero(t, unread)
		require.True(t, b.isReliable())
	})
}

// A remote worker that ends without a monitor, or while no monitor can wake services, is detected later.
func TestEndWithoutAMonitorIsDetectedLater_F9_H9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteWorkers(t, 20)
		first := c.startMonitor()
		a := c.startRemote()
		c.observeEverything(a)
		time.Sleep(20 * time.Minute)
		kill(first)
		a.stop()
		require.Empty(t, c.wakesAfter(time.Hour))

		second := c.startMonitor()
		defer second.stop()
		c.store.setError(errors.New("the store is unavailable"))
		require.Empty(t, c.wakesAfter(10*time.Minute))
		c.store.setError(nil)
		require.Equal(t, c.eachOnce(), c.wakesAfter(75*time.Second))
	})
}

// A failed wake does not block the wakes of others, repeats none of them, and is retried until it succeeds.
func TestFailedWakeDoesNotBlockOthers_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteWorkers(t, 20)
		c.unwakable = map[string]bool{"s3": true}
		monitor := c.startMonitor()
		defer monitor.stop()
		a := c.startRemote()
		c.observeEverything(a)
		time.Sleep(20 * time.Minute)
		kill(a)
		woken := c.wakesAfter(10 * time.Minute)
		require.Len(t, woken, 19)
		require.NotContains(t, woken, "s3")
		for service, times := range woken {
			require.Equal(t, 1, times, service)
		}
		c.mu.Lock()
		c.unwakable = nil
		c.mu.Unlock()
		require.Equal(t, map[string]int{"s3": 1}, c.wakesAfter(time.Minute))
		require.Empty(t, c.wakesAfter(time.Hour))
	})
}

// Without a monitor the server polls everything.
func TestRemoteWorkerWithoutMonitorsIsNotReliable_F9(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRemoteWorkers(t, 1)
		a := c.startRemote()
		defer a.stop()
		c.observeEverything(a)
		time.Sleep(10 * time.Minute)
		require.False(t, a.isReliable())

		monitor := c.startMonitor()
		time.Sleep(time.Minute)
		require.True(t, a.isReliable())
		kill(monitor)
		time.Sleep(10 * time.Minute)
		require.False(t, a.isReliable())
		require.True(t, a.isPolling(), "it continues to poll")
	})
}
