package entities

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// guard is a world with gates of every kind, in which the test knows what is true outside: what each
// check would say if it were asked now. Whatever order things happen in, nothing passes a gate whose
// condition does not hold, but for a recorded bypass (A10, A14, A15, A19, A21, C10).
type guard struct {
	*world
	t       *rapid.T
	truth   map[string]Verdict // channel/check
	n       int
	granted map[string]bool // leases
}

const guardCheck = "error-rate"

func newGuard(t *rapid.T) *guard {
	g := &guard{world: newWorld(), t: t, truth: map[string]Verdict{}, granted: map[string]bool{}}
	rt := g.next.Runtimes["local"]
	rt.MaxApplies = rapid.IntRange(0, 1).Draw(t, "max")
	rt.ApproveApplies = rapid.Bool().Draw(t, "approve applies")
	g.next.Runtimes["local"] = rt
	for i := range 3 {
		name := fmt.Sprintf("c%d", i)
		g.channel(name, func(c *ChannelSpec) {
			if i > 0 {
				c.Conditions = append(c.Conditions, stableAfter(fmt.Sprintf("c%d", i-1)))
			}
			c.NoRollback = rapid.Bool().Draw(t, "no rollback")
			if rapid.Bool().Draw(t, "approved") {
				c.Conditions = append(c.Conditions, Condition{ID: "approval/go", Kind: ManualApproval, Topic: "go", MinApprovers: 2, Approvers: []string{"alice", "bob", "carol"}})
			}
			if rapid.Bool().Draw(t, "checked") {
				at := []CheckAt{{Stage: rapid.SampledFrom([]Stage{PreApproval, PostApproval, Deployment}).Draw(t, "stage")}}
				c.Checks = []Check{{ID: guardCheck, Kind: CheckAlways, Definition: "d", At: at, Interval: 10 * time.Second, Repairs: rapid.Bool().Draw(t, "repairs")}}
			}
			if rapid.Bool().Draw(t, "extended") {
				c.Extensions = []Extension{{Name: "migrate", Stage: PostApproval, Key: rapid.SampledFrom([]string{name, "all"}).Draw(t, "key"), MaxAttempts: 2, RetryBackoff: time.Second, RetryMax: time.Second}}
			}
		})
	}
	g.publish()
	g.firstLooks()
	return g
}

// settle decides pass by pass and judges every pass; then the state is as Settle leaves it.
func (g *guard) settle() {
	mode := Mode{Drain: rapid.IntRange(0, 9).Draw(g.t, "drain") == 0}
	for pass := 0; ; pass++ {
		if pass > 100 {
			g.t.Fatalf("the decision does not settle:\n%s", g.decision)
		}
		d := Decide(g.s, g.now, mode)
		g.judge(d)
		g.s.Commit(d, g.now)
		for _, op := range d.Applies {
			g.applies[op.Channel] = op
		}
		g.note(d)
		if !d.acts() {
			break
		}
	}
	g.decision = g.s.Settle(g.now, mode)
	settled := fmt.Sprint(g.s.CheckLooks(), len(g.s.Audit))
	if again := g.s.Settle(g.now, mode); again.acts() || fmt.Sprint(g.s.CheckLooks(), len(g.s.Audit)) != settled {
		g.t.Fatalf("Settle is not idempotent:\n%s", again)
	}
	if w := g.decision.Wake; !w.IsZero() && !w.After(g.now) {
		g.t.Fatalf("wake-up in the past:\n%s", g.decision)
	}
}

func (g *guard) judge(d *Decision) {
	for _, ch := range d.Changes {
		if ch.Kind == ChangePromote {
			g.judgePromotion(g.s.ReleaseByID(ch.Release), ch.Channel, d)
		}
	}
	for _, op := range d.Applies {
		i := g.s.Instances[op.Channel]
		rt := g.s.runtime(op.Channel)
		if rt.MaxApplies > 0 && (i.Lease == nil || !g.granted[i.Lease.ID] || i.Lease.Version != op.Target.FullVersion) {
			g.t.Fatalf("an apply without a lease:\n%s", d)
		}
		back := i.Rollback != nil && !i.Converged
		if rt.ApproveApplies && !back && !i.approves(op.Target.FullVersion) && !g.waived(op.Channel, op.Target.FullVersion) {
			g.t.Fatalf("an apply that nobody approved:\n%s", d)
		}
	}
}

// waived: a person let the release pass the approval of its apply.
func (g *guard) waived(channel, version string) bool {
	return slices.ContainsFunc(g.s.Releases, func(r *Release) bool {
		return r.FullVersion == version && r.bypassed(channel, applyApproval(channel)) != nil
	})
}

func (g *guard) judgePromotion(r *Release, channel string, d *Decision) {
	refuse := func(why string) { g.t.Fatalf("%s entered %s %s:\n%s%s", r.FullVersion, channel, why, d, g.phases()) }
	spec, _ := g.s.Spec.Channel(channel)
	for _, c := range spec.Conditions {
		if c.Kind != ManualApproval || r.bypassed(channel, c.ID) != nil {
			continue
		}
		who := map[string]bool{}
		for _, a := range r.Approvals {
			if a.Reject {
				refuse("though it was rejected")
			}
			who[a.Who.Name] = slices.Contains(c.Approvers, a.Who.Name) || who[a.Who.Name]
		}
		if len(who) < c.MinApprovers || slices.Contains(values(who), false) {
			refuse("without enough approvals")
		}
	}
	for _, c := range spec.Checks {
		if v := g.truth[channel+"/"+c.ID]; v != Pass && r.bypassed(channel, c.ID) == nil {
			refuse("though " + c.ID + " says " + string(v))
		}
	}
	for _, e := range spec.Extensions {
		if st := r.Extensions[e.ExtensionKey()]; (st == nil || !st.Done) && r.bypassed(channel, extensionID(e.Name)) == nil {
			refuse("before " + e.Name + " succeeded")
		}
	}
}

func values(m map[string]bool) []bool {
	var out []bool
	for _, k := range SortedKeys(m) {
		out = append(out, m[k])
	}
	return out
}

func (g *guard) anyChannel() string { return g.pick([]string{"c0", "c1", "c2"}) }

func (g *guard) pick(from []string) string {
	if len(from) == 0 {
		g.t.Skip("nothing to pick")
	}
	return rapid.SampledFrom(from).Draw(g.t, "pick")
}

func (g *guard) anyVersion() string {
	var all []string
	for _, r := range g.s.Releases {
		all = append(all, r.FullVersion)
	}
	return g.pick(all)
}

func (g *guard) events() map[string]func() {
	who := []string{"alice", "bob", "carol", "mallory"}
	return map[string]func(){
		"release": func() { g.n++; _, _ = g.release(fmt.Sprintf("v%d", g.n), "") },
		"approve": func() {
			_, _ = g.s.Approve(g.anyVersion(), Approval{Topic: g.pick([]string{"go", "go", "apply/c0", "apply/c1", "nothing"}), Who: Who{Name: g.pick(who)}, At: g.now})
		},
		"approve apply": func() {
			_, _ = g.s.Approve(g.anyVersion(), Approval{Topic: "apply/" + g.anyChannel(), Who: bob, At: g.now})
		},
		"reject": func() {
			_, _ = g.s.Approve(g.anyVersion(), Approval{Topic: "go", Who: Who{Name: g.pick(who)}, At: g.now, Reject: true})
		},
		"bypass": func() {
			id := g.pick([]string{guardCheck, "approval/go", "extension/migrate", "channel-stable/c0", "channel-stable/c1", "in-progress", "lease", "approval/apply/c0"})
			_, _ = g.s.AddBypass(g.anyVersion(), Bypass{Channel: g.anyChannel(), Condition: id, Who: bob, Reason: "why not", At: g.now})
		},
		"truth": g.flip,
		"pass": func() {
			for _, c := range []string{"c0", "c1", "c2"} {
				g.truth[c+"/"+guardCheck] = Pass
			}
		},
		"seen": func() {
			for _, l := range g.s.CheckLooks() {
				g.s.CheckSeen(l, g.reading(l), g.now)
			}
		},
		"preflight": func() {
			op := g.preflights[g.pick(SortedKeys(g.preflights))]
			delete(g.preflights, op.Channel)
			readings := map[string]CheckReading{}
			for _, l := range op.Checks {
				readings[l.Key()] = g.reading(l)
			}
			g.s.PreflightDone(op, readings, g.now)
		},
		"extension": func() {
			name := g.pick(SortedKeys(g.extensions))
			g.s.ExtensionEnded(g.extensions[name], g.pick([]string{"", "", "no connection"}), "", "", g.now)
			delete(g.extensions, name)
		},
		"lease": func() {
			op := g.leases[g.pick(SortedKeys(g.leases))]
			g.granted[op.ID] = g.s.LeaseGranted(op.ID, g.now)
		},
		"apply": func() {
			channel := g.pick(SortedKeys(g.applies))
			version := g.applies[channel].Target.FullVersion
			err := g.pick([]string{"", "", "exit status 1"})
			g.applyEnded(channel, err, false)
			if err == "" {
				g.look(channel, running(version, ObjectSucceeded), true)
			}
		},
		"drift": func() {
			g.look(g.anyChannel(), Reading{Objects: []Object{{Name: "web", Status: ObjectPending}}}, true)
		},
		"pause":  func() { _, _ = g.s.PauseScope(g.anyChannel(), bob, "", g.now) },
		"resume": func() { _, _ = g.s.ResumeScope(g.anyChannel(), bob, g.now) },
		"retry":  func() { _, _ = g.s.RetryRelease(g.anyVersion(), "", bob, g.now) },
		"time":   func() { g.now = g.now.Add(time.Duration(rapid.IntRange(3, 300).Draw(g.t, "seconds")) * time.Second) },
		"wake":   func() { g.now = later(g.now, g.decision.Wake) },
		"rest":   g.carryOver,
	}
}

// turn answers all that is asked, one after the other; outside, things may change meanwhile.
func (g *guard) turn() {
	if len(g.s.Releases) == 0 || g.s.Newest().Over() {
		g.n++
		_, _ = g.release(fmt.Sprintf("v%d", g.n), "")
	}
	events := g.events()
	for _, name := range []string{"seen", "approve", "approve apply", "extension", "lease", "preflight", "apply", "wake"} {
		idle := name == "extension" && len(g.extensions) == 0 || name == "lease" && len(g.leases) == 0 ||
			name == "preflight" && len(g.preflights) == 0 || name == "apply" && len(g.applies) == 0
		if idle {
			continue
		}
		if rapid.IntRange(0, 5).Draw(g.t, "alert") == 0 {
			g.flip()
		}
		events[name]()
		g.settle()
	}
}

// flip changes what is so outside.
func (g *guard) flip() {
	g.truth[g.anyChannel()+"/"+guardCheck] = rapid.SampledFrom([]Verdict{Pass, Wait, Fail, Error}).Draw(g.t, "truth")
}

func (g *guard) reading(l CheckLook) CheckReading {
	return CheckReading{Verdict: g.truth[l.Channel+"/"+l.ID], At: g.now}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Whatever happens in whatever order, no gate is passed without its condition or a bypass of it.
func TestNoGateIsPassed(t *testing.T) {
	entered := 0
	rapid.Check(t, func(t *rapid.T) {
		g := newGuard(t)
		for _, c := range []string{"c0", "c1", "c2"} {
			g.truth[c+"/"+guardCheck] = Pass
		}
		g.settle()
		actions := map[string]func(*rapid.T){}
		events := g.events()
		for n := range 5 {
			events[fmt.Sprint("turn ", n)] = g.turn
		}
		for name, event := range events {
			actions[name] = func(t *rapid.T) {
				g.t = t
				if rapid.IntRange(0, 2).Draw(t, "alert") == 0 { // meanwhile, outside
					g.flip()
				}
				event()
				g.settle()
			}
		}
		t.Repeat(actions)
		for _, i := range g.s.Instances {
			if i.Target != nil {
				entered++
			}
		}
	})
	if entered == 0 {
		t.Fatal("nothing ever entered: the test shows nothing")
	}
}
