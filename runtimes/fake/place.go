package fake

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Always as a number of times means until told otherwise; 0 ends it.
const Always = -1

// Place is where one instance lives, and the script of how it behaves. Every setting takes effect
// from the next call on and may be changed at any time.
type Place struct {
	rt   *Runtime
	name string

	// What runs: current is active; next is on its way and shows after looksLeft more looks.
	current, next string
	moving        bool
	looksLeft     int
	drifted       bool
	sick          string // the object is FAILED with this message
	since         time.Time

	settle     int // looks that later applies take
	applyFails int
	applyErr   error
	dropFails  int
	dropErr    error
	lookFails  int
	lookCode   string
	broken     map[string]string // version → message
	applyGate  chan struct{}
	lookGate   chan struct{}
	planGate   chan struct{}
	said       *saying           // by Plan
	payload    *entities.Payload // of the last apply that went well

	applies, looks, plans, running, moves, removals int
}

func (p *Place) set(change func()) {
	p.rt.mu.Lock()
	defer p.rt.mu.Unlock()
	change()
	p.rt.touch()
}

// TakeLooks makes later applies show only after n looks that still see them under way.
func (p *Place) TakeLooks(n int) { p.set(func() { p.settle = n }) }

// FailApplies makes the next n applies fail, in a way that a retry may mend.
func (p *Place) FailApplies(n int, message string) {
	p.set(func() { p.applyFails, p.applyErr = n, errors.New(message) })
}

// FailAppliesForGood makes the next n applies fail in a way that no retry mends.
func (p *Place) FailAppliesForGood(n int, message string) {
	p.set(func() { p.applyFails, p.applyErr = n, runtimes.Permanent(errors.New(message)) })
}

// FailRemovals makes the next n removals fail, in a way that a retry may mend.
func (p *Place) FailRemovals(n int, message string) {
	p.set(func() { p.dropFails, p.dropErr = n, errors.New(message) })
}

// FailLooks makes the next n looks fail with a reading error of that code.
func (p *Place) FailLooks(n int, code string) {
	p.set(func() { p.lookFails, p.lookCode = n, code })
}

// Break makes a version one that never becomes healthy: its object is FAILED with the message.
// An empty message mends it.
func (p *Place) Break(version, message string) {
	p.set(func() {
		delete(p.broken, version)
		if message != "" {
			p.broken[version] = message
		}
	})
}

// HangApplies makes applies wait until release is called or their context ends; in the latter
// case they change nothing.
func (p *Place) HangApplies() (release func()) { return p.gate(&p.applyGate) }

// HangLooks makes looks wait until release is called or their context ends.
func (p *Place) HangLooks() (release func()) { return p.gate(&p.lookGate) }

func (p *Place) gate(at *chan struct{}) func() {
	gate := make(chan struct{})
	p.set(func() { *at = gate })
	return func() {
		p.set(func() {
			if *at == gate {
				*at = nil
				close(gate)
			}
		})
	}
}

// SetVersion changes by hand what runs here; an empty version takes it away.
func (p *Place) SetVersion(version string) {
	p.set(func() {
		p.current, p.next, p.moving, p.drifted, p.sick = version, "", false, false, ""
		p.since = p.rt.clock()
	})
}

// SetDrifted says whether what runs here was changed by hand under the same version. An apply
// mends it.
func (p *Place) SetDrifted(drifted bool) { p.set(func() { p.drifted = drifted }) }

// SetSick makes what runs here FAILED with that message, until it is applied again; an empty
// message heals it.
func (p *Place) SetSick(message string) { p.set(func() { p.sick = message }) }

// Version is what runs here, empty for nothing.
func (p *Place) Version() string { return get(p, func() string { return p.current }) }

// Applies counts the applies that started here.
func (p *Place) Applies() int { return get(p, func() int { return p.applies }) }

// Moves counts the applies that changed something here: one of what is there already does not.
func (p *Place) Moves() int { return get(p, func() int { return p.moves }) }

// Applying tells whether an apply runs here now.
func (p *Place) Applying() bool { return get(p, func() bool { return p.running > 0 }) }

// Removals counts the removals that started here.
func (p *Place) Removals() int { return get(p, func() int { return p.removals }) }

// Looks counts the looks that started here.
func (p *Place) Looks() int { return get(p, func() int { return p.looks }) }

func get[T any](p *Place, read func() T) T {
	p.rt.mu.Lock()
	defer p.rt.mu.Unlock()
	return read()
}

// hang records a call through begin, then waits while the gate is shut.
func (p *Place) hang(ctx context.Context, at *chan struct{}, begin func()) error {
	var gate chan struct{}
	p.set(func() { begin(); gate = *at })
	if gate == nil {
		return ctx.Err()
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// The methods below are called with rt.mu held.

func (p *Place) begin(in runtimes.Instance, started time.Time) (entry int) {
	if p.running > 0 {
		p.rt.overlaps = append(p.rt.overlaps, fmt.Sprintf("%s: apply of %s (%s) started during another", p.name, in.FullVersion, in.Key))
	}
	p.running++
	p.applies++
	p.rt.log = append(p.rt.log, Apply{
		Place: p.name, Version: in.FullVersion, Payload: entities.DigestOf(in.Payload), Key: in.Key, Started: started,
	})
	return len(p.rt.log) - 1
}

func (p *Place) end(entry int, err error) {
	p.running--
	a := &p.rt.log[entry]
	a.Ended = p.rt.clock()
	if err != nil {
		a.Err = err.Error()
	}
}

func (p *Place) beginRemoval() {
	if p.running > 0 {
		p.rt.overlaps = append(p.rt.overlaps, p.name+": a removal started during an apply")
	}
	p.removals++
}

// takeAway leaves nothing here. Where nothing is it changes nothing.
func (p *Place) takeAway() error {
	if p.dropFails != 0 {
		if p.dropFails > 0 {
			p.dropFails--
		}
		return fmt.Errorf("remove %s: %w", p.name, p.dropErr)
	}
	if p.current != "" || p.moving {
		p.moves++
	}
	p.current, p.next, p.moving, p.drifted, p.sick, p.payload = "", "", false, false, "", nil
	p.since = p.rt.clock()
	return nil
}

func (p *Place) failApply(version string) error {
	if p.applyFails == 0 {
		return nil
	}
	if p.applyFails > 0 {
		p.applyFails--
	}
	return fmt.Errorf("apply %s to %s: %w", version, p.name, p.applyErr)
}

func (p *Place) failLook() error {
	if p.lookFails == 0 {
		return nil
	}
	if p.lookFails > 0 {
		p.lookFails--
	}
	return &entities.ReadingError{Code: p.lookCode, Message: "look at " + p.name + ": " + p.lookCode}
}

// applied starts the move to version. Applying what is there, healthy, changes nothing.
func (p *Place) applied(version string) {
	if p.moving && p.next == version {
		return
	}
	if !p.moving && p.current == version && !p.drifted && p.sick == "" {
		return
	}
	p.next, p.moving, p.looksLeft = version, true, p.settle
	p.moves++
	if p.looksLeft == 0 {
		p.arrive()
	}
}

func (p *Place) arrive() {
	p.current, p.next, p.moving, p.drifted = p.next, "", false, false
	p.sick = p.broken[p.current]
	p.since = p.rt.clock()
}

// look reports what is there, and brings what is under way one look nearer.
func (p *Place) look(name string) []entities.Object {
	if p.moving && p.looksLeft == 0 {
		p.arrive()
	}
	o := entities.Object{Name: name, Type: "fake", Status: entities.ObjectPending}
	if p.current != "" {
		o.Versions = append(o.Versions, entities.ObjectVersion{
			Version: p.current, Active: true, Drifted: p.drifted, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1,
		})
		o.Events = []entities.Event{{Timestamp: p.since.UTC(), Message: p.current + " runs"}}
	}
	switch {
	case p.moving:
		p.looksLeft--
		o.Versions = append(o.Versions, entities.ObjectVersion{Version: p.next, Replicas: 1, TargetReplicas: 1})
		o.Message = "moving to " + p.next
	case p.sick != "":
		o.Status, o.Message = entities.ObjectFailed, p.sick
	case p.current != "":
		o.Status = entities.ObjectSucceeded
	default:
		return nil
	}
	return []entities.Object{o}
}
