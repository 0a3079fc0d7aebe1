package kubernetes

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// shortestWatch is the shortest duration of a watch for a reflector. After a watch without events within a second the reflector
// lists again, and a server that shuts down closes watches that have just started.
const shortestWatch = 1100 * time.Millisecond

// lasting is a watch that does not end earlier than shortestWatch, with three exceptions: it is stopped, it had an event, or the
// watch before it was also short. So a server that keeps no watch open is listed again and again.
type lasting struct {
	of      watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
	short   *atomic.Bool // the last watch of the view had no event and was closed early
}

func newLasting(of watch.Interface, short *atomic.Bool) *lasting {
	l := &lasting{of: of, events: make(chan watch.Event), stopped: make(chan struct{}), short: short}
	go l.pass(time.Now())
	return l
}

// Stop implements watch.Interface.
func (l *lasting) Stop() {
	l.stop.Do(func() { close(l.stopped) })
	l.of.Stop()
}

// ResultChan implements watch.Interface.
func (l *lasting) ResultChan() <-chan watch.Event { return l.events }

func (l *lasting) pass(began time.Time) {
	defer close(l.events)
	brought := false
	for event := range l.of.ResultChan() {
		brought = true
		select {
		case l.events <- event:
		case <-l.stopped:
			return
		}
	}
	lasted := time.Since(began)
	if again := l.short.Swap(!brought && lasted < shortestWatch); again || brought {
		return
	}
	select {
	case <-time.After(shortestWatch - lasted):
	case <-l.stopped:
	}
}
