package kubernetes

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// minWatchDuration is the shortest duration of a watch for a reflector. After a watch without events within a second the reflector
// lists again, and a server that shuts down closes watches that have just started.
const minWatchDuration = 1100 * time.Millisecond

// minDurationWatch is a watch that does not end earlier than minWatchDuration, with three exceptions: it is stopped, it had an event,
// or the watch before it was also short. So a server that keeps no watch open is listed again and again.
type minDurationWatch struct {
	inner   watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
	short   *atomic.Bool // the last watch of the view had no event and was closed early
}

func newMinDurationWatch(inner watch.Interface, short *atomic.Bool) *minDurationWatch {
	l := &minDurationWatch{inner: inner, events: make(chan watch.Event), stopped: make(chan struct{}), short: short}
	go l.forward(time.Now())
	return l
}

// Stop implements watch.Interface.
func (l *minDurationWatch) Stop() {
	l.stop.Do(func() { close(l.stopped) })
	l.inner.Stop()
}

// ResultChan implements watch.Interface.
func (l *minDurationWatch) ResultChan() <-chan watch.Event { return l.events }

func (l *minDurationWatch) forward(began time.Time) {
	defer close(l.events)
	hadEvent := false
	for event := range l.inner.ResultChan() {
		hadEvent = true
		select {
		case l.events <- event:
		case <-l.stopped:
			return
		}
	}
	duration := time.Since(began)
	if wasShort := l.short.Swap(!hadEvent && duration < minWatchDuration); wasShort || hadEvent {
		return
	}
	select {
	case <-time.After(minWatchDuration - duration):
	case <-l.stopped:
	}
}
