package entities

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities/maestro"
)

// wayfarer is a world in which releases fail, soak, are pinned, paused and taken back in any order,
// and which judges every pass: what is paused, pinned or barred never moves otherwise, no way back is
// taken back, and nothing succeeds before its window has passed (A16–A19, A22, A24).
type wayfarer struct {
	*world
	t       *rapid.T
	n       int
	truth   map[string]Verdict // by channel, of its check
	passed  map[string]bool    // channel and release: the last look of its window was PASS
	audited int64
}

var wayChannels = []string{"c0", "c1", "c2"}

func newWayfarer(t *rapid.T) *wayfarer {
	w := &wayfarer{world: newWorld(), t: t, truth: map[string]Verdict{}, passed: map[string]bool{}}
	rt := w.next.Runtimes["local"]
	rt.CanRemove = true
	w.next.Runtimes["local"] = rt
	w.next.Remove = rapid.Bool().Draw(t, "remove")
	for n, name := range wayChannels {
		w.declareWay(n, name)
	}
	w.publish()
	w.settle()
	for _, good := range []string{"g1", "g2"} { // something to go back to
		_, _ = w.release(good, "")
		w.comeToRest()
	}
	return w
}

func (w *wayfarer) declareWay(n int, name string) {
	w.truth[name] = Pass
	w.channel(name, func(c *ChannelSpec) {
		if n > 0 && len(c.Conditions) == 0 {
			c.Conditions = []Condition{stableAfter(wayChannels[n-1])}
		}
		c.NoRollback = rapid.IntRange(0, 3).Draw(w.t, "rollback") == 0
		if rapid.Bool().Draw(w.t, "soaks") {
			c.Checks = []Check{{ID: "slo", Kind: CheckAlways, Definition: "d", Interval: time.Second, At: []CheckAt{{Stage: PostDeployment, Delay: time.Minute, For: time.Hour}}}}
		}
		if rapid.Bool().Draw(w.t, "smoke") {
			c.Extensions = []Extension{{Name: "smoke", Stage: PostDeployment, Key: name, MaxAttempts: 1}}
		}
	})
}

func (w *wayfarer) settle() {
	w.firstLooks()
	for pass := 0; ; pass++ {
		if pass > 100 {
			w.t.Fatalf("the decision does not settle:\n%s", Decide(w.s, w.now, Mode{}))
		}
		before := snapshot2(w.s)
		d := Decide(w.s, w.now, Mode{})
		if snapshot2(w.s) != before {
			w.t.Fatalf("Decide edited its input:\n%s", d)
		}
		w.judge(d)
		w.s.Commit(d, w.now)
		for _, op := range d.Applies {
			w.applies[op.Channel] = op
		}
		for _, op := range d.Removes {
			w.removes[op.Channel] = op
		}
		w.note(d)
		if !d.acts() {
			break
		}
	}
	w.decision = w.s.Settle(w.now, Mode{})
	w.renders = w.decision.Renders
	if w.decision.acts() {
		w.t.Fatalf("Settle is not idempotent:\n%s", w.decision)
	}
	if due := w.decision.Wake; !due.IsZero() && !due.After(w.now) {
		w.t.Fatalf("wake-up in the past:\n%s", w.decision)
	}
	w.judgeAudit()
}

func snapshot2(s *State) string { return DigestOf(s) }

func (w *wayfarer) judge(d *Decision) {
	for _, c := range d.Changes {
		i := w.s.Instance(c.Channel)
		_, paused := w.s.PauseOf(c.Channel)
		_, pinned := w.s.PinOf(c.Channel)
		refuse := func(why string) { w.t.Fatalf("%s of %s %s:\n%s%s", c.Kind, c.Channel, why, d, w.phases()) }
		switch c.Kind {
		case ChangePromote, ChangeUnchanged:
			r := w.s.ReleaseByID(c.Release)
			switch {
			case paused || pinned:
				refuse("while paused or pinned")
			case r.Phases[c.Channel].Phase != maestro.Pending:
				refuse("though it is barred or over")
			case i.Rollback != nil && !i.Converged && (i.Rollback.Failed.IsZero() || r.At.Before(i.Rollback.Failed)):
				refuse("past a way back")
			}
		case ChangeRollback:
			spec, _ := w.s.Spec.Channel(c.Channel)
			if paused || pinned || i.Rollback != nil || spec.NoRollback || i.Progress.Running || i.Converged {
				refuse("though it must not be taken back")
			}
		case ChangePin:
			if paused {
				refuse("while paused")
			}
		case ChangeConverged:
			w.judgeSuccess(c, i, refuse)
		}
	}
	for _, op := range d.Applies {
		_, paused := w.s.PauseOf(op.Channel)
		_, twice := w.applies[op.Channel]
		_, removing := w.removes[op.Channel]
		if paused || twice || removing || *w.s.Instances[op.Channel].Target != op.Target {
			w.t.Fatalf("never to be applied (paused %v, one runs %v, being removed %v):\n%s", paused, twice, removing, d)
		}
	}
	for _, op := range d.Removes {
		_, paused := w.s.PauseOf(op.Channel)
		_, applying := w.applies[op.Channel]
		if paused || applying || w.s.declared(op.Channel) || len(w.removes) > 0 || len(d.Removes) > 1 {
			w.t.Fatalf("never to be removed:\n%s", d)
		}
	}
}

func (w *wayfarer) judgeSuccess(c Change, i *Instance, refuse func(string)) {
	spec, _ := w.s.Spec.Channel(c.Channel)
	r := w.s.ReleaseByID(c.Release)
	if i.Progress.Running {
		refuse("while an apply runs")
	}
	if r == nil {
		return // a way back, a pin, or what was cancelled
	}
	for _, e := range spec.Extensions {
		if st := r.Extensions[e.ExtensionKey()]; st == nil || !st.Done {
			refuse("before " + e.Name)
		}
	}
	if len(spec.Checks) > 0 && (!w.passed[c.Channel+"/"+r.ID] || w.now.Before(i.StableSince.Add(time.Hour+time.Minute))) {
		refuse("before its window has passed")
	}
}

// judgeAudit: lines are numbered without gaps, whoever takes them away.
func (w *wayfarer) judgeAudit() {
	for _, l := range w.s.Audit {
		if l.N <= w.audited {
			continue
		}
		if l.N != w.audited+1 {
			w.t.Fatalf("audit line %d follows %d", l.N, w.audited)
		}
		w.audited = l.N
	}
	if w.audited != w.s.AuditLines || len(w.s.Audit) > MaxAudit {
		w.t.Fatalf("%d audit lines of %d were seen, %d are kept", w.audited, w.s.AuditLines, len(w.s.Audit))
	}
}

func (w *wayfarer) pick(from ...string) string {
	if len(from) == 0 {
		w.t.Skip("nothing to pick")
	}
	return rapid.SampledFrom(from).Draw(w.t, "pick")
}

func (w *wayfarer) anyVersion() string {
	all := []string{"", "v0", "g1"}
	for _, r := range w.s.Releases {
		all = append(all, r.FullVersion)
	}
	return w.pick(all...)
}

// act is a person's act: what is paused or pinned stays at its target, and so does everything when it
// is refused.
func (w *wayfarer) act(do func() (string, error)) {
	held, before := map[string]Target{}, snapshot2(w.s)
	for _, name := range SortedKeys(w.s.Instances) {
		_, paused := w.s.PauseOf(name)
		_, pinned := w.s.PinOf(name)
		if i := w.s.Instances[name]; (paused || pinned) && i.Target != nil {
			held[name] = *i.Target
		}
	}
	_, err := do()
	if err != nil && snapshot2(w.s) != before {
		w.t.Fatalf("refused (%s), it changed something", err)
	}
	for name, t := range held {
		if i := w.s.Instances[name]; i == nil || !i.Target.Same(t) {
			w.t.Fatalf("%s moved from %s though it is held", name, t.FullVersion)
		}
	}
}

func (w *wayfarer) endApply(how string) {
	channel := w.pick(SortedKeys(w.applies)...)
	version := w.applies[channel].Target.FullVersion
	switch how {
	case "ok":
		w.applyEnded(channel, "", false)
		w.look(channel, running(version, ObjectSucceeded), true)
	case "broken":
		w.applyEnded(channel, "", false)
		w.look(channel, running(version, ObjectFailed), true)
	default:
		w.applyEnded(channel, how, true)
	}
}

func (w *wayfarer) seen() {
	for _, l := range w.s.CheckLooks() {
		w.s.CheckSeen(l, CheckReading{Verdict: w.truth[l.Channel], At: w.now}, w.now)
	}
}

func (w *wayfarer) preflightDone() {
	op := w.preflights[w.pick(SortedKeys(w.preflights)...)]
	delete(w.preflights, op.Channel)
	readings := map[string]CheckReading{}
	for _, l := range op.Checks {
		readings[l.Key()] = CheckReading{Verdict: w.truth[l.Channel], At: w.now}
	}
	w.passed[op.Channel+"/"+op.Release] = w.truth[op.Channel] == Pass
	w.s.PreflightDone(op, readings, w.now)
}

func (w *wayfarer) events() map[string]func() {
	c := func() string { return w.pick(wayChannels...) }
	any := func() string { return w.pick("c0", "c1", "c2", "") }
	return map[string]func(){
		"release": func() { w.n++; _, _ = w.release(fmt.Sprintf("v%d", w.n), "") },
		"ok":      func() { w.endApply("ok") },
		"ok2":     func() { w.endApply("ok") },
		"broken":  func() { w.endApply("broken") },
		"fails":   func() { w.endApply("exit status 1") },
		"seen":    w.seen,
		"turn":    func() { w.turn() },
		"turn2":   func() { w.turn() },
		"turn3":   func() { w.turn() },
		"look":    w.preflightDone,
		"truth":   func() { w.truth[c()] = rapid.SampledFrom([]Verdict{Pass, Pass, Wait, Fail, Error}).Draw(w.t, "truth") },
		"pin": func() {
			w.act(func() (string, error) {
				return w.s.PinChannel(w.anyVersion(), Pin{Channel: any(), Who: bob, At: w.now})
			})
		},
		"unpin": func() { w.act(func() (string, error) { return w.s.UnpinChannel(any(), bob, "", w.now) }) },
		"rollback": func() {
			w.act(func() (string, error) { return w.s.RollbackRelease(w.anyVersion(), any(), bob, "", w.now) })
		},
		"retry": func() { w.act(func() (string, error) { return w.s.RetryRelease(w.anyVersion(), any(), bob, w.now) }) },
		"cancel": func() {
			w.act(func() (string, error) { return w.s.CancelRelease(w.anyVersion(), any(), bob, "", w.now) })
		},
		"pause":  func() { w.act(func() (string, error) { return w.s.PauseScope(any(), bob, "", w.now) }) },
		"resume": func() { _, _ = w.s.ResumeScope(any(), bob, w.now) },
		"hold":   func() { w.s.Hold(w.pick("application", "runtime/local"), &Pause{By: "carol", At: w.now}, w.now) },
		"let go": func() { w.s.Hold(w.pick("application", "runtime/local"), nil, w.now) },
		"smoke": func() {
			name := w.pick(SortedKeys(w.extensions)...)
			w.s.ExtensionEnded(w.extensions[name], w.pick("", "", "exit status 1"), "", "", w.now)
			delete(w.extensions, name)
		},
		"damage": func() {
			if name := c(); w.applies[name].Channel == "" && w.s.declared(name) {
				w.look(name, running(w.pick("g1", "g2", "v1", "elsewhere"), ObjectPending), true)
			}
		},
		"stored": func() { w.s.AuditStored(w.audited) },
		"gone":   func() { w.comeAndGo(2, "c2") },
		"removed": func() {
			op := w.removes[w.pick(SortedKeys(w.removes)...)]
			delete(w.removes, op.Channel)
			w.s.Removed(op, w.pick("", "connection refused"), w.now)
		},
		"time": func() { w.now = w.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(w.t, "seconds")) * time.Second) },
		"wake": func() { w.now = later(w.now, w.decision.Wake) },
		"rest": w.carryOver,
	}
}

func (w *wayfarer) comeAndGo(n int, name string) {
	if declared := slices.ContainsFunc(w.next.Channels, func(c ChannelSpec) bool { return c.Name == name }); declared {
		w.next.Channels = slices.DeleteFunc(slices.Clone(w.next.Channels), func(c ChannelSpec) bool { return c.Name == name })
	} else {
		w.declareWay(n, name)
	}
	w.publish()
}

// fix lets go of everything, releases a fix, and plays runtimes and checks that are well again: the
// fix arrives everywhere (B10).
func (w *wayfarer) fix() {
	for _, p := range slices.Clone(w.s.Pauses) {
		if p.Scope != "" {
			w.s.Hold(p.Scope, nil, w.now)
		} else {
			_, _ = w.s.ResumeScope(p.Channel, bob, w.now)
		}
	}
	for _, p := range slices.Clone(w.s.Pins) {
		_, _ = w.s.UnpinChannel(p.Channel, bob, "", w.now)
	}
	for _, name := range wayChannels {
		w.truth[name] = Pass
	}
	w.now = w.now.Add(time.Second)
	fix, err := w.release("fix", "")
	if err != nil {
		return // as many as can be are in flight
	}
	w.comeToRest()
	for _, c := range w.decision.Channels {
		if c.Status != StatusConverged && w.s.declared(c.Channel) || w.s.declared(c.Channel) && !w.s.isAt(c.Channel, fix) {
			w.t.Fatalf("the fix does not arrive in %s:\n%s%s", c.Channel, w.decision, w.phases())
		}
	}
}

// comeToRest plays runtimes and checks that are well until nothing is left to happen.
func (w *wayfarer) comeToRest() {
	for range 3000 {
		w.settle()
		if !w.turn() {
			return
		}
	}
	w.t.Fatalf("it does not come to rest:\n%s", w.decision)
}

// turn does what is left to do, or lets time pass until something is due; false: nothing is.
func (w *wayfarer) turn() bool {
	for _, name := range SortedKeys(w.removes) {
		w.s.Removed(w.removes[name], "", w.now)
		delete(w.removes, name)
		return true
	}
	for _, name := range SortedKeys(w.extensions) {
		w.s.ExtensionEnded(w.extensions[name], "", "", "", w.now)
		delete(w.extensions, name)
		return true
	}
	if len(w.renders) > 0 {
		w.render()
		return true
	}
	if len(w.preflights) > 0 {
		w.preflightDone()
		return true
	}
	if len(w.applies) > 0 {
		w.endApply("ok")
		return true
	}
	w.seen()
	w.settle()
	for _, name := range wayChannels {
		if i := w.s.Instances[name]; i != nil && i.Look && w.s.declared(name) && i.Target != nil {
			w.look(name, i.Reading, true)
			return true
		}
	}
	if !w.decision.acts() && w.decision.Wake.IsZero() {
		return len(w.applies)+len(w.extensions)+len(w.preflights)+len(w.removes) > 0
	}
	w.now = later(w.now, w.decision.Wake)
	return true
}

// Whatever happens in whatever order, nothing goes back, or on, that must not; and a fix always
// arrives.
func TestWaysBack(t *testing.T) {
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWayfarer(t)
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
			}
		}
		w.fix()
	})
	if taken == 0 {
		t.Fatal("nothing was ever taken back: the test shows nothing")
	}
}
