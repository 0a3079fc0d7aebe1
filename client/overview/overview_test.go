package overview

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/protocol"
)

// installation is an installation of services that a test changes. It counts what it is asked.
type installation struct {
	mu       sync.Mutex
	services map[string]connection.ListedService // by workflow id
	statuses map[string]protocol.Status
	lists    int // pages
	perPage  int // services, if a page has fewer than were requested
	rows     int // of the last page
	queries  map[string]int
	down     error
}

func newInstallation(services int) *installation {
	i := &installation{services: map[string]connection.ListedService{}, statuses: map[string]protocol.Status{}, queries: map[string]int{}}
	for n := range services {
		i.set(fmt.Sprintf("s%05d", n), "CONVERGED")
	}
	return i
}

// set changes the status of a service, and when that happened.
func (i *installation) set(service, status string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := connection.ServiceName{Application: "shop", Service: service}
	i.services[n.ID()] = connection.ListedService{ServiceName: n, WorkflowID: n.ID(), Status: status, Changed: time.Now()}
	i.statuses[n.ID()] = protocol.Status{Application: "shop", Service: service, Status: status, Channels: []protocol.ChannelStatus{{Name: "prod", Status: status}}}
}

func (i *installation) ListServices(_ context.Context, filter connection.ServiceFilter, size int, token []byte) (page []connection.ListedService, next []byte, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lists++
	if i.down != nil {
		return nil, nil, i.down
	}
	var ids []string
	for id, l := range i.services {
		if id > string(token) && !l.Changed.Before(filter.ChangedSince) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	if i.perPage > 0 {
		size = min(size, i.perPage)
	}
	if len(ids) > size {
		ids = ids[:size]
		next = []byte(ids[size-1])
	}
	for _, id := range ids {
		page = append(page, i.services[id])
	}
	i.rows = len(page)
	return page, next, nil
}

func (i *installation) Query(_ context.Context, id, _ string, into any) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.queries[id]++
	s, ok := i.statuses[id]
	if !ok {
		return fmt.Errorf("%s: %w", id, connection.ErrNotFound)
	}
	*into.(*protocol.Status) = s
	return nil
}

func (i *installation) rowsOfLastPage() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.rows
}

// byService is how often each service was queried.
func (i *installation) byService() map[string]int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return maps.Clone(i.queries)
}

func (i *installation) counts() (lists, queries int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, n := range i.queries {
		queries += n
	}
	return i.lists, queries
}

func all(*Service) bool { return true }

// follow runs an overview of an installation in a bubble, whose time passes at once.
func follow(t *testing.T, i *installation, test func(t *testing.T, o *Overview)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for id, l := range i.services { // the clock of the bubble is another
			l.Changed = time.Now()
			i.services[id] = l
		}
		o := New(i, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { o.Run(ctx); close(ended) }()
		test(t, o)
		cancel()
		<-ended
	})
}

// Without readers nothing is asked, however long.
func TestNothingIsAskedWithoutReaders(t *testing.T) {
	i := newInstallation(3)
	follow(t, i, func(t *testing.T, o *Overview) {
		time.Sleep(time.Hour)
		lists, queries := i.counts()
		require.Zero(t, lists+queries)
		closeReader := o.Open()
		time.Sleep(10 * time.Second)
		closeReader()
		synctest.Wait()
		time.Sleep(5 * time.Second)
		before, _ := i.counts()
		require.NotZero(t, before)
		time.Sleep(time.Hour)
		after, _ := i.counts()
		require.Equal(t, before, after)
	})
}

// A change is known within a second, of a service of ten thousand, for a list page a second.
func TestChangeIsKnownWithinASecond(t *testing.T) {
	i := newInstallation(3_000)
	follow(t, i, func(t *testing.T, o *Overview) {
		defer o.Open()()
		time.Sleep(time.Minute)
		state, _ := o.State()
		require.Equal(t, 3_000, state.Services)
		require.True(t, state.Complete)
		before, queries := i.counts()
		require.Zero(t, queries, "no reader has asked for a service")

		time.Sleep(time.Minute)
		after, _ := i.counts()
		require.LessOrEqual(t, after-before, 65, "pages of changes in a minute without any")
		require.Zero(t, i.rowsOfLastPage(), "while nothing changes, lists are empty")

		revision := state.Revision
		i.set("s00042", "FAILED")
		time.Sleep(time.Second)
		changed, now := o.Since(revision)
		require.Len(t, changed, 1)
		require.Equal(t, "FAILED", changed[0].ListedService.Status)
		require.NotEqual(t, revision, now)
		again, ok := o.ParseRevision(now.String())
		require.True(t, ok)
		require.Equal(t, now, again)
		_, ok = New(i, time.Now).ParseRevision(now.String())
		require.False(t, ok, "another process counts differently")
	})
}

// The services of a page are asked, and no others; what moves is asked again, what rests seldom.
func TestServicesOfInterestAreAsked(t *testing.T) {
	i := newInstallation(2_000)
	i.set("s00001", "CONVERGING")
	follow(t, i, func(t *testing.T, o *Overview) {
		defer o.Open()()
		time.Sleep(5 * time.Second)
		look := func() []Service {
			page, total := o.Select(all, connection.ServiceName{}, 10)
			require.Equal(t, 2_000, total)
			return page
		}
		require.Nil(t, look()[0].Status, "it was not asked yet")
		time.Sleep(time.Second)
		for _, s := range look() {
			require.NotNil(t, s.Status, s.Service)
		}
		for range 6 {
			time.Sleep(10 * time.Second)
			look()
		}
		queries := i.byService()
		require.Len(t, queries, 10)
		require.GreaterOrEqual(t, queries["service/shop/s00001"], 50, "it moves")
		require.LessOrEqual(t, queries["service/shop/s00002"], 8, "it rests")
		time.Sleep(interestFor + time.Second)
		before := i.byService()["service/shop/s00001"]
		time.Sleep(time.Minute)
		require.Equal(t, before, i.byService()["service/shop/s00001"], "no reader asks for it any more")
	})
}

// A service that is gone, an outage, and statuses without room.
func TestOverviewOfWhatChanges(t *testing.T) {
	i := newInstallation(30)
	follow(t, i, func(t *testing.T, o *Overview) {
		defer o.Open()()
		o.mu.Lock()
		o.maxBytes = 2_000
		o.mu.Unlock()
		time.Sleep(time.Second)
		for range 5 {
			o.Select(all, connection.ServiceName{}, 30)
			time.Sleep(3 * time.Second)
		}
		o.mu.Lock()
		held := o.bytes
		o.mu.Unlock()
		require.LessOrEqual(t, held, o.maxBytes)
		page, _ := o.Select(all, connection.ServiceName{}, 30)
		require.Len(t, page, 30, "those without room are listed")

		i.mu.Lock()
		delete(i.services, "service/shop/s00003")
		i.mu.Unlock()
		time.Sleep(listInterval + time.Second)
		_, total := o.Select(all, connection.ServiceName{}, 1)
		require.Equal(t, 29, total)

		i.mu.Lock()
		i.down = errors.New("no server")
		i.mu.Unlock()
		time.Sleep(2 * time.Second)
		state, _ := o.State()
		require.EqualError(t, state.Problem, "no server")
		require.Equal(t, 29, state.Services, "known services stay")
		i.mu.Lock()
		i.down = nil
		i.mu.Unlock()
		time.Sleep(2 * time.Second)
		state, changed := o.State()
		require.NoError(t, state.Problem)
		i.set("s00004", "FAILED")
		<-changed
	})
}

// A change of many services is known, however many pages Temporal lists them on.
func TestChangeOfManyIsKnown(t *testing.T) {
	i := newInstallation(100)
	i.perPage = 10
	follow(t, i, func(t *testing.T, o *Overview) {
		defer o.Open()()
		time.Sleep(time.Minute)
		state, _ := o.State()
		for n := range 100 {
			i.set(fmt.Sprintf("s%05d", n), "FAILED")
		}
		time.Sleep(2 * time.Second)
		changed, _ := o.Since(state.Revision)
		require.Len(t, changed, 100)
	})
}

// A time in the future, which every writer of the namespace can state, hides no later change.
func TestForgedTimeOfAChangeHidesNothing(t *testing.T) {
	i := newInstallation(3)
	follow(t, i, func(t *testing.T, o *Overview) {
		defer o.Open()()
		time.Sleep(time.Second)
		i.set("s00000", "FAILED")
		i.mu.Lock()
		forged := i.services["service/shop/s00000"]
		forged.Changed = time.Now().Add(24 * time.Hour)
		i.services["service/shop/s00000"] = forged
		i.mu.Unlock()
		time.Sleep(2 * time.Second)
		state, _ := o.State()
		i.set("s00001", "FAILED")
		time.Sleep(2 * time.Second)
		changed, _ := o.Since(state.Revision)
		require.Len(t, changed, 1)
		require.Equal(t, "s00001", changed[0].Service)
	})
}

// A service that does not run is left out although the list has it, and is back with another run.
func TestServiceThatDoesNotRunIsLeftOut(t *testing.T) {
	i := newInstallation(3)
	follow(t, i, func(t *testing.T, o *Overview) {
		defer o.Open()()
		i.mu.Lock()
		delete(i.statuses, "service/shop/s00001")
		i.mu.Unlock()
		time.Sleep(time.Second)
		o.Select(all, connection.ServiceName{}, 10)
		time.Sleep(2 * time.Second)
		_, total := o.Select(all, connection.ServiceName{}, 10)
		require.Equal(t, 2, total)
		state, _ := o.State()
		time.Sleep(time.Minute)
		later, _ := o.State()
		require.Equal(t, state.Revision, later.Revision, "it does not come and go")
		i.set("s00001", "CONVERGED")
		time.Sleep(2 * time.Second)
		_, total = o.Select(all, connection.ServiceName{}, 10)
		require.Equal(t, 3, total)
	})
}

// With slow readers alone a round comes every two seconds; a quick one is served at once.
func TestSlowReadersCostHalf(t *testing.T) {
	i := newInstallation(3)
	follow(t, i, func(t *testing.T, o *Overview) {
		defer o.OpenSlow()()
		time.Sleep(time.Minute)
		before, _ := i.counts()
		time.Sleep(time.Minute)
		slow, _ := i.counts()
		require.InDelta(t, 30, slow-before, 2)
		closeReader := o.Open()
		i.set("s00001", "FAILED")
		revision, _ := o.State()
		time.Sleep(maxInterval)
		changed, _ := o.Since(revision.Revision)
		require.Len(t, changed, 1)
		time.Sleep(time.Minute)
		before, _ = i.counts()
		time.Sleep(time.Minute)
		quick, _ := i.counts()
		require.InDelta(t, 60, quick-before, 4)
		closeReader()
	})
}
