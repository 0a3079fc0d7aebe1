package entities

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities/maestro"
)

// chaos is a world in which everything happens in any order, and which checks after every event
// that nothing was done that never may be (A8, A16, A18, B7, D17; DESIGN section 5, invariants).
type chaos struct {
	*world
	t        *rapid.T
	rt       map[string]Reading         // what a channel's runtime would report, if it is honest
	versions int                        // ever released by name
	promoted map[string]map[string]bool // channel → full versions that a release brought there
	entered  map[string]int             // channel → sequence of the newest release that entered
	sequence map[string]int             // release id → order of opening
	lastSeen map[string]bool            // release id → was over when last seen
	tame     bool                       // nothing fails, nobody interferes
}

func newChaos(t *rapid.T, tame bool) *chaos {
	c := &chaos{
		world: newWorld(), t: t, tame: tame, rt: map[string]Reading{}, promoted: map[string]map[string]bool{},
		entered: map[string]int{}, sequence: map[string]int{}, lastSeen: map[string]bool{},
	}
	n := rapid.IntRange(1, 5).Draw(t, "channels")
	for i := range n {
		c.declare(i)
	}
	c.publishNow()
	return c
}

// declare draws a channel that depends on any of those before it.
func (c *chaos) declare(i int) {
	name := fmt.Sprintf("c%d", i)
	if slices.ContainsFunc(c.next.Channels, func(s ChannelSpec) bool { return s.Name == name }) {
		return
	}
	c.channel(name, func(s *ChannelSpec) {
		s.Runtime = rapid.SampledFrom([]string{"local", "local", "code", "blind"}).Draw(c.t, "runtime")
		s.Template = rapid.SampledFrom([]string{"t1", "t2"}).Draw(c.t, "template")
		for up := range i {
			if c.known(fmt.Sprintf("c%d", up)) && rapid.Bool().Draw(c.t, "after") {
				s.Conditions = append(s.Conditions, stableAfter(fmt.Sprintf("c%d", up)))
			}
		}
	})
}

func (c *chaos) known(channel string) bool {
	return slices.ContainsFunc(c.next.Channels, func(s ChannelSpec) bool { return s.Name == channel })
}

func (c *chaos) publishNow() {
	slices.SortFunc(c.next.Channels, func(a, b ChannelSpec) int { return int(a.Name[1]) - int(b.Name[1]) })
	c.opened(c.publish())
	c.settle()
}

func (c *chaos) opened(r *Release) {
	if r != nil && c.sequence[r.ID] == 0 {
		c.sequence[r.ID] = len(c.sequence) + 1
	}
}

// settle decides pass by pass, as Settle does, and judges every pass.
func (c *chaos) settle() {
	mode := Mode{Drain: !c.tame && rapid.IntRange(0, 9).Draw(c.t, "drain") == 0}
	for pass := 0; ; pass++ {
		if pass > 20*(len(c.s.Releases)+2)*(len(c.s.Spec.Channels)+1) {
			c.t.Fatalf("the decision does not settle:\n%s", Decide(c.s, c.now, mode))
		}
		for _, r := range c.s.Releases {
			c.lastSeen[r.ID] = r.Over()
		}
		before := snapshot(c.t, c.s)
		d := Decide(c.s, c.now, mode)
		if after := snapshot(c.t, c.s); after != before {
			c.t.Fatalf("Decide edited its input:\n%s\n%s", before, after)
		}
		c.judge(d, mode)
		c.s.Commit(d, c.now)
		for _, op := range d.Applies {
			c.applies[op.Channel] = op
		}
		for _, op := range d.Asks {
			c.asks[op.Channel] = op
		}
		if len(d.Changes)+len(d.Applies)+len(d.Asks) == 0 {
			break
		}
	}
	d := c.s.Settle(c.now, mode)
	c.renders, c.decision = d.Renders, d
	settled := snapshot(c.t, c.s)
	if again := c.s.Settle(c.now, mode); len(again.Changes)+len(again.Applies)+len(again.Asks) > 0 || snapshot(c.t, c.s) != settled {
		c.t.Fatalf("Settle is not idempotent:\n%s", again)
	}
	c.judgeState()
	c.judgeWake(mode)
}

func snapshot(t *rapid.T, s *State) string {
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// judge holds one pass to what never may happen.
func (c *chaos) judge(d *Decision, mode Mode) {
	for _, ch := range d.Changes {
		switch ch.Kind {
		case ChangePromote, ChangeUnchanged:
			c.judgeEntry(ch, mode, d)
		case ChangeConverged:
			if c.s.Instances[ch.Channel].Progress.Running {
				c.t.Fatalf("%s converged while an apply runs", ch.Channel)
			}
		}
	}
	for _, op := range d.Applies {
		_, paused := c.s.PauseOf(op.Channel)
		_, twice := c.applies[op.Channel]
		i := c.s.Instances[op.Channel]
		if paused || twice || mode.Drain || i.Target == nil || *i.Target != op.Target || op.Timeout <= 0 {
			c.t.Fatalf("never to be applied (paused %v, one running %v, drain %v, timeout %s):\n%s", paused, twice, mode.Drain, op.Timeout, d)
		}
	}
}

func (c *chaos) judgeEntry(ch Change, mode Mode, d *Decision) {
	r := c.s.ReleaseByID(ch.Release)
	spec, _ := c.s.Spec.Channel(ch.Channel)
	refuse := func(why string) { c.t.Fatalf("%s entered %s %s:\n%s%s", r.FullVersion, ch.Channel, why, d, c.phases()) }
	if _, paused := c.s.PauseOf(ch.Channel); paused || mode.Drain {
		refuse("while paused or draining")
	}
	if r.Phases[ch.Channel].Phase != maestro.Pending {
		refuse("though it was not pending")
	}
	if _, applying := c.applies[ch.Channel]; applying {
		refuse("while an apply runs")
	}
	if i := c.s.Instances[ch.Channel]; i != nil && c.s.Spec.Runtimes[spec.Runtime].looksAt(i) && i.Reading.Err != nil {
		refuse("though nothing is known")
	}
	for _, cond := range spec.Conditions {
		for _, up := range cond.Channels {
			if p := r.Phases[up]; p != nil && p.Phase != maestro.Succeeded {
				refuse("past " + up)
			}
		}
	}
	for _, other := range c.s.Releases {
		p := other.Phases[ch.Channel]
		if other == r || p == nil {
			continue
		}
		if p.Phase == maestro.InProgress {
			refuse("beside " + other.FullVersion)
		}
		if p.Phase == maestro.Pending && c.sequence[other.ID] < c.sequence[r.ID] && !c.doomed(other, ch.Channel) {
			refuse("overtaking " + other.FullVersion)
		}
	}
	if c.entered[ch.Channel] >= c.sequence[r.ID] {
		refuse("after a newer one, or twice")
	}
	c.entered[ch.Channel] = c.sequence[r.ID]
	if ch.Target != nil {
		if c.promoted[ch.Channel] == nil {
			c.promoted[ch.Channel] = map[string]bool{}
		}
		c.promoted[ch.Channel][ch.Target.FullVersion] = true
	}
}

// doomed: something above the channel ended this release for good. (Written apart from maestro.)
func (c *chaos) doomed(r *Release, channel string) bool {
	spec, _ := c.s.Spec.Channel(channel)
	for _, cond := range spec.Conditions {
		for _, up := range cond.Channels {
			p := r.Phases[up]
			if p == nil {
				continue
			}
			if p.Phase.Over() && p.Phase != maestro.Succeeded || p.Phase == maestro.Pending && c.doomed(r, up) {
				return true
			}
		}
	}
	return false
}

// judgeState holds what is carried on to what never may be.
func (c *chaos) judgeState() {
	for name, i := range c.s.Instances {
		if i.Target != nil && !c.promoted[name][i.Target.FullVersion] {
			c.t.Fatalf("%s is at %s, which no release brought", name, i.Target.FullVersion)
		}
	}
	for _, ch := range c.decision.Channels {
		if ch.Status != StatusConverged && len(ch.Reasons) == 0 {
			c.t.Fatalf("%s is %s for no reason", ch.Channel, ch.Status)
		}
	}
	seen := map[string]bool{}
	for _, r := range c.s.Releases {
		seen[r.ID] = true
	}
	for id, over := range c.lastSeen {
		if !seen[id] && !over {
			c.t.Fatalf("release %s was lost", id)
		}
	}
	for i, r := range c.s.Releases[:max(0, len(c.s.Releases)-1)] {
		if c.sequence[r.ID] >= c.sequence[c.s.Releases[i+1].ID] {
			c.t.Fatalf("releases are out of order:\n%s", c.phases())
		}
	}
	if len(c.s.Journal) > MaxJournal || len(c.s.Refused) > MaxRefused {
		c.t.Fatal("the state is not bounded")
	}
}

// judgeWake: until the wake-up, nothing becomes due by itself.
func (c *chaos) judgeWake(mode Mode) {
	if mode.Drain {
		return
	}
	until := c.now.Add(24 * time.Hour)
	if w := c.decision.Wake; !w.IsZero() {
		if !w.After(c.now) {
			c.t.Fatalf("wake-up in the past:\n%s", c.decision)
		}
		until = w.Add(-1)
	}
	later := c.now.Add(time.Duration(rapid.Int64Range(0, int64(until.Sub(c.now))).Draw(c.t, "later")))
	for _, at := range []time.Time{later, until} {
		if d := Decide(c.s, at, mode); len(d.Changes)+len(d.Applies)+len(d.Asks) > 0 {
			c.t.Fatalf("due at %s with nothing to wake for it:\n%s\nbefore:\n%s", at, d, c.decision)
		}
	}
}

func (c *chaos) pick(label string, from []string) string {
	if len(from) == 0 {
		c.t.Skip("nothing to pick")
	}
	return rapid.SampledFrom(from).Draw(c.t, label)
}

func (c *chaos) anyChannel() string {
	return c.pick("channel", append(c.s.Spec.channelNames(), ""))
}

func (c *chaos) anyVersion() string {
	var all []string
	for _, r := range c.s.Releases {
		all = append(all, r.FullVersion)
	}
	return c.pick("version", all)
}

// The events.

func (c *chaos) newRelease(*rapid.T) {
	c.versions++
	r, err := c.release(fmt.Sprintf("v%d", c.versions), "")
	if err == nil {
		c.opened(r)
	}
	c.settle()
}

func (c *chaos) sameRelease(*rapid.T) {
	r, err := c.release(c.s.Releases[max(0, len(c.s.Releases)-1)].Version, "")
	if err == nil {
		c.opened(r)
	}
	c.settle()
}

func (c *chaos) changeConfig(t *rapid.T) {
	if len(c.next.Channels) == 0 {
		t.Skip("no channel")
	}
	i := rapid.IntRange(0, len(c.next.Channels)-1).Draw(t, "channel")
	c.next.Channels[i].Template = rapid.SampledFrom([]string{"t1", "t2", "t3"}).Draw(t, "template")
	c.publishNow()
}

func (c *chaos) changeRules(t *rapid.T) {
	if len(c.next.Channels) == 0 {
		t.Skip("no channel")
	}
	i := rapid.IntRange(0, len(c.next.Channels)-1).Draw(t, "channel")
	c.next.Channels[i].Conditions = nil
	for _, up := range c.next.Channels[:i] {
		if rapid.Bool().Draw(t, "after") {
			c.next.Channels[i].Conditions = append(c.next.Channels[i].Conditions, stableAfter(up.Name))
		}
	}
	c.publishNow()
}

func (c *chaos) comeAndGo(t *rapid.T) {
	i := rapid.IntRange(0, 4).Draw(t, "channel")
	name := fmt.Sprintf("c%d", i)
	if !c.known(name) {
		c.declare(i)
	} else if len(c.next.Channels) > 1 {
		c.next.Channels = slices.DeleteFunc(c.next.Channels, func(s ChannelSpec) bool { return s.Name == name })
		for n := range c.next.Channels {
			c.next.Channels[n].Conditions = slices.DeleteFunc(slices.Clone(c.next.Channels[n].Conditions),
				func(cond Condition) bool { return slices.Contains(cond.Channels, name) })
		}
	}
	c.publishNow()
}

func (c *chaos) pause(*rapid.T) { _, _ = c.s.PauseScope(c.anyChannel(), bob, "", c.now); c.settle() }

func (c *chaos) resume(*rapid.T) { _, _ = c.s.ResumeScope(c.anyChannel(), bob, c.now); c.settle() }

func (c *chaos) refresh(*rapid.T) {
	_, _ = c.s.RefreshScope(c.anyChannel())
	c.settle()
}

func (c *chaos) cancel(*rapid.T) {
	_, _ = c.s.CancelRelease(c.anyVersion(), c.anyChannel(), bob, "", c.now)
	c.settle()
}

func (c *chaos) retry(*rapid.T) {
	_, _ = c.s.RetryRelease(c.anyVersion(), c.anyChannel(), bob, c.now)
	c.settle()
}

func (c *chaos) endApply(t *rapid.T) {
	channel := c.pick("running", SortedKeys(c.applies))
	version := c.applies[channel].Target.FullVersion
	how := rapid.SampledFrom([]string{"ok", "ok", "ok", "fails", "fails for good", "lost", "half"}).Draw(t, "ends")
	switch how {
	case "ok":
		c.rt[channel] = running(version, ObjectSucceeded)
		c.applyEnded(channel, "", false)
	case "lost":
		op := c.applies[channel]
		delete(c.applies, channel)
		c.s.ApplyLost(channel, op.Target, how, c.now)
	case "half":
		c.rt[channel] = running(version, rapid.SampledFrom([]ObjectStatus{ObjectPending, ObjectFailed}).Draw(t, "status"))
		c.applyEnded(channel, "", false)
	default:
		c.applyEnded(channel, how, how == "fails for good")
	}
	if rapid.Bool().Draw(t, "looked at once") {
		c.lookAt(channel)
	}
	c.settle()
}

// lookAt reports what is there.
func (c *chaos) lookAt(channel string) {
	if i := c.s.Instances[channel]; i == nil || !c.looks(channel) || i.Progress.Running || c.s.runtime(channel).Mode == FetchExitCode && i.Target == nil {
		return
	}
	c.look(channel, c.rt[channel], true)
}

func (c *chaos) lookSomewhere(*rapid.T) {
	c.lookAt(c.pick("channel", c.s.Spec.channelNames()))
	c.settle()
}

// lie reports anything, from any time.
func (c *chaos) lie(t *rapid.T) {
	channel := c.pick("channel", c.s.Spec.channelNames())
	if !c.looks(channel) {
		t.Skip("nobody looks there")
	}
	r := rapid.SampledFrom([]Reading{
		{},
		{Err: &ReadingError{Code: "timeout", Message: "timeout"}},
		running("v1", ObjectSucceeded), running("v2", ObjectFailed), running("v2", ObjectPending), running("", ObjectSucceeded),
	}).Draw(t, "reading")
	c.look(channel, r, rapid.Bool().Draw(t, "fresh"))
	c.settle()
}

func (c *chaos) damage(t *rapid.T) {
	channel := c.pick("channel", c.s.Spec.channelNames())
	c.rt[channel] = rapid.SampledFrom([]Reading{{}, running("v1", ObjectFailed), running("elsewhere", ObjectSucceeded)}).Draw(t, "damage")
	c.lookAt(channel)
	c.settle()
}

func (c *chaos) answerAsk(t *rapid.T) {
	channel := c.pick("asked", SortedKeys(c.asks))
	r := rapid.SampledFrom([]Reading{
		running(c.asks[channel].Target.FullVersion, ObjectSucceeded),
		{Objects: []Object{{Name: "web", Type: "custom"}}},
		{Err: &ReadingError{Code: "fetch-failed", Message: "exit status 3"}},
	}).Draw(t, "answer")
	c.answer(channel, r)
	c.settle()
}

func (c *chaos) answer(channel string, r Reading) {
	r.At = c.now
	op := c.asks[channel]
	delete(c.asks, channel)
	c.s.AskAnswered(channel, op.Target, r)
}

func (c *chaos) renderNow(*rapid.T) { c.render(); c.settle() }

func (c *chaos) timePasses(t *rapid.T) {
	c.now = c.now.Add(time.Duration(rapid.IntRange(1, 900).Draw(t, "seconds")) * time.Second)
	c.settle()
}

func (c *chaos) wakeUp(t *rapid.T) {
	if c.decision.Wake.IsZero() {
		t.Skip("nothing is due")
	}
	c.now = c.decision.Wake
	c.settle()
}

func (c *chaos) anotherRun(*rapid.T) {
	before := snapshot(c.t, c.s)
	c.carryOver()
	if after := snapshot(c.t, c.s); after != before {
		c.t.Fatalf("carried over, the state is another:\n%s\n%s", before, after)
	}
	c.settle()
}

// obey ends all interference and plays an obedient runtime, turn by turn, until nothing is left to
// happen by itself.
func (c *chaos) comeToRest() {
	c.tame = true
	for _, p := range slices.Clone(c.s.Pauses) {
		_, _ = c.s.ResumeScope(p.Channel, bob, c.now)
	}
	c.settle()
	turns := 40 * (len(c.s.Releases) + 2) * (len(c.s.Spec.Channels) + 1)
	for range turns {
		if !c.turn() {
			return
		}
		c.settle()
	}
	c.t.Fatalf("not at rest after %d turns:\n%s%s", turns, c.decision, c.phases())
}

func (c *chaos) turn() bool {
	if n := len(c.applies) + len(c.asks) + len(c.renders); n > 0 {
		c.render()
		for _, channel := range slices.Sorted(maps.Keys(c.asks)) {
			c.answer(channel, Reading{Objects: []Object{{Name: "web", Type: "custom"}}})
		}
		for _, channel := range slices.Sorted(maps.Keys(c.applies)) {
			c.rt[channel] = running(c.applies[channel].Target.FullVersion, ObjectSucceeded)
			c.applyEnded(channel, "", false)
			c.lookAt(channel)
		}
		return true
	}
	news := false
	for _, channel := range c.s.Spec.channelNames() {
		i := c.s.Instances[channel]
		if c.looks(channel) && (i.Look || i.Known != c.rt[channel].Digest() || !i.Fresh) && !(c.s.runtime(channel).Mode == FetchExitCode && i.Target == nil) {
			c.lookAt(channel)
			news = true
		}
	}
	if news {
		return true
	}
	if !c.decision.Wake.IsZero() {
		c.now = c.decision.Wake
		return true
	}
	return false
}

// judgeRest: what could come has come; what could not says why.
func (c *chaos) judgeRest() {
	for _, ch := range c.decision.Channels {
		switch ch.Status {
		case StatusConverged, StatusOrphaned:
		case StatusFailed, StatusBlocked:
			if c.tame && len(c.s.Releases) > 0 {
				continue
			}
			fallthrough
		default:
			c.t.Fatalf("%s comes to rest %s:\n%s%s", ch.Channel, ch.Status, c.decision, c.phases())
		}
	}
	for _, r := range c.s.Releases {
		for channel, p := range r.Phases {
			if p.Phase == maestro.InProgress || p.Phase == maestro.Pending && !c.doomed(r, channel) {
				c.t.Fatalf("%s is left %s in %s:\n%s%s", r.FullVersion, p.Phase, channel, c.decision, c.phases())
			}
		}
	}
}

func (c *chaos) events(all map[string]func(*rapid.T)) map[string]func(*rapid.T) {
	for name, event := range all {
		all[name] = func(t *rapid.T) { c.t = t; event(t) }
	}
	return all
}

// Safety whatever happens, and then progress once people and runtimes let it: every release has
// gone as far as it can.
func TestChaos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, false)
		t.Repeat(c.events(map[string]func(*rapid.T){
			"release": c.newRelease, "release2": c.newRelease, "rerelease": func(t *rapid.T) {
				if len(c.s.Releases) == 0 {
					t.Skip("none")
				}
				c.sameRelease(t)
			},
			"config": c.changeConfig, "rules": c.changeRules, "channels": c.comeAndGo,
			"pause": c.pause, "resume": c.resume, "resume2": c.resume, "refresh": c.refresh, "cancel": c.cancel, "retry": c.retry,
			"endApply": c.endApply, "endApply2": c.endApply, "endApply3": c.endApply, "look": c.lookSomewhere, "look2": c.lookSomewhere,
			"lie": c.lie, "damage": c.damage, "ask": c.answerAsk, "render": c.renderNow,
			"time": c.timePasses, "wake": c.wakeUp, "carryOver": c.anotherRun,
		}))
		c.t = t
		c.comeToRest()
		c.judgeRest()
	})
}

// Progress: with all conditions passing and a runtime that obeys, every release converges in every
// channel, or is replaced by a newer one, within a bounded number of turns (B7).
func TestEveryReleaseConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newChaos(t, true)
		t.Repeat(c.events(map[string]func(*rapid.T){
			"release": c.newRelease, "config": c.changeConfig, "time": c.timePasses, "carryOver": c.anotherRun,
			"turn": func(*rapid.T) { c.turn(); c.settle() }, "turn2": func(*rapid.T) { c.turn(); c.settle() },
		}))
		c.t = t
		c.comeToRest()
		if status := Worst(statuses(c.decision)...); status != StatusConverged {
			t.Fatalf("%s:\n%s%s", status, c.decision, c.phases())
		}
		for _, r := range c.s.Releases {
			for channel, p := range r.Phases {
				if p.Phase != maestro.Succeeded && !(p.Phase == maestro.Skipped && r.Config()) {
					t.Fatalf("%s is %s in %s:\n%s", r.FullVersion, p.Phase, channel, c.phases())
				}
			}
		}
		if r := c.s.Newest(); r != nil {
			for channel := range r.Phases {
				if i := c.s.Instances[channel]; !c.s.isAt(channel, r) && r.Present[channel].Payload != i.Target.Payload {
					t.Fatalf("%s is not at %s but at %s", channel, r.FullVersion, i.Target.FullVersion)
				}
			}
		}
	})
}

func statuses(d *Decision) (all []Status) {
	for _, c := range d.Channels {
		all = append(all, c.Status)
	}
	return all
}
