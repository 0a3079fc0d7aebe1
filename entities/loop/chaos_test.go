package loop_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/loop"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// chaos is a world in which all events happen in any order: releases, approvals and rejections, bypasses, checks with changing results,
// extensions that fail, leases granted and lost, pins, rollbacks, pauses of every scope, draining, other runs, runtimes with wrong
// reports, and channels and instances that are added, removed and moved. It knows the external truth, and checks every pass and every
// state (chaos_judge_test.go).
type chaos struct {
	settles int            // so far
	decided []state.Change // by the decision that is checked
	*world
	t *rapid.T
	setting
	noFailures        bool                        // no failures: every request is granted
	n                 int                         // versions ever released
	checkResults      map[string]entities.Verdict // by channel: the current result of its check
	preflightFresh    map[string]bool             // channel/release: a preflight has read the truth, and nothing changed since
	windowPassed      map[string]bool             // channel/release: the last reading of its window was PASS
	bypassed          map[string]bool             // release/channel/condition: a bypass was accepted
	ledgers           map[string]*ledger          // by runtime
	runs              map[string]state.ExtensionOp
	audited           int64
	convergedAt       map[entities.InstanceID]time.Time       // when its target converged
	enteredInstances  map[string]map[entities.InstanceID]bool // channel/release: the instances that it entered
	pauseWaited       map[string]int                          // channel/release: instances updated before the longest pause that it waited for
	enteredWithPolicy map[string]bool                         // channel/release: it entered while there was a policy

	actual            map[entities.InstanceID]entities.Reading  // the report of an honest runtime for an instance
	delivered         map[entities.InstanceID]map[string]bool   // full versions that a release brought there
	newestTarget      map[entities.InstanceID]int               // sequence of the newest release that was ever its target
	newestEntered     map[string]int                            // channel → sequence of the newest release that entered
	mayReenter        map[string]bool                           // channel/release: a pin lets it enter again
	rendered          map[string]map[entities.InstanceID]string // release id → the runtime that was declared when it was opened
	payloadRuntime    map[entities.InstanceID]map[string]string // payload → the runtime that a release brought it to
	otherRuntime      map[entities.InstanceID]entities.Reading  // the objects on the other runtime
	ignored           map[string]map[int]bool                   // channel/release: cancelled ones, not there when a person let it enter again
	wasUndeclared     map[entities.InstanceID]bool              // it was not declared for a while, and nothing was brought there since
	sequence          map[string]int                            // release id → order of opening
	over              map[string]bool                           // release id → was over when last seen
	retried           map[string]bool                           // channel/release: a person let it enter again after a rollback
	phase             map[string]maestro.Phase                  // channel/release: when last seen
	voidApprovals     map[string]int                            // channel/release: the number of approvals given before it failed
	reopened          map[string]bool                           // channel/release: it was skipped, and a person let it wait again
	goodPayloads      map[entities.InstanceID]map[string]bool   // payloads of releases that succeeded there
	cancelledVersions map[string]bool                           // channel/version: a person cancelled it there, and did not release it again
	cancelledPayloads map[entities.InstanceID]map[string]bool   // payloads of releases that were cancelled in progress, and never good there
}

// setting is the range of random worlds.
type setting struct {
	channels int
	sizes    []int    // instances of a channel
	runtimes []string // that an instance may be on
	gated    bool     // there may be gates, automatic rollbacks, leases and so on
	limited  bool     // releases go in steps, and one that cannot continue may block others
}

// ledger is the Runtime workflow: the waiting and the granted leases.
type ledger struct {
	waiting []state.LeaseOp
	held    map[string]bool
}

func newChaos(t *rapid.T, of setting, tame bool) *chaos {
	c := &chaos{
		world: newWorld(), t: t, setting: of, noFailures: tame,
		checkResults: map[string]entities.Verdict{}, preflightFresh: map[string]bool{}, windowPassed: map[string]bool{}, bypassed: map[string]bool{},
		convergedAt: map[entities.InstanceID]time.Time{}, enteredInstances: map[string]map[entities.InstanceID]bool{}, pauseWaited: map[string]int{}, enteredWithPolicy: map[string]bool{},
		ledgers: map[string]*ledger{}, runs: map[string]state.ExtensionOp{},
		actual: map[entities.InstanceID]entities.Reading{}, delivered: map[entities.InstanceID]map[string]bool{},
		newestTarget: map[entities.InstanceID]int{}, newestEntered: map[string]int{}, mayReenter: map[string]bool{},
		rendered: map[string]map[entities.InstanceID]string{}, payloadRuntime: map[entities.InstanceID]map[string]string{},
		otherRuntime: map[entities.InstanceID]entities.Reading{}, wasUndeclared: map[entities.InstanceID]bool{}, ignored: map[string]map[int]bool{},
		retried: map[string]bool{}, phase: map[string]maestro.Phase{}, voidApprovals: map[string]int{}, reopened: map[string]bool{},
		sequence: map[string]int{}, over: map[string]bool{},
		cancelledVersions: map[string]bool{}, goodPayloads: map[entities.InstanceID]map[string]bool{}, cancelledPayloads: map[entities.InstanceID]map[string]bool{},
	}
	c.next.Maestro.Strategy = c.anyStrategy()
	if of.limited {
		c.next.Maestro.Strategy = "train"
	}
	if c.oneIn(4, "held until promoted") {
		c.next.Maestro.HoldUntil = entities.HoldPromoted
	}
	if c.gated {
		c.gated = !c.limited && !c.oneIn(4, "no gates")
		c.declareRuntimes()
		c.next.Remove = rapid.Bool().Draw(t, "remove")
	}
	for n := range rapid.IntRange(1, of.channels).Draw(t, "channels") {
		c.declareChannel(n)
	}
	c.publishNow()
	if of.gated { // a rollback target
		c.noFailures = true
		for _, good := range []string{"g1", "g2"} {
			c.recordRelease(c.mustRelease(good))
			c.runUntilIdle()
		}
		c.noFailures = tame
	}
	return c
}

func (c *chaos) declareRuntimes() {
	for _, name := range []string{"local", "other"} {
		rt := c.next.Runtimes[name]
		rt.CanRemove = true
		if c.gated {
			rt.MaxApplies = rapid.IntRange(0, 2).Draw(c.t, "max")
			rt.ApproveApplies = rapid.IntRange(0, 3).Draw(c.t, "approve applies") == 0
		}
		c.next.Runtimes[name] = rt
	}
}

func nameOf(n int) string { return fmt.Sprintf("c%d", n) }

const checkID = "slo"

// declareChannel draws a channel that depends on any of those before it, its instances, and the gates before and after a deployment
// there. A declared channel keeps its instances.
func (c *chaos) declareChannel(n int) {
	name := nameOf(n)
	if c.checkResults[name] == "" {
		c.checkResults[name] = entities.Pass
	}
	c.channel(name, func(s *entities.ChannelSpec) {
		if !c.known(name) {
			c.drawInstances(s)
		}
		s.Conditions, s.Checks, s.Extensions = nil, nil, nil
		s.Drift, s.Report = entities.DriftEnforce, ""
		s.OnDelete = entities.OnDelete(c.pick("", "orphan", "remove"))
		for up := range n {
			if c.known(nameOf(up)) && (c.setting.gated && up == n-1 || rapid.Bool().Draw(c.t, "after")) {
				s.Conditions = append(s.Conditions, stableAfter(nameOf(up)))
			}
		}
		s.Rollout = nil
		if len(s.Instances) > 1 && (c.limited || c.oneIn(2, "in steps")) {
			s.Rollout = c.drawRollout()
		}
		if c.setting.gated {
			s.NoRollback = c.oneIn(4, "no rollback")
		}
		if c.limited && c.oneIn(4, "observed") {
			s.Drift = entities.DriftObserve
		}
		if c.setting.gated && !c.limited {
			c.declareGates(s)
		}
	})
	slices.SortFunc(c.next.Channels, func(a, b entities.ChannelSpec) int { return int(a.Name[1]) - int(b.Name[1]) })
}

// drawRollout draws a policy with absolute numbers only, which do not depend on the instances that a release concerns.
func (c *chaos) drawRollout() *entities.Rollout {
	r := &entities.Rollout{}
	for n := range rapid.IntRange(0, 3).Draw(c.t, "steps") {
		r.Steps = append(r.Steps, entities.RolloutStep{Instances: &entities.Amount{Number: 1 + 2*n}})
		if c.oneIn(2, "pause") {
			r.Steps = append(r.Steps, entities.RolloutStep{Pause: rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(c.t, "for")})
		}
	}
	switch {
	case c.limited:
		r.MaxUnavailable = &entities.Amount{Number: 1}
	case len(r.Steps) == 0 || c.oneIn(2, "bounded"):
		r.MaxUnavailable = &entities.Amount{Number: rapid.IntRange(1, 3).Draw(c.t, "unavailable")}
	}
	return r
}

func (c *chaos) drawInstances(s *entities.ChannelSpec) {
	if n := rapid.SampledFrom(c.sizes).Draw(c.t, "instances"); n > 1 {
		fleet(s, n, "local")
	}
	runtime := c.pick(c.runtimes...)
	for n := range s.Instances {
		if n < 5 {
			runtime = c.pick(c.runtimes...)
			s.Instances[n].Template = c.pick("t1", "t2")
		}
		s.Instances[n].Runtime = runtime
	}
}

func (c *chaos) declareGates(s *entities.ChannelSpec) {
	check := entities.Check{ID: checkID, Kind: entities.CheckAlways, Definition: c.pick("d1", "d2"), Interval: 10 * time.Second}
	if c.oneIn(2, "soaks") {
		check.At = append(check.At, entities.CheckAt{Stage: entities.PostDeployment, Delay: time.Minute, For: time.Hour})
	}
	if c.oneIn(3, "postcondition") {
		check.At = append(check.At, entities.CheckAt{Stage: entities.Postcondition, For: 10 * time.Minute})
	}
	if c.oneIn(2, "smoke") {
		s.Extensions = append(s.Extensions, entities.Extension{Name: "smoke", Stage: entities.PostDeployment, Key: s.Name, MaxAttempts: 1})
	}
	if c.gated && c.oneIn(2, "approved") {
		s.Conditions = append(s.Conditions, entities.Condition{
			ID: "approval/go", Kind: entities.ManualApproval, Topic: "go", MinApprovers: 2,
			Approvers: []string{"alice", "bob", c.pick("carol", "mallory")},
		})
	}
	before := []string{string(entities.PreApproval), string(entities.PostApproval)}
	if c.gated && c.oneIn(2, "checked") {
		check.At = append(check.At, entities.CheckAt{Stage: entities.Stage(c.pick(before...))})
	}
	if c.gated && c.oneIn(3, "watched") {
		check.At = append(check.At, entities.CheckAt{Stage: entities.Deployment, Fails: c.oneIn(2, "fails")})
	}
	if len(check.At) > 0 {
		check.Repairs = c.oneIn(3, "repairs")
		s.Checks = append(s.Checks, check)
	}
	if c.gated && c.oneIn(3, "extended") {
		s.Extensions = append(s.Extensions, entities.Extension{
			Name: "migrate", Stage: entities.Stage(c.pick(before...)), Key: c.pick(s.Name, "all"),
			MaxAttempts: 2, RetryBackoff: time.Second, RetryMax: time.Second,
		})
	}
}

func (c *chaos) known(channel string) bool {
	return slices.ContainsFunc(c.next.Channels, func(s entities.ChannelSpec) bool { return s.Name == channel })
}

func (c *chaos) publishNow() {
	before := map[entities.InstanceID]string{}
	for _, id := range entities.SortedIDs(c.s.Instances) {
		if i := c.s.Instances[id]; i.Delivery.Target != nil {
			before[id], _ = c.s.Runtime(id)
		}
	}
	c.recordRelease(c.publish())
	c.notePhases()
	for id := range c.s.Instances {
		c.wasUndeclared[id] = c.wasUndeclared[id] || !c.s.Declared(id)
	}
	for id, runtime := range before {
		if now, _ := c.s.Runtime(id); now != runtime && c.targetVersion(id) != "" {
			c.t.Fatalf("a publication moves %s from %s to %s", id, runtime, now)
		}
	}
	c.settle()
}

func (c *chaos) recordRelease(r *state.Release) {
	if r != nil && c.sequence[r.ID] == 0 {
		c.sequence[r.ID] = (len(c.sequence) + 1) * sequenceGap
		c.rendered[r.ID] = map[entities.InstanceID]string{}
		for _, id := range c.s.Spec.IDs() {
			declared, _ := c.s.Spec.Instance(id)
			c.rendered[r.ID][id] = declared.Runtime
		}
	}
}

// sequenceGap is the distance between the numbers of releases: a rollback comes before the waiting releases.
const sequenceGap = 1 << 20

// recordUnpinReleases records the releases that an unpin has opened.
func (c *chaos) recordUnpinReleases() {
	for n := len(c.s.Releases) - 1; n >= 0; n-- {
		r := c.s.Releases[n]
		if c.sequence[r.ID] != 0 {
			continue
		}
		c.recordRelease(r)
		if n+1 < len(c.s.Releases) {
			before, next := 0, c.sequence[c.s.Releases[n+1].ID]
			for _, number := range c.sequence { // including the pruned ones
				if number < next {
					before = max(before, number)
				}
			}
			c.sequence[r.ID] = (before + next) / 2
		}
	}
}

func (c *chaos) mustRelease(version string) *state.Release {
	r, err := c.release(version, "")
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// anyStrategy is one that a service can declare.
func (c *chaos) anyStrategy() string { return c.pick("latest", "latest", "train", "immediate") }

func (c *chaos) oneIn(n int, label string) bool { return rapid.IntRange(1, n).Draw(c.t, label) == n }

func (c *chaos) pick(from ...string) string {
	if len(from) == 0 {
		c.t.Skip("nothing to pick")
	}
	return rapid.SampledFrom(from).Draw(c.t, "pick")
}

func (c *chaos) pickID(from []entities.InstanceID) entities.InstanceID {
	if len(from) == 0 {
		c.t.Skip("nothing to pick")
	}
	return from[rapid.IntRange(0, len(from)-1).Draw(c.t, "instance")]
}

// settle decides and checks pass by pass; then the state is as loop.Settle leaves it.
func (c *chaos) settle() {
	c.firstReadings()
	mode := decide.Mode{NoNewWork: !c.noFailures && c.oneIn(10, "drain")}
	mode.Rollbacks = mode.NoNewWork && c.oneIn(2, "rollbacks continue")
	c.settles++
	// A digest of a large state takes longer than everything else.
	thorough := c.settles%20 == 0 || len(c.s.Instances) < 50 && !moreThanDefault()
	passes := 20 * (len(c.s.Releases) + 2) * (len(c.s.Spec.IDs()) + len(c.s.Spec.Channels) + 1)
	for pass := 0; ; pass++ {
		if pass > passes {
			c.t.Fatalf("the decision does not settle:\n%s", decide.Decide(c.s, c.now, mode))
		}
		for _, r := range c.s.Releases {
			c.over[r.ID] = r.Over()
		}
		before := ""
		if thorough {
			before = entities.DigestOf(c.s)
		}
		d := decide.Decide(c.s, c.now, mode)
		if before != "" && entities.DigestOf(c.s) != before {
			c.t.Fatalf("Decide changed its input:\n%s", d)
		}
		c.judge(d, mode)
		runtimesBefore := c.runtimeNames()
		c.s.Commit(d.Changes, &d.Work, c.now)
		c.moveObjects(runtimesBefore)
		c.notePhases()
		c.recordStarted(d)
		if !d.HasEffects() {
			break
		}
	}
	c.decision = loop.Settle(c.s, c.now, mode)
	clear(c.preflightFresh)
	digest := func() string {
		if !thorough {
			return ""
		}
		return entities.DigestOf(c.s, c.decision.Evaluations(c.s))
	}
	settled := digest()
	if c.decision.HasEffects() || loop.Settle(c.s, c.now, mode).HasEffects() || digest() != settled {
		c.t.Fatalf("Settle is not idempotent:\n%s", c.decision)
	}
	c.renders, c.recalls = c.decision.Renders, c.decision.Recalls
	c.judgeState(mode)
	c.judgeWake(mode)
}

func (c *chaos) runtimeNames() map[entities.InstanceID]string {
	all := map[entities.InstanceID]string{}
	for id := range c.s.Instances {
		all[id], _ = c.s.Runtime(id)
	}
	return all
}

// moveObjects removes the objects on the new runtime of a moved instance, and keeps those on the old one.
func (c *chaos) moveObjects(before map[entities.InstanceID]string) {
	for id, runtime := range before {
		now, _ := c.s.Runtime(id)
		if c.s.Instances[id] == nil || now == runtime {
			continue
		}
		c.actual[id], c.otherRuntime[id] = c.otherRuntime[id], c.actual[id]
	}
}

// recordStarted records the work that a pass starts.
func (c *chaos) recordStarted(d *decide.Decision) {
	c.start(d)
	for _, op := range d.Extensions {
		key := op.Release + "/" + op.Extension.RunKey()
		if _, twice := c.runs[key]; twice {
			c.t.Fatalf("a second concurrent run of an extension:\n%s", d)
		}
		c.runs[key] = op
	}
	for _, op := range d.Leases {
		c.ledger(op.Runtime).apply(op)
	}
}

func (c *chaos) ledger(runtime string) *ledger {
	if c.ledgers[runtime] == nil {
		c.ledgers[runtime] = &ledger{held: map[string]bool{}}
	}
	return c.ledgers[runtime]
}

func (l *ledger) apply(op state.LeaseOp) {
	l.waiting = slices.DeleteFunc(l.waiting, func(w state.LeaseOp) bool { return w.ID == op.ID })
	if op.Return {
		delete(l.held, op.ID)
	} else {
		l.waiting = append(l.waiting, op)
	}
}

// grant grants the next lease, and takes back leases that are not needed. False: none waits, or no slot is free.
func (c *chaos) grant() bool {
	for _, runtime := range entities.SortedKeys(c.ledgers) {
		l := c.ledgers[runtime]
		if len(l.waiting) == 0 || len(l.held) >= c.s.Spec.Runtimes[runtime].MaxApplies {
			continue
		}
		op := l.waiting[0]
		l.waiting = l.waiting[1:]
		if c.s.LeaseGranted(op.ID, c.now) {
			l.held[op.ID] = true
		}
		return true
	}
	return false
}

var (
	// small worlds have channels with one instance, or three.
	plain = setting{channels: 5, sizes: []int{1, 1, 3}, runtimes: []string{"local", "local", "code", "blind"}}
	gated = setting{channels: 3, sizes: []int{1, 1, 3}, runtimes: []string{"local", "local", "other"}, gated: true}
	steps = setting{channels: 2, sizes: []int{1, 3}, runtimes: []string{"local", "local", "other"}, gated: true, limited: true}
	wide  = setting{channels: 2, sizes: []int{200}, runtimes: []string{"local", "other"}, gated: true}
)

// repeat runs the events in any order.
func (c *chaos) repeat(t *rapid.T, events map[string]func()) {
	actions := map[string]func(*rapid.T){}
	for name, event := range events {
		actions[name] = func(t *rapid.T) { c.t = t; event(); c.settle() }
	}
	t.Repeat(actions)
	c.t = t
}

// A target that was cancelled before it was good never comes back through a failure, a rollback, a pin or its end: only a release of it,
// or a retry by a person, brings it (judgeCancelledTargets).
func TestCancelledTargetIsNeverRestored_A17_A18_A22_I2(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, setting{channels: 2, sizes: []int{1, 1, 2}, runtimes: []string{"local"}}, false)
		for n := range c.next.Channels {
			c.next.Channels[n].NoRollback = false
		}
		c.publishNow()
		all, events := c.stormEvents(), map[string]func(){}
		for _, name := range []string{"release", "config", "retry", "end", "look", "render", "pin", "unpin", "rollback"} {
			events[name] = all[name]
		}
		events["cancel"], events["cancel2"], events["look2"] = all["cancel"], all["cancel"], all["look"]
		events["end2"] = func() { c.endApply(c.pick("ok", "for good")) }
		c.repeat(t, events)
	})
}

// Safety under all events of releases and runtimes, and then progress once people and runtimes allow it: every release has gone as far as
// it can.
func TestChaos_A8_A16_A18_B7_D17(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, plain, false)
		c.repeat(t, c.plainEvents())
		c.endHolds()
		c.runUntilIdle()
		c.judgeEnd()
	})
}

// In any order of events, no release passes, continues or goes back against the rules; and once people and runtimes allow it, a fix
// arrives everywhere.
func TestStorm_A10_A14_A15_A17_A19_A21_A22_A24_B7_B10_C10(t *testing.T) {
	back, entered := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, gated, false)
		c.repeat(t, c.stormEvents())
		b, e := c.count()
		back, entered = back+b, entered+e
		c.releaseFix()
	})
	if back == 0 && !testing.Short() || entered == 0 { // a short storm has one rollback on average
		t.Fatalf("%d rolled back, %d entered: the test shows nothing", back, entered)
	}
}

// The same while more releases wait than are kept complete.
func TestStormWhileManyWait_B3_B4(t *testing.T) {
	limitRapid(t, "5", "15")
	recalled := 0
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, gated, false)
		c.releaseMany()
		c.settle()
		c.repeat(t, c.stormEvents())
		c.releaseFix()
		recalled += c.recalled
	})
	if !testing.Short() { // which runs once
		require.Positive(t, recalled, "no release was loaded from the store")
	}
}

// The same in channels of 200 instances, for a few steps.
func TestStormInAFleet_B7_B10(t *testing.T) {
	limitRapid(t, "2", "8")
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, wide, false)
		c.repeat(t, c.stormEvents())
		c.releaseFix()
	})
}

// The same with releases that go in steps in their order, where one unavailable instance leaves no room for any.
func TestStormInSteps_B10_D24(t *testing.T) {
	limitRapid(t, "40", "30")
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, steps, false)
		all, events := c.stormEvents(), map[string]func(){}
		for _, name := range []string{
			"release", "config", "instances", "enforcement", "retry", "cancel", "rollback", "pin", "unpin", "pause", "resume",
			"end", "look", "damage", "render", "time", "wake", "work 0", "work 1", "work 2",
		} {
			events[name] = all[name]
		}
		for _, often := range []string{"release", "instances", "enforcement", "retry"} {
			events[often+" 2"] = all[often]
		}
		c.repeat(t, events)
		c.releaseFix()
	})
}

// limitRapid reduces the number of checks of rapid in a slow test.
func limitRapid(t *testing.T, checks, steps string) {
	t.Helper()
	for name, value := range map[string]string{"rapid.checks": checks, "rapid.steps": steps} {
		f := flag.Lookup(name)
		before := f.Value.String()
		if n, _ := strconv.Atoi(before); n > defaultChecks {
			continue // the caller requires more
		}
		require.NoError(t, f.Value.Set(value))
		t.Cleanup(func() { require.NoError(t, f.Value.Set(before)) })
	}
}

// count counts the releases that were rolled back, and those that entered, channel by channel.
func (c *chaos) count() (back, entered int) {
	for _, r := range c.s.Releases {
		for _, p := range r.Phases {
			if p.Phase == maestro.RolledBack {
				back++
			}
			if p.Phase.Entered() && r.Version[0] == 'v' {
				entered++
			}
		}
	}
	return back, entered
}

// Progress: with all conditions passing and a runtime that carries out all work, every release converges in every channel, or is replaced
// by a newer one, within a bounded number of steps.
func TestEveryReleaseConverges_B7(t *testing.T) {
	for name, of := range map[string]setting{"plain": plain, "gated": gated} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				c := newChaos(t, of, true)
				work := func() { c.workOnce() }
				c.repeat(t, map[string]func(){
					"release": c.newRelease, "config": c.changeConfig, "time": c.advanceTime, "rest": c.continueAsNew,
					"work": work, "work2": work, "work3": work, "work4": work,
				})
				c.runUntilIdle()
				c.judgeConverged()
			})
		})
	}
}

// superseded reports whether a newer release with a strategy that prefers the newest, or one that people let pass, succeeded in a
// channel.
func (c *chaos) superseded(r *state.Release, channel string) bool {
	spec, _ := c.s.Spec.Channel(channel)
	return slices.ContainsFunc(c.s.Releases, func(newer *state.Release) bool {
		p := newer.Phases[channel]
		return c.sequence[newer.ID] > c.sequence[r.ID] && p != nil && p.Phase == maestro.Succeeded && c.mayOvertake(newer, r, &spec)
	})
}

func (c *chaos) judgeConverged() {
	for _, ch := range c.decision.Channels {
		if ch.Status != entities.StatusConverged {
			c.t.Fatalf("%s is %s:\n%s%s", ch.Channel, ch.Status, c.decision, c.phases())
		}
	}
	for _, r := range c.s.Releases {
		for channel, p := range r.Phases {
			if p.Phase != maestro.Succeeded && !(p.Phase == maestro.Skipped && (r.IsConfig() || c.superseded(r, channel))) {
				c.t.Fatalf("%s is %s in %s:\n%s", r.FullVersion, p.Phase, channel, c.phases())
			}
		}
	}
	if r := c.s.Newest(); r != nil {
		for _, id := range slices.SortedFunc(maps.Keys(r.Payloads), entities.InstanceID.Compare) {
			if i := c.s.Instances[id]; !i.IsAt(r) && r.Present[id].Payload != i.Delivery.Target.Payload {
				c.t.Fatalf("%s is not at %s but at %s", id, r.FullVersion, i.Delivery.Target.FullVersion)
			}
		}
	}
}
