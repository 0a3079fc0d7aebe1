package activities

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/runtimes"
)

const hintPatience = 10 * time.Second

var staging = runtimes.Owner{Application: "shop", Service: "web", ID: entities.Only("staging")}

// fixture is what a watched instance runs, and who was woken because of it.
type fixture struct {
	*hints
	readings, woken chan runtimes.Owner

	mu      sync.Mutex
	version string
	err     *entities.ReadingError
}

func newFixture(t *testing.T) *fixture {
	p := &fixture{readings: make(chan runtimes.Owner, 100), woken: make(chan runtimes.Owner, 100), version: "v1"}
	p.hints = newHints(&Activities{})
	p.gap = time.Millisecond
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
	return &observed{ref: ref, shape: shapeOf(p.reading(), ref), until: time.Now().Add(time.Hour)}
}

func next(t *testing.T, from chan runtimes.Owner) runtimes.Owner {
	t.Helper()
	select {
	case owner := <-from:
		return owner
	case <-time.After(hintPatience):
		t.Fatal("nothing happened")
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
	p.hint(staging, "eu") // notified already: the next observation finds out
	p.idle(t)
	require.Empty(t, p.woken)
	p.settled(staging)
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
			return errors.New("the server is away")
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

func TestHintDuringAnApplyWakesNobody(t *testing.T) {
	p := newFixture(t)
	p.settled(staging)
	p.forget(staging)
	p.run("v2", nil)
	p.hint(staging, "eu")
	p.idle(t)
	require.Empty(t, p.woken)
	require.Empty(t, p.readings)
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

// After a restart nobody knows what the observation of another worker found.
func TestHintForAnInstanceNeverObservedHereWakesOnce(t *testing.T) {
	p := newFixture(t)
	p.hint(staging, "eu")
	require.Equal(t, staging, next(t, p.woken))
	p.hint(staging, "eu")
	p.idle(t)
	require.Empty(t, p.woken)
}

func TestHintForSomethingForgottenByItsServiceIsDropped(t *testing.T) {
	p := newFixture(t)
	turn := p.begin(staging)
	found := p.found()
	found.until = time.Now().Add(-time.Second)
	p.settle(staging, turn, found)
	p.run("v2", nil)
	p.hint(staging, "eu")
	p.idle(t)
	require.Empty(t, p.woken)
	require.Empty(t, p.readings)
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
