// Package overview keeps the status of every service of an installation in memory, for many readers at the cost of one. It asks Temporal's
// list what has changed, and asks a service itself only while a reader is interested in it. While there is no reader, it asks nothing.
package overview

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
)

// Calls are the calls of a connection that an overview needs.
type Calls interface {
	ListServices(ctx context.Context, filter connection.ServiceFilter, size int, token []byte) (page []connection.ListedService, next []byte, err error)
	Query(ctx context.Context, workflowID, query string, into any) error
}

// The bounds of what one round asks, so that the load does not depend on the number of readers or services.
const (
	pageSize        = 1000
	maxAsked        = 20 // services that have changed, or move
	maxRestingAsked = 3  // others
	maxAskedAtOnce  = 8
	askTimeout      = 3 * time.Second
	askAgain        = 10 * time.Second // after a service did not answer
	minInterval     = 300 * time.Millisecond
	maxInterval     = time.Second
	slowInterval    = 2 * time.Second  // instead, while all readers are slow
	listInterval    = 5 * time.Minute  // between two lists of everything
	overlap         = 30 * time.Second // by which lists of changes overlap: Temporal lists late, and in no order
	interestFor     = 90 * time.Second // after a reader wanted a service
	unchangedFor    = 10 * time.Second // after which a service of interest is queried although the list shows no change
	defaultMaxBytes = 64 << 20         // of statuses
)

// Service is a service with its last known status.
type Service struct {
	connection.ListedService
	// Status is the last status that the service itself gave, at AskedAt; nil: it was not queried yet, or there was no room for it.
	Status  *protocol.Status
	AskedAt time.Time
	// Revision grows with every change of a service, over all of them.
	Revision uint64

	listed   string // its row in the list, as text
	row      string // the same when it was queried
	bytes    int
	wantedAt time.Time // when a reader last wanted it
	failedAt time.Time // when it last did not answer
	gone     bool      // it does not run, though the list has it
}

// Overview is the state. Its zero value is not usable; New makes one.
type Overview struct {
	calls    Calls
	now      func() time.Time
	maxBytes int

	mu       sync.Mutex
	services map[string]*Service // by workflow id
	names    []string            // workflow ids, sorted by the names of the services
	epoch    string
	revision uint64
	changed  chan struct{} // closed at the next change
	readers  int
	slow     int // readers among them that need no answer within a second
	wake     chan struct{}
	listedAt time.Time // of everything; zero: not yet
	newest   time.Time // a change that the list has, by the clock of Temporal
	newestAt time.Time // when it was listed, by the clock of this process
	bytes    int
	problem  error     // why the last list failed
	goodAt   time.Time // when it last did not
}

// New returns an overview that knows nothing yet. Run fills it.
func New(calls Calls, now func() time.Time) *Overview {
	return &Overview{
		calls: calls, now: now, epoch: connection.NewRequestID(), maxBytes: defaultMaxBytes, services: map[string]*Service{},
		changed: make(chan struct{}), wake: make(chan struct{}, 1),
	}
}

// Run follows the installation while there are readers, until ctx ends.
func (o *Overview) Run(ctx context.Context) {
	interval := minInterval
	for {
		if !o.hasReaders() {
			select {
			case <-ctx.Done():
				return
			case <-o.wake:
				continue
			}
		}
		began := time.Now()
		changed := o.round(ctx)
		if interval = min(interval*5/4, o.longest()); changed {
			interval = minInterval
		}
		select {
		case <-ctx.Done():
			return
		case <-o.wake: // a reader wants other services
			select {
			case <-ctx.Done():
				return
			case <-time.After(minInterval - time.Since(began)): // many readers cost no more than one
			}
		case <-time.After(interval):
		}
	}
}

// longest is the longest interval between two rounds.
func (o *Overview) longest() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.readers == o.slow {
		return slowInterval
	}
	return maxInterval
}

// OpenSlow is Open for a reader to which a change may come after two seconds.
func (o *Overview) OpenSlow() (closeReader func()) {
	closeIt := o.Open()
	o.mu.Lock()
	o.slow++
	o.mu.Unlock()
	return sync.OnceFunc(func() {
		o.mu.Lock()
		o.slow--
		o.mu.Unlock()
		closeIt()
	})
}

// Open counts a reader until it is closed.
func (o *Overview) Open() (closeReader func()) {
	o.mu.Lock()
	o.readers++
	first := o.readers == o.slow+1
	o.mu.Unlock()
	if first {
		o.wakeUp()
	}
	return sync.OnceFunc(func() {
		o.mu.Lock()
		o.readers--
		o.mu.Unlock()
	})
}

func (o *Overview) hasReaders() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.readers > 0
}

func (o *Overview) wakeUp() {
	select {
	case o.wake <- struct{}{}:
	default: // it is awake
	}
}

// State says how much is known.
type State struct {
	Services int       // that are listed
	Complete bool      // all are listed
	At       time.Time // of the last list of everything
	Revision Revision
	Problem  error     // why the last list failed; nil: it did not
	GoodAt   time.Time // of the last list that did not fail
}

// Revision counts the changes that an Overview has seen. Another process counts differently.
type Revision struct {
	epoch string // of the Overview
	n     uint64
}

// String is the revision for a client to give back, for ParseRevision.
func (r Revision) String() string { return fmt.Sprintf("%s-%d", r.epoch, r.n) }

// ParseRevision reads what a client gives back. ok is false if it is not a revision of this Overview, now or before.
func (o *Overview) ParseRevision(text string) (r Revision, ok bool) {
	epoch, number, _ := strings.Cut(text, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	o.mu.Lock()
	defer o.mu.Unlock()
	return Revision{epoch, n}, err == nil && epoch == o.epoch && n <= o.revision
}

// State returns how much is known now, and a channel that is closed when that changes.
func (o *Overview) State() (State, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return State{Services: len(o.services), Complete: !o.listedAt.IsZero(), At: o.listedAt, Revision: Revision{o.epoch, o.revision}, Problem: o.problem, GoodAt: o.goodAt}, o.changed
}

// Await waits until something is known, and returns how much. The error says why nothing is known when the time has passed.
func (o *Overview) Await(ctx context.Context, limit time.Duration) (State, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		state, changed := o.State()
		if state.Complete || state.Services > 0 {
			return state, nil
		}
		select {
		case <-ctx.Done():
			return state, ctx.Err()
		case <-changed:
		case <-timer.C:
			if state.Problem == nil {
				state.Problem = fmt.Errorf("list services: %w", context.DeadlineExceeded)
			}
			return state, state.Problem
		}
	}
}

// Applications returns the names of the applications of all known services.
func (o *Overview) Applications() (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.names { // sorted
		if name := o.services[id].Application; len(names) == 0 || names[len(names)-1] != name {
			names = append(names, name)
		}
	}
	return names
}

// Select returns a page of the services that match, sorted by name, after the one of a name; zero: from the first. They are of interest from
// now on. total counts all that match, on every page.
func (o *Overview) Select(match func(*Service) bool, after connection.ServiceName, limit int) (page []Service, total int) {
	now := o.now()
	o.mu.Lock()
	fresh := true
	for _, id := range o.names {
		s := o.services[id]
		if s.gone || !match(s) {
			continue
		}
		if total++; len(page) < limit && s.ServiceName.Compare(after) > 0 {
			s.wantedAt = now
			page = append(page, *s)
			fresh = fresh && s.Current()
		}
	}
	o.mu.Unlock()
	if !fresh {
		o.wakeUp()
	}
	return page, total
}

// Counts is how many services that match have each status, by the list.
func (o *Overview) Counts(match func(*Service) bool) map[string]int {
	counts := map[string]int{}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.names {
		if s := o.services[id]; !s.gone && match(s) {
			counts[s.ListedService.Status]++
		}
	}
	return counts
}

// SelectCurrent is Select after the services of the page have been queried, for as long as the patience lasts.
func (o *Overview) SelectCurrent(ctx context.Context, match func(*Service) bool, after connection.ServiceName, limit int, patience time.Duration) (page []Service, total int) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		_, changed := o.State()
		page, total = o.Select(match, after, limit)
		if !slices.ContainsFunc(page, func(s Service) bool { return !s.Current() }) {
			return page, total
		}
		select {
		case <-ctx.Done():
			return page, total
		case <-timer.C:
			return page, total
		case <-changed:
		}
	}
}

// Want makes the services that match of interest, as if a reader wanted them.
func (o *Overview) Want(match func(connection.ListedService) bool) {
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.services {
		if match(s.ListedService) {
			s.wantedAt = now
		}
	}
}

// Since returns the services that have changed after a revision, and the revision that they lead to.
func (o *Overview) Since(r Revision) (changed []Service, now Revision) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range o.names {
		if s := o.services[id]; s.Revision > r.n {
			changed = append(changed, *s)
		}
	}
	return changed, Revision{o.epoch, o.revision}
}

// round asks once what has changed, and reports whether anything has.
func (o *Overview) round(ctx context.Context) bool {
	before := o.currentRevision()
	err := o.list(ctx)
	if err == nil {
		o.ask(ctx, o.due())
	}
	o.mu.Lock()
	if ctx.Err() == nil {
		if (err == nil) != (o.problem == nil) {
			o.noteChange(nil)
		}
		if o.problem = err; err == nil {
			o.goodAt = o.now()
		}
	}
	o.mu.Unlock()
	return o.currentRevision() != before
}

func (o *Overview) currentRevision() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.revision
}

// list reads the list: everything from time to time, and otherwise what has changed.
func (o *Overview) list(ctx context.Context) error {
	o.mu.Lock()
	everything := o.now().Sub(o.listedAt) >= listInterval
	filter := connection.ServiceFilter{ChangedSince: o.listedUntil()}
	o.mu.Unlock()
	if everything {
		filter = connection.ServiceFilter{}
	}
	listed, err := o.readList(ctx, filter)
	if err == nil && everything {
		o.keepOnly(listed)
	}
	return err
}

// listedUntil is the time from which on the next list has to be, by the clock of Temporal: that of the last known change, and as much later as
// has passed since. So no difference between the two clocks hides a change, and while nothing changes, lists are empty. Zero: everything.
func (o *Overview) listedUntil() time.Time {
	if o.newest.IsZero() {
		return time.Time{}
	}
	return o.newest.Add(o.now().Sub(o.newestAt) - overlap)
}

// readList records the services that a filter selects, and returns their workflow ids.
func (o *Overview) readList(ctx context.Context, filter connection.ServiceFilter) (listed map[string]bool, _ error) {
	listed = map[string]bool{}
	var token []byte
	var newest time.Time
	began := o.now()
	for {
		page, next, err := o.calls.ListServices(ctx, filter, pageSize, token)
		if err != nil {
			return nil, err
		}
		o.put(page)
		for _, l := range page {
			listed[l.WorkflowID] = true
			if l.Changed.After(newest) && !l.Changed.After(began) { // one in the future is forged, or of another clock
				newest = l.Changed
			}
		}
		if token = next; len(next) == 0 {
			break
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if newest.After(o.newest) { // not before the list is whole: a part does not say what the rest has
		o.newest, o.newestAt = newest, began
	}
	return listed, nil
}

// keepOnly forgets the services that a list of everything does not have.
func (o *Overview) keepOnly(listed map[string]bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, s := range o.services {
		if !listed[id] {
			o.bytes -= s.bytes
			delete(o.services, id)
			o.noteChange(nil)
		}
	}
	o.names = slices.DeleteFunc(o.names, func(id string) bool { return !listed[id] })
	if o.listedAt.IsZero() {
		o.noteChange(nil)
	}
	o.listedAt = o.now()
}

// put records rows of the list.
func (o *Overview) put(page []connection.ListedService) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range page {
		s := o.services[l.WorkflowID]
		if s == nil {
			s = o.add(l)
		}
		if listed := row(l); listed != s.listed {
			s.ListedService, s.listed, s.gone = l, listed, false
			o.noteChange(s)
		}
	}
}

// add adds a service.
func (o *Overview) add(l connection.ListedService) *Service {
	s := &Service{ListedService: l, listed: row(l)}
	o.services[l.WorkflowID] = s
	at, _ := slices.BinarySearchFunc(o.names, s.ServiceName, func(id string, n connection.ServiceName) int { return o.services[id].ServiceName.Compare(n) })
	o.names = slices.Insert(o.names, at, l.WorkflowID)
	o.noteChange(s)
	return s
}

// noteChange gives a service a new revision, or only the overview.
func (o *Overview) noteChange(s *Service) {
	o.revision++
	if s != nil {
		s.Revision = o.revision
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

// due returns the workflow ids of the services to query now: those of interest that have changed, that were not queried yet, that move, or
// that were not queried for a while. Those that were not queried for the longest time come first.
func (o *Overview) due() []string {
	now := o.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	var changing, resting []string
	for _, id := range o.names {
		s := o.services[id]
		switch {
		case s.gone, now.Sub(s.wantedAt) > interestFor, now.Sub(s.failedAt) < askAgain:
		case !s.Current() || IsMoving(*s.Status):
			changing = append(changing, id)
		case now.Sub(s.AskedAt) > unchangedFor:
			resting = append(resting, id)
		}
	}
	longestAgo := func(ids []string, limit int) []string {
		slices.SortStableFunc(ids, func(a, b string) int { return o.services[a].AskedAt.Compare(o.services[b].AskedAt) })
		return ids[:min(len(ids), limit)]
	}
	return append(longestAgo(changing, maxAsked), longestAgo(resting, maxRestingAsked)...)
}

// Current reports whether the status is known, and the list has shown no change since.
func (s *Service) Current() bool { return s.Status != nil && s.row == s.listed }

// IsMoving reports whether a service changes without a person.
func IsMoving(s protocol.Status) bool {
	return len(s.Channels) == 0 || slices.ContainsFunc(s.Channels, func(c protocol.ChannelStatus) bool {
		return entities.Status(c.Status).Row().Exit == entities.ExitWaiting
	})
}

// ask queries services for their status. One that does not answer is queried again later, after the others.
func (o *Overview) ask(ctx context.Context, ids []string) {
	var g errgroup.Group
	g.SetLimit(maxAskedAtOnce)
	for _, id := range ids {
		g.Go(func() error {
			limited, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			began := o.now()
			var s protocol.Status
			switch err := o.calls.Query(limited, id, protocol.QueryStatus, &s); {
			case err == nil:
				o.record(id, s, began)
			case errors.Is(err, connection.ErrNotFound):
				o.forget(id)
			default:
				o.noteFailure(id)
			}
			return nil
		})
	}
	_ = g.Wait() // no task returns an error
}

// record keeps the status of a service that was queried at a time, unless a later one is kept.
func (o *Overview) record(id string, status protocol.Status, began time.Time) {
	data, err := json.Marshal(status)
	if err != nil {
		return // it came as JSON
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.services[id]
	if s == nil || s.AskedAt.After(began) {
		return
	}
	s.AskedAt, s.failedAt = o.now(), time.Time{}
	s.row = s.listed
	if s.Status == nil || !sameStatus(*s.Status, data) {
		o.bytes += len(data) - s.bytes
		s.Status, s.bytes = &status, len(data)
		o.noteChange(s)
		o.makeRoom()
	}
}

// noteFailure notes that a service did not answer.
func (o *Overview) noteFailure(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.services[id]; s != nil {
		s.failedAt = o.now()
	}
}

// forget leaves out a service that does not run, until the list shows something new of it, such as another run. The list may have it for a
// while.
func (o *Overview) forget(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s := o.services[id]; s != nil && !s.gone {
		s.gone = true
		o.noteChange(s)
	}
}

// Learn keeps a status that another part of the process has read, so that readers know what the list does not show yet. The service is of interest
// from now on.
func (o *Overview) Learn(status protocol.Status) {
	id := protocol.ServiceID(status.Application, cmp.Or(status.Key, status.Service))
	now := o.now()
	o.mu.Lock()
	s := o.services[id]
	if s == nil {
		s = o.add(connection.ListedService{
			ServiceName: connection.ServiceName{Application: status.Application, Service: status.Service},
			WorkflowID:  id, Status: status.Status, Version: status.Version,
		})
	}
	s.wantedAt, s.gone = now, false
	o.mu.Unlock()
	o.record(id, status, now)
}

// Filter selects services. Zero fields select all.
type Filter struct {
	Application, Status string
	Name                string // a part of APPLICATION/SERVICE
	Waiting             bool   // for a person
}

// Matches reports whether the filter selects a service.
func (f Filter) Matches(s *Service) bool {
	return (f.Application == "" || s.Application == f.Application) && (f.Status == "" || s.ListedService.Status == f.Status) &&
		(!f.Waiting || s.WaitsForPerson()) && strings.Contains(s.ServiceName.String(), f.Name)
}

// WaitsForPerson reports whether a service waits for a person, as the list or its own status has it.
func (s *Service) WaitsForPerson() bool {
	return len(s.WaitingFor) > 0 || s.Status != nil && len(explain.OpenApprovals([]protocol.Status{*s.Status})) > 0
}

// sameStatus compares a status with another one as JSON.
func sameStatus(a protocol.Status, other []byte) bool {
	data, err := json.Marshal(a)
	return err == nil && string(data) == string(other)
}

// makeRoom forgets the statuses that were not wanted for the longest time, until the others fit.
func (o *Overview) makeRoom() {
	if o.bytes <= o.maxBytes {
		return
	}
	byAge := slices.SortedFunc(slices.Values(o.names), func(a, b string) int { return o.services[a].wantedAt.Compare(o.services[b].wantedAt) })
	for _, id := range byAge {
		if o.bytes <= o.maxBytes {
			return
		}
		if s := o.services[id]; s.Status != nil {
			o.bytes -= s.bytes
			s.Status, s.bytes, s.row = nil, 0, ""
		}
	}
}

// row is a row of the list as text. It differs for another run.
func row(l connection.ListedService) string {
	data, _ := json.Marshal(l) // texts and a time
	return string(data)
}
