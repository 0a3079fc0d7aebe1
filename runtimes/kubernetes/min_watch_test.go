package kubernetes

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch that the server closes as it begins is no reason to list again, and ends a second later; one that had an event, or is
// stopped, ends at once.
func TestShortWatchesAreExtended_F9(t *testing.T) {
	var short atomic.Bool // of the last one
	ends := func(do func(of *watch.FakeWatcher, l *minDurationWatch)) (after time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			of := watch.NewFake()
			l := newMinDurationWatch(of, &short)
			began := time.Now()
			go do(of, l)
			for range l.ResultChan() {
			}
			after = time.Since(began)
			l.Stop()
		})
		return after
	}
	hangsUp := func(of *watch.FakeWatcher, _ *minDurationWatch) { of.Stop() }
	require.Equal(t, minWatchDuration, ends(hangsUp))
	require.Zero(t, ends(hangsUp), "a server that keeps no watch open is listed again")
	require.Zero(t, ends(hangsUp))
	require.Equal(t, time.Hour, ends(func(of *watch.FakeWatcher, _ *minDurationWatch) { time.Sleep(time.Hour); of.Stop() }))
	require.Zero(t, ends(func(of *watch.FakeWatcher, _ *minDurationWatch) { of.Action(watch.Bookmark, nil); of.Stop() }))
	require.Equal(t, minWatchDuration, ends(hangsUp), "one in between was as it should be")
	short.Store(false)
	require.Zero(t, ends(func(_ *watch.FakeWatcher, l *minDurationWatch) { l.Stop() }))
}
