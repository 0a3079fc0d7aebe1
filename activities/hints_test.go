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

// fixture is the state of a watched instance, and the wakes of its service.
type fixture struct {
	*hints
	readings, woken chan runtimes.Owner

	store memoryRecords

	mu      sync.Mutex
	version string
	err     *entities.ReadingError
}

// memoryRecords is an in-memory store of the state that workflows know.
type memoryRecords struct {
	mu          sync.Mutex
	records     map[runtimes.Owner]protocol.WatchedInstance
	heartbeatOf map[string]store.Heartbeat
	err         error
	monitors    *memoryRecords // records of the common queue, if these are those of a remote runtime
}

func (k *memoryRecords) monitorHeartbeats(ctx context.Context) (map[string]store.Heartbeat, error) {
	return k.monitors.heartbeats(ctx)
}

func (k *memoryRecords) putHeartbeat(_ context.Context, worker string, b store.Heartbeat) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.heartbeatOf == nil {
		k.heartbeatOf = map[string]store.Heartbeat{}
	}
	if k.err == nil {
		k.heartbeatOf[worker] = b
	}
	return k.err
}

func (k *memoryRecords) heartbeats(context.Context) (map[string]store.Heartbeat, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.heartbeatOf), k.err
}

func (k *memoryRecords) removeHeartbeat(_ context.Context, worker string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.heartbeatOf, worker)
	return k.err
}

func (k *memoryRecords) put(_ context.Context, owner runtimes.Owner, w protocol.WatchedInstance) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.records == nil {
		k.records = map[runtimes.Owner]protocol.WatchedInstance{}
	}
	if k.err == nil {
		k.records[owner] = w
	}
	return k.err
}

func (k *memoryRecords) get(_ context.Context, owner runtimes.Owner) (*protocol.WatchedInstance, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w, ok := k.records[owner]; ok {
		return &w, k.err
	}
	return nil, k.err
}

func (k *memoryRecords) remove(_ context.Context, owner runtimes.Owner) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.records, owner)
	return k.err
}

func (k *memoryRecords) owners(context.Context) ([]runtimes.Owner, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.records)), k.err
}

func (k *memoryRecords) setError(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

// anotherWorker returns another worker with the same store and the same cluster. It wakes the same workflows.
func (p *fixture) anotherWorker(t *testing.T) *hints {
	h := newHints(&Activities{})
	h.gap, h.deferral, h.records, h.observe, h.wake = p.gap, p.deferral, &p.store, p.observe, p.wake
	t.Cleanup(h.stop)
	return h
}

func newFixture(t *testing.T) *fixture {
	p := &fixture{readings: make(chan runtimes.Owner, 100), woken: make(chan runtimes.Owner, 100), version: "v1"}
	p.hints = newHints(&Activities{})
	p.gap, p.deferral = time.Millisecond, time.Millisecond
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

func (p *fixture) setVersion(version string, err *entities.ReadingError) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version, p.err = version, err
}

var ref = protocol.InstanceRef{ID: staging.ID, FullVersion: "v1"}

// observeUnchanged is an observation that found the known state.
func (p *fixture) observeUnchanged(owner runtimes.Owner) {
	p.settle(owner, p.begin(owner), p.state())
}

func (p *fixture) state() *observed {
	return &observed{ref: ref, shape: shapeOf(p.reading(), ref)}
}

func receive(t *testing.T, from chan runtimes.Owner) runtimes.Owner {
	t.Helper()
	select {
	case owner := <-from:
		return owner
	case <-time.After(hintPatience):
		t.Fatal("timed out")
		return runtimes.Owner{}
	}
}

// awaitIdle waits until no goroutine follows hints.
func (p *fixture) awaitIdle(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		p.hints.mu.Lock()
		defer p.hints.mu.Unlock()
		for _, i := range p.instances {
			if i.running {
				return false
			}
		}
		return true
	}, hintPatience, time.Millisecond)
}

func TestHintOfAChangeWakesTheService(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	p.setVersion("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
	p.observeUnchanged(staging) // its observation
	p.hint(staging, "eu")
	p.awaitIdle(t)
	require.Empty(t, p.woken)
	p.setVersion("v1", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
}

// The progress of a rollout affects no decision. The next observation shows it.
func TestHintOfProgressDoesNotWake(t *testing.T) {
	p := newFixture(t)
	p.setVersion("v2", nil)
	p.observeUnchanged(staging)
	p.setVersion("v3", nil)
	p.hint(staging, "eu")
	receive(t, p.readings)
	p.awaitIdle(t)
	require.Empty(t, p.woken)
}

// A change that does not affect a decision wakes no workflow.
func TestHintWithoutADifferenceDoesNotWake(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	p.hint(staging, "eu")
	receive(t, p.readings)
	p.awaitIdle(t)
	require.Empty(t, p.woken)
}

// A hint comes once: a failed reading is repeated, and wakes no workflow until it succeeds.
func TestHintIsRetriedUntilItIsRead(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	p.setVersion("v2", &entities.ReadingError{Code: runtimes.CodeTimeout})
	p.hint(staging, "eu")
	receive(t, p.readings)
	receive(t, p.readings)
	require.Empty(t, p.woken)
	p.setVersion("v2", nil)
	require.Equal(t, staging, receive(t, p.woken))
	p.awaitIdle(t)
}

// A runtime that has given no answer for long is news: the service becomes UNKNOWN, once, and is woken again by the next answer.
func TestHintOfALastingSilenceWakes_D17(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	p.setVersion("v1", &entities.ReadingError{Code: runtimes.CodeTimeout, NoAnswer: true, Silent: lastingSilence - time.Second})
	p.hint(staging, "eu")
	receive(t, p.readings)
	receive(t, p.readings)
	require.Empty(t, p.woken, "it may be a restart")
	p.setVersion("v1", &entities.ReadingError{Code: runtimes.CodeTimeout, NoAnswer: true, Silent: lastingSilence})
	require.Equal(t, staging, receive(t, p.woken))
	p.observeUnchanged(staging) // its observation
	p.hint(staging, "eu")
	p.awaitIdle(t)
	require.Empty(t, p.woken, "it is known")
	p.setVersion("v1", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
	p.awaitIdle(t)
}

func TestHintIsRetriedUntilTheServiceIsWoken(t *testing.T) {
	p := newFixture(t)
	tries := 0
	p.wake = func(_ context.Context, owner runtimes.Owner, _ string) error {
		if tries++; tries < 3 {
			return errors.New("the server is unavailable")
		}
		p.woken <- owner
		return nil
	}
	p.observeUnchanged(staging)
	p.setVersion("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
	p.awaitIdle(t)
	require.Empty(t, p.woken)
}

// A hint about one instance of a channel wakes no workflow because of another instance.
func TestHintsDistinguishInstancesOfAChannel(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	other := staging
	other.ID.Name = "eu-3"
	p.observeUnchanged(other)
	p.setVersion("v2", nil)
	p.hint(other, "eu")
	require.Equal(t, other, receive(t, p.woken))
	p.awaitIdle(t)
	require.Empty(t, p.woken)
}

func TestHintDuringAnObservationIsNotLost(t *testing.T) {
	p := newFixture(t)
	generation := p.begin(staging)
	found := p.state() // it reads, then something changes, then it ends
	p.setVersion("v2", nil)
	p.hint(staging, "eu")
	p.awaitIdle(t)
	require.Empty(t, p.woken)
	p.settle(staging, generation, found)
	require.Equal(t, staging, receive(t, p.woken))
}

// A hint during an apply is followed once the apply has ended, because its reading does not contain other changes.
func TestHintDuringAnApplyIsFollowedAfterwards_H9(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	generation := p.begin(staging)
	p.setVersion("v2", nil)
	p.hint(staging, "eu")
	p.awaitIdle(t)
	require.Empty(t, p.readings)
	p.hints.finish(staging, generation, p.state(), true)
	receive(t, p.readings)
	p.awaitIdle(t)
	require.Empty(t, p.woken, "the apply reported it")

	generation = p.begin(staging)
	found := p.state()
	p.setVersion("v1", nil) // after its reading
	p.hint(staging, "eu")
	p.hints.finish(staging, generation, found, true)
	require.Equal(t, staging, receive(t, p.woken))
}

// A repair ends in the state in which it began, so the steady observation that was running before it continues, and none begins. Later
// hints are compared with the reading of the apply, however much later they come.
func TestHintLongAfterARepairIsFollowed_H9(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	request := protocol.ApplyRequest{Application: staging.Application, Service: staging.Service, Instance: ref, Runtime: "eu"}
	reading := p.reading()
	p.hints.finishApply(request, p.begin(staging), &reading, true)
	p.setVersion("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
}

// If no observation follows an apply, a hint is followed at once.
func TestHintAfterAnApplyWithoutObservationIsFollowed_F9(t *testing.T) {
	p := newFixture(t)
	p.deferral = time.Hour
	request := protocol.ApplyRequest{Application: staging.Application, Service: staging.Service, Instance: ref, Runtime: "eu", SteadyPollInterval: 5 * time.Minute}
	reading := p.reading()
	p.hints.finishApply(request, p.begin(staging), &reading, true)
	p.setVersion("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
}

// A hint between an apply and the observation that follows it is left to that observation. A hint after it is followed at once.
func TestHintAfterAnApplyDoesNotDelayLaterOnes_H9(t *testing.T) {
	p := newFixture(t)
	p.deferral = time.Hour
	p.hints.finish(staging, p.begin(staging), p.state(), true)
	p.hint(staging, "eu")
	require.NotNil(t, p.instances[staging].deferred)
	p.observeUnchanged(staging)
	require.Empty(t, p.readings)
	p.setVersion("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
}

// An abandoned apply or observation has read nothing: the instance is read again for changes.
func TestAbandonedObservationIsRepeated_H9(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	p.awaitRecord(t, staging)
	generation := p.begin(staging)
	p.setVersion("v2", nil) // its hint came before the observation began
	p.settle(staging, generation, nil)
	require.Equal(t, staging, receive(t, p.woken))
}

// A slow observation ends after the newer one that its workflow started.
func TestSupersededObservationHidesNoChange(t *testing.T) {
	p := newFixture(t)
	slow := p.begin(staging)
	p.observeUnchanged(staging)
	p.settle(staging, slow, nil)
	p.setVersion("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
}

// If no state is recorded, because a worker had to stop at once, the workflow is woken to observe.
func TestHintForAnUnknownInstanceWakes_H9(t *testing.T) {
	p := newFixture(t)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
	p.hint(staging, "eu") // the earlier readings may not include this change
	require.Equal(t, staging, receive(t, p.woken))
}

// awaitRecord waits until the store has the state that the workflow knows.
func (p *fixture) awaitRecord(t *testing.T, owner runtimes.Owner) {
	t.Helper()
	require.Eventually(t, func() bool {
		w, err := p.store.get(t.Context(), owner)
		return err == nil && w != nil && w.Summary == shapeOf(p.reading(), ref)
	}, hintPatience, time.Millisecond)
}

// A worker that starts finds the changes that happened while no worker watched.
func TestTakeOverFindsMissedChanges_H9(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	other := staging
	other.ID.Channel = "production"
	p.observeUnchanged(other)
	p.awaitRecord(t, staging)
	p.awaitRecord(t, other)
	p.stop()
	p.anotherWorker(t).takeOver()
	receive(t, p.readings)
	receive(t, p.readings)
	require.Empty(t, p.woken, "no change")
	p.setVersion("v2", nil)
	p.anotherWorker(t).takeOver()
	require.ElementsMatch(t, []runtimes.Owner{staging, other}, []runtimes.Owner{receive(t, p.woken), receive(t, p.woken)})
}

func TestTakeOverWaitsForTheStore_H9(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	p.awaitRecord(t, staging)
	p.store.setError(errors.New("unavailable"))
	p.setVersion("v2", nil)
	after := p.anotherWorker(t)
	go after.takeOver()
	after.hint(staging, "eu")
	p.awaitIdle(t)
	require.Empty(t, p.woken)
	p.store.setError(nil)
	require.Equal(t, staging, receive(t, p.woken))
}

// Two workers on one cluster both get a hint. The one that does not observe finds that the workflow knows the state. After the other one
// has ended, it wakes the workflow.
func TestHintIsFollowedByAnotherWorker_H9(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	p.awaitRecord(t, staging)
	second := p.anotherWorker(t)
	for range 3 {
		second.hint(staging, "eu")
		receive(t, p.readings)
	}
	require.Empty(t, p.woken)
	p.setVersion("v2", nil)
	p.observeUnchanged(staging) // by the first
	p.awaitRecord(t, staging)
	second.hint(staging, "eu")
	receive(t, p.readings)
	require.Empty(t, p.woken)
	p.stop()
	p.setVersion("v1", nil)
	second.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
}

// While a woken workflow does not observe, hints wake it at growing intervals.
func TestUnansweredHintsBackOff_H9(t *testing.T) {
	p := newFixture(t)
	p.deferral = time.Minute
	i := &trackedInstance{remoteReads: 1}
	require.Equal(t, time.Minute, p.deferralOf(i))
	i.remoteReads = 3
	require.Equal(t, 4*time.Minute, p.deferralOf(i))
	i.remoteReads = 1000
	require.Equal(t, maxHintDeferral, p.deferralOf(i))
	i.known = p.state()
	require.Zero(t, p.deferralOf(i))
}

// The record of a service that has ended is removed.
func TestHintForAnEndedServiceRemovesItsRecord(t *testing.T) {
	p := newFixture(t)
	p.observeUnchanged(staging)
	p.awaitRecord(t, staging)
	p.setVersion("v2", nil)
	p.wake = func(_ context.Context, owner runtimes.Owner, _ string) error {
		p.woken <- owner
		return errServiceGone
	}
	p.hint(staging, "eu")
	receive(t, p.woken)
	p.awaitIdle(t)
	w, err := p.store.get(t.Context(), staging)
	require.NoError(t, err)
	require.Nil(t, w)
}

// Many hints at once cause few readings.
func TestHintsAreCoalesced(t *testing.T) {
	p := newFixture(t)
	p.gap = 50 * time.Millisecond
	p.observeUnchanged(staging)
	for range 1000 {
		p.hint(staging, "eu")
	}
	p.awaitIdle(t)
	require.Less(t, len(p.readings), 20)
	require.NotEmpty(t, p.readings)
	require.Empty(t, p.woken)
}

// setReady simulates pods that come and go: the workload is as declared, but may be unready.
func (p *fixture) setReady(ready bool) {
	p.observe = func(_ context.Context, _ protocol.ObserveRequest, ref protocol.InstanceRef) entities.Reading {
		defer func() { p.readings <- runtimes.Owner{ID: ref.ID} }()
		reading := p.reading()
		if o := &reading.Objects[0]; !ready {
			o.Status, o.AsDeclared = entities.ObjectPending, true
		}
		return reading
	}
}

// observeSteady is observeUnchanged for an instance in which no change is expected.
func (p *fixture) observeSteady() {
	found := p.state()
	found.request.Steady = true
	p.settle(staging, p.begin(staging), found)
}

// A healthy instance that is unready for a moment wakes no workflow. Lasting unreadiness wakes it once, and so does any other problem.
func TestTemporaryUnreadinessDoesNotWake_H8(t *testing.T) {
	p := newFixture(t)
	p.hints.unreadyGrace = time.Hour
	p.observeSteady()
	for _, ready := range []bool{false, true, false} {
		p.setReady(ready)
		p.hint(staging, "eu")
		receive(t, p.readings)
		p.awaitIdle(t)
		require.Empty(t, p.woken)
	}
	p.setVersion("v2", nil)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken), "another version")
}

func TestLastingUnreadinessWakes_H8(t *testing.T) {
	p := newFixture(t)
	p.hints.unreadyGrace = time.Millisecond
	p.observeSteady()
	p.setReady(false)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
}

// An unsteady instance wakes its workflow at once.
func TestUnsteadyInstanceWakesAtOnce_H8(t *testing.T) {
	p := newFixture(t)
	p.hints.unreadyGrace = time.Hour
	p.observeUnchanged(staging)
	p.setReady(false)
	p.hint(staging, "eu")
	require.Equal(t, staging, receive(t, p.woken))
}

// A hung runtime delays no hints of another runtime, however many hints it sends.
func TestHangingRuntimeDoesNotDelayOtherHints_A7_H9(t *testing.T) {
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
		found := p.state()
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
	p.setVersion("v2", nil)
	healthy := known("well", "staging")
	p.setVersion("v3", nil)
	p.hint(healthy, "well")
	require.Equal(t, healthy.ID, receive(t, p.readings).ID)
	require.Empty(t, begun, "no more than the limit")
}
