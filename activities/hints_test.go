package activities

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

const hintPatience = time.Minute

var staging = runtimes.Owner{Application: "shop", Service: "web", ID: entities.Only("staging")}

// fixture is what a watched instance runs, and who was woken because of it.
type fixture struct {
	*hints
	readings, woken chan runtimes.Owner

	store kept

	mu      sync.Mutex
	version string
	err     *entities.ReadingError
}

// kept is what the store holds of what workflows know.
type kept struct {
	mu      sync.Mutex
	of      map[runtimes.Owner]protocol.Watched
	present map[string]store.Beat
	away    error
	common  *kept // of the common queue, where this is that of a remote runtime
}

func (k *kept) guards(ctx context.Context) (map[string]store.Beat, error) { return k.common.beats(ctx) }

func (k *kept) beat(_ context.Context, worker string, b store.Beat) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.present == nil {
		k.present = map[string]store.Beat{}
	}
	if k.away == nil {
		k.present[worker] = b
	}
	return k.away
}

func (k *kept) beats(context.Context) (map[string]store.Beat, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.present), k.away
}

func (k *kept) leave(_ context.Context, worker string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.present, worker)
	return k.away
}

func (k *kept) put(_ context.Context, owner runtimes.Owner, w protocol.Watched) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = map[runtimes.Owner]protocol.Watched{}
	}
	if k.away == nil {
		k.of[owner] = w
	}
	return k.away
}

func (k *kept) get(_ context.Context, owner runtimes.Owner) (*protocol.Watched, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w, ok := k.of[owner]; ok {
		return &w, k.away
	}
	return nil, k.away
}

func (k *kept) remove(_ context.Context, owner runtimes.Owner) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.of, owner)
	return k.away
}

func (k *kept) all(context.Context) ([]runtimes.Owner, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.of)), k.away
}

func (k *kept) fails(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = err
}

// another is a worker beside p, or after it, with the same store and the same cluster. It wakes the same workflows.
func (p *fixture) another(t *testing.T) *hints {
	h := newHints(&Activities{})
	h.gap, h.leave, h.records, h.observe, h.wake = p.gap, p.leave, &p.store, p.observe, p.wake
	t.Cleanup(h.stop)
	return h
}

func newFixture(t *testing.T) *fixture {
	p := &fixture{readings: make(chan runtimes.Owner, 100), woken: make(chan runtimes.Owner, 100), version: "v1"}
	p.hints = newHints(&Activities{})
	p.gap, p.leave = time.Millisecond, time.Millisecond
	p.records = &p.store
	p.observe = func(_ context.Context, _ protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		defer func() { p.readings <- runtimes.Owner{ID: ref.ID} }()
		return p.reading()
	}
	p.wake = func(_ context.Context, owner runtimes.Owner, _ string) error {
		p.woken <- owner
		return nil
	}
	t.Cleanup(p.stop)
	return p
}

func (p *fixture) reading() entities.Reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return entities.Reading{Err: p.err}
	}
	return entities.Reading{Objects: []entities.Object{{
		Name: "web", Type: "Deployment", Status: entities.ObjectSucceeded,
		Versions: []entities.ObjectVersion{{Version: p.version, Active: true}},
	}}}
}

func (p *fixture) run(version string, err *entities.ReadingError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version, p.err = version, err
}

var ref = protocol.InstanceRef{ID: staging.ID, FullVersion: "v1"}

// settled is an observation that found what runs to be as known.
func (p *fixture) settled(owner runtimes.Owner) {
	p.settle(owner, p.begin(owner), p.found())
}

func (p *fixture) found() *observed {
	return &observed{ref: ref, shape: shapeOf(p.reading(), ref)}
}

func next(t *testing.T, from chan runtimes.Owner) runtimes.Owner {
	t.Helper()
	select {
	case owner := <-from:
		return owner
	case <-time.After(hintPatience):
		t.Fatal("timed out")
		return runtimes.Owner{}
	}
}

// idle waits until nobody follows hints any more.
func (p *fixture) idle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.hints.mu.Lock()
		defer p.hints.mu.Unlock()
		for _, i := range p.owners {
			if i.running {
				return false
			}
		}
		return true
	}, hintPatience, time.Millisecond)
}

func TestHintOfAChangeWakesTheService(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	p.run("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
	p.settled(staging) // its observation
	p.hint(staging, "eu")
	p.idle(t)
	require.Empty(t, p.woken)
	p.run("v1", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
}

// What runs on the way to another version is shown by the next observation, and decides nothing.
func TestHintOfProgressWakesNobody(t *testing.T) {
	p := newFixture(t)
	p.run("v2", nil)
	p.settled(staging)
	p.run("v3", nil)
	p.hint(staging, "eu")
	next(t, p.readings)
	p.idle(t)
	require.Empty(t, p.woken)
}

// What the decision would not see wakes nobody.
func TestHintWithoutADifferenceWakesNobody(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	p.hint(staging, "eu")
	next(t, p.readings)
	p.idle(t)
	require.Empty(t, p.woken)
}

// A hint comes once: what could not be read is read again, and wakes nobody until it was.
func TestHintIsFollowedUntilItCouldBeRead(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	p.run("v2", &entities.ReadingError{Code: runtimes.CodeTimeout})
	p.hint(staging, "eu")
	next(t, p.readings)
	next(t, p.readings)
	require.Empty(t, p.woken)
	p.run("v2", nil)
	require.Equal(t, staging, next(t, p.woken))
	p.idle(t)
}

func TestHintIsFollowedUntilTheServiceWasWoken(t *testing.T) {
	p := newFixture(t)
	tries := 0
	p.wake = func(_ context.Context, owner runtimes.Owner, _ string) error {
		if tries++; tries < 3 {
			return errors.New("the server is unavailable")
		}
		p.woken <- owner
		return nil
	}
	p.settled(staging)
	p.run("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
	p.idle(t)
	require.Empty(t, p.woken)
}

// A hint about one instance of a channel wakes nobody because of another.
func TestHintsDistinguishInstancesOfAChannel(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	other := staging
	other.ID.Name = "eu-3"
	p.settled(other)
	p.run("v2", nil)
	p.hint(other, "eu")
	require.Equal(t, other, next(t, p.woken))
	p.idle(t)
	require.Empty(t, p.woken)
}

func TestHintDuringAnObservationIsNotLost(t *testing.T) {
	p := newFixture(t)
	turn := p.begin(staging)
	found := p.found() // it reads, then something changes, then it ends
	p.run("v2", nil)
	p.hint(staging, "eu")
	p.idle(t)
	require.Empty(t, p.woken)
	p.settle(staging, turn, found)
	require.Equal(t, staging, next(t, p.woken))
}

// What comes during an apply is about it, and is followed once it has ended: what happened besides is no part of its reading.
func TestHintDuringAnApplyIsFollowedAfterwards_H9(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	turn := p.begin(staging)
	p.run("v2", nil)
	p.hint(staging, "eu")
	p.idle(t)
	require.Empty(t, p.readings)
	p.hints.settled(staging, turn, p.found(), true)
	next(t, p.readings)
	p.idle(t)
	require.Empty(t, p.woken, "the apply reported it")

	turn = p.begin(staging)
	found := p.found()
	p.run("v1", nil) // behind its reading
	p.hint(staging, "eu")
	p.hints.settled(staging, turn, found, true)
	require.Equal(t, staging, next(t, p.woken))
}

// A repair ends as it began, so the steady observation that was under way before it stays, and none begins. What the apply
// read is what later hints are compared with, however much later they come.
func TestHintLongAfterARepairIsFollowed_H9(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	request := protocol.ApplyRequest{Application: staging.Application, Service: staging.Service, Instance: ref, Runtime: "eu"}
	reading := p.reading()
	p.hints.applied(request, p.begin(staging), &reading, true)
	p.run("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
}

// What was applied is followed by hints alone where no observation is to come: at once.
func TestHintBehindAnApplyThatNothingFollows_F9(t *testing.T) {
	p := newFixture(t)
	p.leave = time.Hour
	request := protocol.ApplyRequest{Application: staging.Application, Service: staging.Service, Instance: ref, Runtime: "eu", Rest: 5 * time.Minute}
	reading := p.reading()
	p.hints.applied(request, p.begin(staging), &reading, true)
	p.run("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
}

// Between an apply and the observation that follows it a hint is left to that one. What is hinted at after it is followed at once.
func TestHintBehindAnApplyDelaysNone_H9(t *testing.T) {
	p := newFixture(t)
	p.leave = time.Hour
	p.hints.settled(staging, p.begin(staging), p.found(), true)
	p.hint(staging, "eu")
	require.NotNil(t, p.owners[staging].later)
	p.settled(staging)
	require.Empty(t, p.readings)
	p.run("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
}

// An apply, or an observation, that was given up has read nothing: what changed meanwhile is looked for.
func TestWhatWasGivenUpIsLookedAtAgain_H9(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	p.stored(t, staging)
	turn := p.begin(staging)
	p.run("v2", nil) // the hint of which came before it began
	p.settle(staging, turn, nil)
	require.Equal(t, staging, next(t, p.woken))
}

// An observation that took so long that its workflow asked anew ends after the new one.
func TestAnObservationThatWasPassedByHidesNothing(t *testing.T) {
	p := newFixture(t)
	slow := p.begin(staging)
	p.settled(staging)
	p.settle(staging, slow, nil)
	p.run("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
}

// Where nothing is written down, by a worker that had to go at once, the workflow looks.
func TestHintForAnInstanceNobodyKnowsWakes_H9(t *testing.T) {
	p := newFixture(t)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
	p.hint(staging, "eu") // whoever looked then may not have seen this
	require.Equal(t, staging, next(t, p.woken))
}

// kept waits until the store knows what the workflow does.
func (p *fixture) stored(t *testing.T, owner runtimes.Owner) {
	t.Helper()
	require.Eventually(t, func() bool {
		w, err := p.store.get(t.Context(), owner)
		return err == nil && w != nil && w.Seen == shapeOf(p.reading(), ref)
	}, hintPatience, time.Millisecond)
}

// A worker that starts finds what changed while nobody watched.
func TestTakeOverFindsWhatChangedMeanwhile_H9(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	other := staging
	other.ID.Channel = "production"
	p.settled(other)
	p.stored(t, staging)
	p.stored(t, other)
	p.stop()
	p.another(t).takeOver()
	next(t, p.readings)
	next(t, p.readings)
	require.Empty(t, p.woken, "no change")
	p.run("v2", nil)
	p.another(t).takeOver()
	require.ElementsMatch(t, []runtimes.Owner{staging, other}, []runtimes.Owner{next(t, p.woken), next(t, p.woken)})
}

func TestTakeOverWaitsForTheStore_H9(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	p.stored(t, staging)
	p.store.fails(errors.New("unavailable"))
	p.run("v2", nil)
	after := p.another(t)
	go after.takeOver()
	after.hint(staging, "eu")
	p.idle(t)
	require.Empty(t, p.woken)
	p.store.fails(nil)
	require.Equal(t, staging, next(t, p.woken))
}

// Of two workers on one cluster both hear of a change. The one that does not observe finds that the workflow knows; when the
// other one is gone, it wakes the workflow.
func TestHintIsFollowedByAnotherWorker_H9(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	p.stored(t, staging)
	beside := p.another(t)
	for range 3 {
		beside.hint(staging, "eu")
		next(t, p.readings)
	}
	require.Empty(t, p.woken)
	p.run("v2", nil)
	p.settled(staging) // by the first
	p.stored(t, staging)
	beside.hint(staging, "eu")
	next(t, p.readings)
	require.Empty(t, p.woken)
	p.stop()
	p.run("v1", nil)
	beside.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
}

// While a workflow that is woken observes nowhere, hints wake it ever more seldom.
func TestUnansweredHintsBecomeSeldom_H9(t *testing.T) {
	p := newFixture(t)
	p.leave = time.Minute
	i := &interest{looks: 1}
	require.Equal(t, time.Minute, p.leaves(i))
	i.looks = 3
	require.Equal(t, 4*time.Minute, p.leaves(i))
	i.looks = 1000
	require.Equal(t, lastHintLeave, p.leaves(i))
	i.known = p.found()
	require.Zero(t, p.leaves(i))
}

// Of a service that is gone nothing stays known.
func TestHintForAServiceThatIsGone(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	p.stored(t, staging)
	p.run("v2", nil)
	p.wake = func(_ context.Context, owner runtimes.Owner, _ string) error {
		p.woken <- owner
		return errNobody
	}
	p.hint(staging, "eu")
	next(t, p.woken)
	p.idle(t)
	w, err := p.store.get(t.Context(), staging)
	require.NoError(t, err)
	require.Nil(t, w)
}

// Many hints at once are few readings.
func TestHintsAreGathered(t *testing.T) {
	p := newFixture(t)
	p.gap = 50 * time.Millisecond
	p.settled(staging)
	for range 1000 {
		p.hint(staging, "eu")
	}
	p.idle(t)
	require.Less(t, len(p.readings), 20)
	require.NotEmpty(t, p.readings)
	require.Empty(t, p.woken)
}

// pods that come and go leave a workload as declared and not ready.
func (p *fixture) ready(is bool) {
	p.observe = func(_ context.Context, _ protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		defer func() { p.readings <- runtimes.Owner{ID: ref.ID} }()
		reading := p.reading()
		if o := &reading.Objects[0]; !is {
			o.Status, o.AsDeclared = entities.ObjectPending, true
		}
		return reading
	}
}

// steady is settled, of what nothing is expected of.
func (p *fixture) steady() {
	found := p.found()
	found.request.Steady = true
	p.settle(staging, p.begin(staging), found)
}

// What was well and is not ready for a moment wakes nobody; what lasts does, once, and so does anything else that is the matter.
func TestWhatPassesWakesNobody_H8(t *testing.T) {
	p := newFixture(t)
	p.hints.lasting = time.Hour
	p.steady()
	for _, is := range []bool{false, true, false} {
		p.ready(is)
		p.hint(staging, "eu")
		next(t, p.readings)
		p.idle(t)
		require.Empty(t, p.woken)
	}
	p.run("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken), "another version")
}

func TestWhatLastsWakes_H8(t *testing.T) {
	p := newFixture(t)
	p.hints.lasting = time.Millisecond
	p.steady()
	p.ready(false)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
}

// What moves is followed at once.
func TestWhatMovesWakesAtOnce_H8(t *testing.T) {
	p := newFixture(t)
	p.hints.lasting = time.Hour
	p.settled(staging)
	p.ready(false)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
}

// A runtime that hangs holds up no hint of another one, however much of it was hinted at.
func TestHangingRuntimeHoldsUpNoOtherHints_A7_H9(t *testing.T) {
	p := newFixture(t)
	hung := make(chan struct{})
	begun := make(chan struct{}, 100)
	read := p.hints.observe
	p.hints.observe = func(ctx context.Context, r protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		if r.Runtime == "hangs" {
			begun <- struct{}{}
			<-hung
		}
		return read(ctx, r, ref)
	}
	defer close(hung)
	known := func(runtime, channel string) runtimes.Owner {
		owner := runtimes.Owner{Application: "shop", Service: "web", ID: entities.Only(channel)}
		found := p.found()
		found.request.Runtime, found.ref.ID = runtime, owner.ID
		p.settle(owner, p.begin(owner), found)
		return owner
	}
	for n := range 4 * hintReadings {
		p.hint(known("hangs", fmt.Sprint("c", n)), "hangs")
	}
	for range hintReadings {
		<-begun
	}
	p.run("v2", nil)
	well := known("well", "staging")
	p.run("v3", nil)
	p.hint(well, "well")
	require.Equal(t, well.ID, next(t, p.readings).ID)
	require.Empty(t, begun, "no more than the limit")
}
