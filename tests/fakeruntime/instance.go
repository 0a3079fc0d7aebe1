package fakeruntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/runtimes"
)

// Always as a number of times means until it is changed; 0 ends it.
const Always = -1

// ScriptedInstance is the state of one instance, and the script of its behaviour. Every setting takes effect from the next call on and may
// be changed at any time.
type ScriptedInstance struct {
	rt   *Runtime
	name string

	// current is the active version; next is being applied and shows after remaining more readings.
	current, next string
	moving        bool
	remaining     int
	drifted       bool
	failMessage   string // the object is FAILED with this message
	since         time.Time

	objects      int    // their number; 0 means 1
	otherMessage string // the message of the others
	settle       int    // readings that later applies take
	applyFails   int
	applyErr     error
	removeFails  int
	removeErr    error
	readFails    int
	readCode     string
	broken       map[string]string // version → message
	applyGate    chan struct{}
	readGate     chan struct{}
	planGate     chan struct{}
	scriptedPlan *scriptedPlan     // of Plan
	payload      *entities.Payload // of the last successful apply

	applies, readings, plans, running, changes, removals int
}

func (p *ScriptedInstance) set(change func()) {
	p.rt.mu.Lock()
	defer p.rt.mu.Unlock()
	change()
	p.rt.notifyChanged()
}

// SettleAfter makes later applies show only after n readings that still report them as under way.
func (p *ScriptedInstance) SettleAfter(n int) { p.set(func() { p.settle = n }) }

// SetObjects makes the instance have n objects; message is that of all but the first.
func (p *ScriptedInstance) SetObjects(n int, message string) {
	p.set(func() { p.objects, p.otherMessage = n, message })
}

// FailApplies makes the next n applies fail with a retryable error.
func (p *ScriptedInstance) FailApplies(n int, message string) {
	p.set(func() { p.applyFails, p.applyErr = n, errors.New(message) })
}

// FailAppliesPermanently makes the next n applies fail with a permanent error.
func (p *ScriptedInstance) FailAppliesPermanently(n int, message string) {
	p.set(func() { p.applyFails, p.applyErr = n, runtimes.Permanent(errors.New(message)) })
}

// FailRemovals makes the next n removals fail with a retryable error.
func (p *ScriptedInstance) FailRemovals(n int, message string) {
	p.set(func() { p.removeFails, p.removeErr = n, errors.New(message) })
}

// FailReadings makes the next n readings fail with an error of that code.
func (p *ScriptedInstance) FailReadings(n int, code string) {
	p.set(func() { p.readFails, p.readCode = n, code })
}

// Break makes a version never become healthy: its object is FAILED with the message. An empty message repairs it.
func (p *ScriptedInstance) Break(version, message string) {
	p.set(func() {
		delete(p.broken, version)
		if message != "" {
			p.broken[version] = message
		}
	})
}

// HangApplies makes applies wait until release is called or their context ends; in the latter case they change nothing.
func (p *ScriptedInstance) HangApplies() (release func()) { return p.gate(&p.applyGate) }

// HangReadings makes readings wait until release is called or their context ends.
func (p *ScriptedInstance) HangReadings() (release func()) { return p.gate(&p.readGate) }

func (p *ScriptedInstance) gate(slot *chan struct{}) func() {
	gate := make(chan struct{})
	p.set(func() { *slot = gate })
	return func() {
		p.set(func() {
			if *slot == gate {
				*slot = nil
				close(gate)
			}
		})
	}
}

// SetVersion changes the running version manually; an empty version removes it.
func (p *ScriptedInstance) SetVersion(version string) {
	p.set(func() {
		p.current, p.next, p.moving, p.drifted, p.failMessage = version, "", false, false, ""
		p.since = p.rt.clock()
	})
}

// SetDrifted sets whether the running version was changed by hand under the same name. An apply corrects that.
func (p *ScriptedInstance) SetDrifted(drifted bool) { p.set(func() { p.drifted = drifted }) }

// SetFailed makes the object FAILED with that message, until the next apply; an empty message repairs it.
func (p *ScriptedInstance) SetFailed(message string) { p.set(func() { p.failMessage = message }) }

// Version is the running version, empty for none.
func (p *ScriptedInstance) Version() string { return get(p, func() string { return p.current }) }

// NextVersion is the version that was applied and does not show yet, empty for none.
func (p *ScriptedInstance) NextVersion() string { return get(p, func() string { return p.next }) }

// Applies counts the applies that started here.
func (p *ScriptedInstance) Applies() int { return get(p, func() int { return p.applies }) }

// Changes counts the applies that changed something: an apply of the current version does not.
func (p *ScriptedInstance) Changes() int { return get(p, func() int { return p.changes }) }

// Applying reports whether an apply is running now.
func (p *ScriptedInstance) Applying() bool { return get(p, func() bool { return p.running > 0 }) }

// Removals counts the removals that started here.
func (p *ScriptedInstance) Removals() int { return get(p, func() int { return p.removals }) }

// Readings counts the readings that started here.
func (p *ScriptedInstance) Readings() int { return get(p, func() int { return p.readings }) }

func get[T any](p *ScriptedInstance, read func() T) T {
	p.rt.mu.Lock()
	defer p.rt.mu.Unlock()
	return read()
}

// hang records a call through begin, then waits while the gate is closed.
func (p *ScriptedInstance) hang(ctx context.Context, slot *chan struct{}, begin func()) error {
	var gate chan struct{}
	p.set(func() { begin(); gate = *slot })
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

func (p *ScriptedInstance) begin(in runtimes.Request, started time.Time) (entry int) {
	if p.running > 0 {
		p.rt.overlaps = append(p.rt.overlaps, fmt.Sprintf("%s: apply of %s (%s) started during another", p.name, in.FullVersion, in.Key))
	}
	p.running++
	p.applies++
	p.rt.log = append(p.rt.log, Apply{
		Instance: p.name, Version: in.FullVersion, Payload: entities.DigestOf(in.Payload), Key: in.Key, Restart: in.Restart, Started: started,
	})
	return len(p.rt.log) - 1
}

func (p *ScriptedInstance) end(entry int, err error) {
	p.running--
	a := &p.rt.log[entry]
	a.Ended = p.rt.clock()
	if err != nil {
		a.Err = err.Error()
	}
}

func (p *ScriptedInstance) beginRemoval() {
	if p.running > 0 {
		p.rt.overlaps = append(p.rt.overlaps, p.name+": a removal started during an apply")
	}
	p.removals++
}

// remove removes the running version. Without one it changes nothing.
func (p *ScriptedInstance) remove() error {
	if takeFailure(&p.removeFails) {
		return fmt.Errorf("remove %s: %w", p.name, p.removeErr)
	}
	if p.current != "" || p.moving {
		p.changes++
	}
	p.current, p.next, p.moving, p.drifted, p.failMessage, p.payload = "", "", false, false, "", nil
	p.since = p.rt.clock()
	return nil
}

func (p *ScriptedInstance) failApply(version string) error {
	if !takeFailure(&p.applyFails) {
		return nil
	}
	return fmt.Errorf("apply %s to %s: %w", version, p.name, p.applyErr)
}

func (p *ScriptedInstance) failReading() error {
	if !takeFailure(&p.readFails) {
		return nil
	}
	return &entities.ReadingError{Code: p.readCode, Message: "observe " + p.name + ": " + p.readCode, NoAnswer: runtimes.IsNoAnswer(p.readCode)}
}

// takeFailure reports whether a call has to fail, and counts it.
func takeFailure(fails *int) bool {
	if *fails > 0 {
		*fails--
		return true
	}
	return *fails != 0
}

// startMove starts the change to a version. An apply of the current version, if it is healthy, changes nothing.
func (p *ScriptedInstance) startMove(version string) {
	if p.moving && p.next == version {
		return
	}
	if !p.moving && p.current == version && !p.drifted && p.failMessage == "" {
		return
	}
	p.next, p.moving, p.remaining = version, true, p.settle
	p.changes++
	if p.remaining == 0 {
		p.finishMove()
	}
}

func (p *ScriptedInstance) finishMove() {
	p.current, p.next, p.moving, p.drifted = p.next, "", false, false
	p.failMessage = p.broken[p.current]
	p.since = p.rt.clock()
}

// observe reports the current state, and brings a running change one reading nearer to its end.
func (p *ScriptedInstance) observe(name string) []entities.Object {
	if p.moving && p.remaining == 0 {
		p.finishMove()
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
		p.remaining--
		o.Versions = append(o.Versions, entities.ObjectVersion{Version: p.next, Replicas: 1, TargetReplicas: 1})
		o.Message = "moving to " + p.next
	case p.failMessage != "":
		o.Status, o.Message = entities.ObjectFailed, p.failMessage
	case p.current != "":
		o.Status = entities.ObjectSucceeded
	default:
		return nil
	}
	all := []entities.Object{o}
	for n := 1; n < p.objects; n++ {
		o.Name, o.Message = fmt.Sprintf("%s-%d", name, n), p.otherMessage
		all = append(all, o)
	}
	return all
}
