package entities

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"
)

// act is a person's act: what is paused or pinned stays at its target, and so does everything when it
// is refused.
func (w *storm) act(do func() (string, error)) {
	held, before := map[string]Target{}, DigestOf(w.s)
	for _, name := range SortedKeys(w.s.Instances) {
		_, paused := w.s.PauseOf(name)
		_, pinned := w.s.PinOf(name)
		if i := w.s.Instances[name]; (paused || pinned) && i.Target != nil {
			held[name] = *i.Target
		}
	}
	_, err := do()
	if err != nil && DigestOf(w.s) != before {
		w.t.Fatalf("refused (%s), it changed something", err)
	}
	for name, t := range held {
		if i := w.s.Instances[name]; i == nil || !i.Target.Same(t) {
			w.t.Fatalf("%s moved from %s though it is held", name, t.FullVersion)
		}
	}
}

func (w *storm) endApply(how string) {
	channel := w.pick(SortedKeys(w.applies)...)
	version := w.applies[channel].Target.FullVersion
	switch how {
	case "ok":
		w.applyEnded(channel, "", false)
		w.look(channel, running(version, ObjectSucceeded), true)
	case "broken":
		w.applyEnded(channel, "", false)
		w.look(channel, running(version, ObjectFailed), true)
	case "lost":
		op := w.applies[channel]
		delete(w.applies, channel)
		w.s.ApplyLost(channel, op.Target, how, w.now)
	default:
		w.applyEnded(channel, how, w.oneIn(2, "permanent"))
	}
}

func (w *storm) seen() {
	for _, l := range w.s.CheckLooks() {
		w.s.CheckSeen(l, CheckReading{Verdict: w.truth[l.Channel], At: w.now}, w.now)
	}
}

func (w *storm) preflightDone() {
	op := w.preflights[w.pick(SortedKeys(w.preflights)...)]
	delete(w.preflights, op.Channel)
	readings := map[string]CheckReading{}
	for _, l := range op.Checks {
		readings[l.Key()] = CheckReading{Verdict: w.truth[l.Channel], At: w.now}
	}
	if op.Window {
		w.passed[op.Channel+"/"+op.Release] = w.truth[op.Channel] == Pass
	} else {
		w.fresh[op.Channel+"/"+op.Release] = true
	}
	w.s.PreflightDone(op, readings, w.now)
}

// flip changes what is so outside; meanwhile nothing is decided.
func (w *storm) flip() {
	w.truth[w.pick(stormChannels...)] = rapid.SampledFrom([]Verdict{Pass, Pass, Wait, Fail, Error}).Draw(w.t, "truth")
}

func (w *storm) bypass() {
	version, channel := w.waitingVersion(), w.pick(stormChannels...)
	id := w.pick(stormCheck, "approval/go", "extension/migrate", "extension/smoke", "channel-stable/c0", "channel-stable/c1",
		"reading", "in-progress", "lease", "pin", "approval/apply/"+channel)
	r, _ := w.s.find(version, "")
	w.act(func() (string, error) {
		text, err := w.s.AddBypass(version, Bypass{Channel: channel, Condition: id, Who: bob, Reason: "why not", At: w.now})
		if err == nil && len(r.Bypasses) > 0 && r.Bypasses[len(r.Bypasses)-1].Condition == id && r.Bypasses[len(r.Bypasses)-1].Channel == channel {
			w.waived[w.known(r.ID, channel, id)] = true
		}
		return text, err
	})
}

func (w *storm) approve(reject bool) {
	topic := w.pick("go", "go", "apply/c0", "apply/c1", "apply/c2", "nothing")
	version, who := w.waitingVersion(), w.pick("alice", "bob", "carol", "mallory")
	w.act(func() (string, error) {
		return w.s.Approve(version, Approval{Topic: topic, Who: Who{Name: who}, At: w.now, Reject: reject})
	})
}

func (w *storm) endExtension(err string) {
	name := w.pick(SortedKeys(w.runs)...)
	w.s.ExtensionEnded(w.runs[name], err, "", "", w.now)
	delete(w.runs, name)
}

func (w *storm) comeAndGo(n int, name string) {
	if declared := slices.ContainsFunc(w.next.Channels, func(c ChannelSpec) bool { return c.Name == name }); declared {
		w.next.Channels = slices.DeleteFunc(slices.Clone(w.next.Channels), func(c ChannelSpec) bool { return c.Name == name })
	} else {
		w.declareChannel(n, name)
	}
	w.publish()
}

func (w *storm) events() map[string]func() {
	c := func() string { return w.pick(stormChannels...) }
	any := func() string { return w.pick("c0", "c1", "c2", "") }
	all := map[string]func(){
		"release": func() { w.n++; _, _ = w.release(fmt.Sprintf("v%d", w.n), "") },
		"ok":      func() { w.endApply("ok") },
		"broken":  func() { w.endApply("broken") },
		"fails":   func() { w.endApply("exit status 1") },
		"lost":    func() { w.endApply("lost") },
		"seen":    w.seen, "look": w.preflightDone, "truth": w.flip, "grant": w.grant,
		"approve": func() { w.approve(false) },
		"reject":  func() { w.approve(true) },
		"bypass":  w.bypass,
		"forget":  func() { w.ledger = stormLedger{held: map[string]bool{}} }, // the Runtime workflow was terminated
		"rules":   func() { w.rules() },
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
		"pause":     func() { w.act(func() (string, error) { return w.s.PauseScope(any(), bob, "", w.now) }) },
		"resume":    func() { _, _ = w.s.ResumeScope(any(), bob, w.now) },
		"hold":      func() { w.s.Hold(w.pick("application", "runtime/local"), &Pause{By: "carol", At: w.now}, w.now) },
		"let go":    func() { w.s.Hold(w.pick("application", "runtime/local"), nil, w.now) },
		"extension": func() { w.endExtension(w.pick("", "", "exit status 1")) },
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
	for n := range 6 {
		all[fmt.Sprint("turn ", n)] = w.turns
	}
	return all
}

// rules changes the rules of a channel for releases in flight.
func (w *storm) rules() {
	n := rapid.IntRange(0, 1).Draw(w.t, "channel")
	truth := w.truth[stormChannels[n]]
	w.declareChannel(n, stormChannels[n])
	w.truth[stormChannels[n]] = truth
	w.publish()
}

// turns does some of what is left to do, with something happening outside now and then.
func (w *storm) turns() {
	if w.s.Newest().Over() {
		w.n++
		_, _ = w.release(fmt.Sprintf("v%d", w.n), "")
	}
	for range 6 {
		if w.oneIn(10, "alert") {
			w.flip()
		}
		if !w.turn() {
			return
		}
		w.settle()
	}
}

// turn does what is left to do, or lets time pass until something is due; false: nothing is.
func (w *storm) turn() bool {
	for _, name := range SortedKeys(w.removes) {
		w.s.Removed(w.removes[name], "", w.now)
		delete(w.removes, name)
		return true
	}
	switch {
	case len(w.runs) > 0:
		w.endExtension("")
	case len(w.renders) > 0:
		w.render()
	case len(w.preflights) > 0:
		w.preflightDone()
	case len(w.applies) > 0:
		w.endApply("ok")
	case len(w.ledger.waiting) > 0 && len(w.ledger.held) < w.s.Spec.Runtimes["local"].MaxApplies:
		w.grant()
	case w.approveWaiting():
	default:
		return w.observe()
	}
	return true
}

// approveWaiting gives one approval that somebody waits for.
func (w *storm) approveWaiting() bool {
	for _, c := range w.decision.Channels {
		i := w.s.Instances[c.Channel]
		if i == nil {
			continue
		}
		if !i.ApplyAsked.IsZero() && w.mayApprove(i.present(), "apply/"+c.Channel) {
			return true
		}
		if c.Next != nil && (w.mayApprove(c.Next.FullVersion, "go") || w.mayApprove(c.Next.FullVersion, "apply/"+c.Channel)) {
			return true
		}
	}
	return false
}

func (w *storm) mayApprove(version, topic string) bool {
	for _, who := range []string{"alice", "bob", "carol"} {
		if _, err := w.s.Approve(version, Approval{Topic: topic, Who: Who{Name: who}, At: w.now}); err == nil {
			return true
		}
	}
	return false
}

// observe has checks and runtimes looked at, or lets time pass until something is due.
func (w *storm) observe() bool {
	w.seen()
	w.settle()
	for _, name := range stormChannels {
		if i := w.s.Instances[name]; i != nil && i.Look && w.s.declared(name) && i.Target != nil {
			w.look(name, i.Reading, true)
			return true
		}
	}
	if !w.decision.acts() && w.decision.Wake.IsZero() {
		return len(w.renders)+len(w.applies)+len(w.runs)+len(w.preflights)+len(w.removes)+len(w.ledger.waiting) > 0 || w.approveWaiting()
	}
	w.now = later(w.now, w.decision.Wake)
	return true
}

// fix lets go of everything, releases a fix, and plays people, runtimes and checks that are well
// again: the fix arrives everywhere (B10), and nothing is left to do.
func (w *storm) fix() {
	w.tame = true
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
	for _, name := range stormChannels {
		w.truth[name] = Pass
	}
	w.now = w.now.Add(time.Second)
	fix, err := w.release("fix", "")
	if err != nil {
		return // as many as can be are in flight
	}
	w.comeToRest()
	for _, c := range w.decision.Channels {
		if w.s.declared(c.Channel) && (c.Status != StatusConverged || !w.s.isAt(c.Channel, fix)) {
			w.t.Fatalf("the fix does not arrive in %s:\n%s%s", c.Channel, w.decision, w.phases())
		}
	}
	if len(w.s.CheckLooks()) > 0 || len(w.applies)+len(w.preflights)+len(w.runs)+len(w.removes) > 0 {
		w.t.Fatalf("at rest, something is still looked at or done:\n%s", w.decision)
	}
}

// comeToRest plays people, runtimes and checks that are well until nothing is left to happen.
func (w *storm) comeToRest() {
	for range 3000 {
		w.settle()
		if !w.turn() {
			return
		}
	}
	w.t.Fatalf("it does not come to rest:\n%s", w.decision)
}
