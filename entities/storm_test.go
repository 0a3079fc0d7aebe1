package entities

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities/maestro"
)

// storm is a world in which everything happens in any order: releases, approvals and rejections,
// bypasses, checks that change their mind, extensions that fail, leases granted and forgotten, pins,
// rollbacks, pauses of every scope, draining, other runs, and channels that come and go. It knows what
// is true outside, and judges every pass (storm_judge_test.go): no gate is passed without its condition
// or a recorded bypass, what is paused, pinned or barred never moves otherwise, one apply at a time
// (A10, A14–A19, A21, A22, A24, C10).
type storm struct {
	*world
	t       *rapid.T
	n       int                // versions ever released
	truth   map[string]Verdict // by channel: what its check would say if it were asked now
	fresh   map[string]bool    // channel/release: a preflight has read the truth, and nothing changed since
	passed  map[string]bool    // channel/release: the last look of its window was PASS
	waived  map[string]bool    // release/channel/condition: a bypass was accepted
	ledger  stormLedger
	runs    map[string]ExtensionOp // by release and key
	audited int64
	gates   bool // channels have gates before the deployment
	tame    bool // all is well: what is asked for is given
}

// stormLedger is the Runtime workflow: who waits for a lease, and who was given one.
type stormLedger struct {
	waiting []LeaseOp
	held    map[string]bool
}

var stormChannels = []string{"c0", "c1", "c2"}

const stormCheck = "slo"

func newStorm(t *rapid.T) *storm {
	w := &storm{
		world: newWorld(), t: t, truth: map[string]Verdict{}, fresh: map[string]bool{}, passed: map[string]bool{},
		waived: map[string]bool{}, runs: map[string]ExtensionOp{}, ledger: stormLedger{held: map[string]bool{}}, tame: true,
	}
	w.gates = rapid.IntRange(0, 3).Draw(t, "gates") > 0
	rt := w.next.Runtimes["local"]
	rt.CanRemove = true
	if w.gates {
		rt.MaxApplies = rapid.IntRange(0, 2).Draw(t, "max")
		rt.ApproveApplies = rapid.IntRange(0, 3).Draw(t, "approve applies") == 0
	}
	w.next.Runtimes["local"] = rt
	w.next.Remove = rapid.Bool().Draw(t, "remove")
	for n, name := range stormChannels {
		w.declareChannel(n, name)
	}
	w.publish()
	w.settle()
	for _, good := range []string{"g1", "g2"} { // something to go back to
		_, _ = w.release(good, "")
		w.comeToRest()
	}
	w.tame = false
	return w
}

// declareChannel draws what stands before and after a deployment.
func (w *storm) declareChannel(n int, name string) {
	w.truth[name] = Pass
	w.channel(name, func(c *ChannelSpec) {
		c.Conditions, c.Checks, c.Extensions = nil, nil, nil
		if n > 0 {
			c.Conditions = []Condition{stableAfter(stormChannels[n-1])}
		}
		c.NoRollback = w.oneIn(4, "no rollback")
		check := Check{ID: stormCheck, Kind: CheckAlways, Definition: w.pick("d1", "d2"), Interval: 10 * time.Second}
		if w.oneIn(2, "soaks") {
			check.At = append(check.At, CheckAt{Stage: PostDeployment, Delay: time.Minute, For: time.Hour})
		}
		if w.oneIn(2, "smoke") {
			c.Extensions = append(c.Extensions, Extension{Name: "smoke", Stage: PostDeployment, Key: name, MaxAttempts: 1})
		}
		if w.gates && w.oneIn(2, "approved") {
			c.Conditions = append(c.Conditions, Condition{ID: "approval/go", Kind: ManualApproval, Topic: "go", MinApprovers: 2, Approvers: []string{"alice", "bob", w.pick("carol", "mallory")}})
		}
		if w.gates && w.oneIn(2, "checked") {
			check.At = append(check.At, CheckAt{Stage: Stage(w.pick(string(PreApproval), string(PostApproval))), Fails: false})
		}
		if w.gates && w.oneIn(3, "watched") {
			check.At = append(check.At, CheckAt{Stage: Deployment, Fails: w.oneIn(2, "fails")})
		}
		if len(check.At) > 0 {
			check.Repairs = w.oneIn(3, "repairs")
			c.Checks = append(c.Checks, check)
		}
		if w.gates && w.oneIn(3, "extended") {
			c.Extensions = append(c.Extensions, Extension{
				Name: "migrate", Stage: Stage(w.pick(string(PreApproval), string(PostApproval))), Key: w.pick(name, "all"),
				MaxAttempts: 2, RetryBackoff: time.Second, RetryMax: time.Second,
			})
		}
	})
}

func (w *storm) oneIn(n int, label string) bool { return rapid.IntRange(1, n).Draw(w.t, label) == n }

func (w *storm) pick(from ...string) string {
	if len(from) == 0 {
		w.t.Skip("nothing to pick")
	}
	return rapid.SampledFrom(from).Draw(w.t, "pick")
}

// settle decides and judges pass by pass; then the state is as Settle leaves it.
func (w *storm) settle() {
	w.firstLooks()
	mode := Mode{Drain: !w.tame && w.oneIn(10, "drain")}
	for pass := 0; ; pass++ {
		if pass > 100 {
			w.t.Fatalf("the decision does not settle:\n%s", Decide(w.s, w.now, mode))
		}
		before := DigestOf(w.s)
		d := Decide(w.s, w.now, mode)
		if DigestOf(w.s) != before {
			w.t.Fatalf("Decide edited its input:\n%s", d)
		}
		w.judge(d, mode)
		w.s.Commit(d, w.now)
		w.start(d)
		if !d.acts() {
			break
		}
	}
	w.decision = w.s.Settle(w.now, mode)
	w.fresh = map[string]bool{}
	settled := DigestOf(w.s, w.s.CheckLooks())
	if w.decision.acts() || w.s.Settle(w.now, mode).acts() || DigestOf(w.s, w.s.CheckLooks()) != settled {
		w.t.Fatalf("Settle is not idempotent:\n%s", w.decision)
	}
	w.renders = w.decision.Renders
	w.judgeRest(mode)
}

// start takes note of the work that a pass starts.
func (w *storm) start(d *Decision) {
	for _, op := range d.Applies {
		w.applies[op.Channel] = op
	}
	for _, op := range d.Removes {
		w.removes[op.Channel] = op
	}
	w.note(d)
	for _, op := range d.Extensions {
		key := op.Release + "/" + op.Extension.ExtensionKey()
		if _, twice := w.runs[key]; twice {
			w.t.Fatalf("an extension beside itself:\n%s", d)
		}
		w.runs[key] = op
	}
	for _, op := range d.Leases {
		w.ledger.take(op)
	}
}

func (l *stormLedger) take(op LeaseOp) {
	for n := range l.waiting {
		if l.waiting[n].ID == op.ID {
			l.waiting = append(l.waiting[:n:n], l.waiting[n+1:]...)
			break
		}
	}
	if op.GiveBack {
		delete(l.held, op.ID)
	} else {
		l.waiting = append(l.waiting, op)
	}
}

// grant gives the next one its lease; what nobody wants any more is given back.
func (w *storm) grant() {
	limit := w.s.Spec.Runtimes["local"].MaxApplies
	if len(w.ledger.waiting) == 0 || len(w.ledger.held) >= limit {
		w.t.Skip("nobody waits, or no place is free")
	}
	op := w.ledger.waiting[0]
	w.ledger.waiting = w.ledger.waiting[1:]
	if w.s.LeaseGranted(op.ID, w.now) {
		w.ledger.held[op.ID] = true
	}
}

// Whatever happens in whatever order, nothing passes, goes on or goes back that must not; and once
// people and runtimes let it, a fix arrives everywhere (B7, B10).
func TestStorm(t *testing.T) {
	taken, entered := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newStorm(t)
		actions := map[string]func(*rapid.T){}
		for name, event := range w.events() {
			actions[name] = func(t *rapid.T) { w.t = t; event(); w.settle() }
		}
		t.Repeat(actions)
		w.t = t
		for _, r := range w.s.Releases {
			for _, p := range r.Phases {
				if p.Phase == maestro.RolledBack {
					taken++
				}
				if p.Phase.Entered() && r.Version[0] == 'v' {
					entered++
				}
			}
		}
		w.fix()
	})
	if taken == 0 || entered == 0 {
		t.Fatalf("%d taken back, %d entered: the test shows nothing", taken, entered)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (w *storm) anyVersion() string {
	all := []string{"", "v0", "g1"}
	for _, r := range w.s.Releases {
		all = append(all, r.FullVersion)
	}
	return w.pick(all...)
}

// next in line, more often than any other.
func (w *storm) waitingVersion() string {
	for _, c := range w.decision.Channels {
		if c.Next != nil && w.oneIn(2, "next") {
			return c.Next.FullVersion
		}
	}
	return w.anyVersion()
}

func (w *storm) known(r string, channel, id string) string {
	return fmt.Sprint(r, "/", channel, "/", id)
}
