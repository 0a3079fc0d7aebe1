package kubernetes

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// shortestWatch is how long a watch lasts at least for a reflector: after one that brought nothing within a second it lists anew, and a server that
// goes away hangs up on those that have just begun.
const shortestWatch = 1100 * time.Millisecond

// lasting is a watch that does not end before that, unless it is stopped or has brought something, or the one before it was as short: a server that
// keeps none open is listed again and again.
type lasting struct {
	of      watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
	short   *atomic.Bool // the last watch of the view brought nothing, and was hung up on
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
