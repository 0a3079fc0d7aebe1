package loop_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// plainEvents are the events of releases, configurations, runtimes and pauses.
func (c *chaos) plainEvents() map[string]func() {
	any := func() string { return c.pick(append(c.s.Spec.ChannelNames(), "")...) }
	end := func() { c.endApply(c.pick("ok", "ok", "ok", "fails", "for good", "lost", "PENDING", "FAILED")) }
	seen := func() { c.observeNow(c.anyID()) }
	pause := func() { _, _ = perform(c.s.Pause(any(), bob, "", c.now)) }
	resume := func() { _, _ = perform(c.s.Resume(any(), bob, c.now)) }
	return map[string]func(){
		"release": c.newRelease, "release2": c.newRelease, "release again": c.repeatRelease,
		"config": c.changeConfig, "rules": c.changeRules, "enforcement": c.reportOnly, "channels": c.toggleChannel, "instances": c.toggleInstance, "moves": c.moveInstance,
		"pause": pause, "resume": resume, "resume2": resume, "refresh": func() { _, _ = perform(c.s.Refresh(any())) },
		"pause scope": func() { c.s.SetPause(c.anyScope(), &entities.Pause{By: "carol", At: c.now}, c.now) },
		"drain": func() {
			permit := entities.DrainPermit{Allowed: c.oneIn(2, "permit")}
			d := &entities.Drain{Force: c.oneIn(3, "force"), Restoring: !permit.Allowed && c.oneIn(3, "up"), Permits: []entities.DrainPermit{permit}}
			c.s.SetPause(c.anyRuntime(), &entities.Pause{By: "carol", At: c.now, Drain: d}, c.now)
		},
		"resume scope": func() { c.s.SetPause(c.anyScope(), nil, c.now) },
		"cancel":       func() { c.cancel(any()) },
		"clear": func() {
			clearing := state.BulkCancellation{Cancellation: state.Cancellation{Channel: any(), Who: bob}}
			if clearing.OlderThan = c.anyVersion(); c.oneIn(3, "except") {
				clearing.OlderThan, clearing.Except = "", clearing.OlderThan
			}
			c.actAsPerson(func() (string, error) { return perform(c.s.CancelWaiting(clearing, c.now)) })
		},
		"many": func() {
			c.skipUnless(len(c.s.Instances) < 50 && c.oneIn(20, "many"))
			c.releaseMany()
		},
		"retry": func() { c.retry(any()) },
		"end":   end, "end2": end, "end3": end, "look": seen, "look2": seen, "lie": c.misreport, "damage": c.damage,
		"answer": c.answerQuery, "render": c.render, "time": c.advanceTime, "wake": c.wakeUp, "rest": c.continueAsNew,
	}
}

// stormEvents are all events.
func (c *chaos) stormEvents() map[string]func() {
	any := func() string { return c.pick("c0", "c1", "c2", "") }
	end := func() { c.endApply(c.pick("ok", "ok", "ok", "FAILED", "fails", "lost")) }
	all := c.plainEvents()
	for _, name := range []string{"lie", "look2", "release2", "release again", "refresh"} {
		delete(all, name)
	}
	all["end"], all["end2"], all["end3"] = end, end, end
	for name, event := range map[string]func(){
		"seen": c.evaluateChecks, "preflight": c.preflightDone, "truth": c.changeCheckResult, "approve": func() { c.approve(false) },
		"reject": func() { c.approve(true) }, "changed mind": c.rejectAfterApproval, "bypass": c.bypass,
		"grant":  func() { c.skipUnless(c.grant()) },
		"forget": func() { c.ledgers = map[string]*ledger{} }, // the Runtime workflow was terminated
		"pin": func() {
			c.actAsPerson(func() (string, error) { return perform(c.s.Pin(any(), c.anyVersion(), bob, "", c.now)) })
		},
		"unpin": func() {
			u := state.UnpinRequest{Channel: any(), Stay: c.pick("stay", "return") == "stay", Who: bob}
			c.actAsPerson(func() (string, error) {
				defer c.recordUnpinReleases()
				return perform(c.s.Unpin(u, c.now))
			})
		},
		"rollback": func() {
			c.actAsPerson(func() (string, error) {
				return c.rollBack(state.RollbackRequest{Version: c.anyVersion(), Channel: any(), Who: bob})
			})
		},
		"extension": func() { c.endExtension(c.pick("", "", "exit status 1")) },
		"stored":    func() { c.s.AuditStored(c.audited) },
		"removed": func() {
			id := c.pickID(entities.SortedIDs(c.removes))
			op := c.removes[id]
			delete(c.removes, id)
			c.s.RecordRemoval(op, c.pick("", "connection refused"), c.now)
		},
	} {
		all[name] = event
	}
	for n := range 8 {
		all[fmt.Sprint("work ", n)] = c.workSome
	}
	return all
}

// skipUnless skips an event that has no subject.
func (c *chaos) skipUnless(ok bool) {
	if !ok {
		c.t.Skip("nothing to do")
	}
}

// actAsPerson is an action of a person. A paused or pinned instance keeps its target, and after a refusal everything is unchanged. A target
// that still changes passes the gates of its channel by a recorded bypass.
func (c *chaos) actAsPerson(do func() (string, error)) {
	held, before := map[entities.InstanceID]entities.Target{}, entities.DigestOf(c.s)
	at, auditLines := c.targetTexts(), c.s.AuditCount
	for _, id := range entities.SortedIDs(c.s.Instances) {
		_, paused := c.s.PauseOf(id)
		_, pinned := c.s.PinOf(id.Channel)
		if i := c.s.Instances[id]; (paused || pinned) && i.Delivery.Target != nil {
			held[id] = *i.Delivery.Target
		}
	}
	_, err := do()
	if err != nil && entities.DigestOf(c.s) != before {
		c.t.Fatalf("the refused action (%s) changed the state", err)
	}
	c.notePhases()
	for id, t := range c.targetTexts() {
		if before, known := at[id]; known && before != t && c.cancelledPayloads[id][c.s.Instances[id].Delivery.Target.Payload] {
			c.t.Fatalf("%s moved from %s to %s, which was cancelled", id, before, t)
		}
		if before, known := at[id]; known && before != t && !c.bypassedSince(auditLines, id.Channel) {
			c.t.Fatalf("%s moved from %s to %s without gates or a bypass", id, before, t)
		}
	}
	for id, t := range held {
		if i := c.s.Instances[id]; i == nil || !i.Delivery.Target.Same(t) {
			c.t.Fatalf("%s moved from %s although it is paused or pinned", id, t.FullVersion)
		}
	}
}

// targetTexts is the target of each instance, with its number.
func (c *chaos) targetTexts() map[entities.InstanceID]string {
	out := map[entities.InstanceID]string{}
	for id, i := range c.s.Instances {
		if i.Delivery.Target != nil {
			out[id] = fmt.Sprint(i.Delivery.Target.FullVersion, " #", i.Delivery.Since, i.Delivery.Target.Payload)
		}
	}
	return out
}

func (c *chaos) bypassedSince(auditLine int64, channel string) bool {
	return slices.ContainsFunc(c.s.Audit, func(l entities.AuditEntry) bool {
		return l.N > auditLine && l.Kind == entities.EventBypass && l.Channel == channel && l.Who != nil
	})
}

// cancel records the targets that nothing may lead to any more: where the release is in progress, and was never good.
func (c *chaos) cancel(channel string) {
	cancelling := state.Cancellation{Version: c.anyVersion(), Channel: channel, Terminate: c.oneIn(2, "terminate"), Who: bob}
	r, _ := c.s.FindOpen(cancelling.Version, channel)
	c.actAsPerson(func() (string, error) {
		before := maps.Clone(c.phase)
		text, err := perform(c.s.Cancel(cancelling, c.now))
		for channel := range c.s.Channels {
			again := err == nil && slices.ContainsFunc(c.s.Releases, func(o *state.Release) bool {
				p, concerned := o.PhaseIn(channel)
				return o.FullVersion == r.Version && concerned && p != maestro.Cancelled
			})
			if key := channel + "/"; err == nil && !again && !r.IsConfig() && !before[key+r.ID].Over() && r.Phases[channel] != nil && r.Phases[channel].Phase == maestro.Cancelled {
				c.cancelledVersions[key+r.Version] = true
			}
		}
		for _, id := range entities.SortedIDs(c.s.Instances) {
			i := c.s.Instances[id]
			if err != nil || before[id.Channel+"/"+r.ID] != maestro.InProgress || r.Phases[id.Channel].Phase != maestro.Cancelled || !i.IsAt(r) {
				continue
			}
			if spec, _ := c.s.Spec.Channel(id.Channel); spec.Report == "" && !i.Delivery.ReportedOnly && !c.goodPayloads[id][r.Payloads[id]] {
				setFlag(c.cancelledPayloads, id, r.Payloads[id], true)
			}
		}
		return text, err
	})
}

func setFlag(in map[entities.InstanceID]map[string]bool, id entities.InstanceID, what string, is bool) {
	if in[id] == nil {
		in[id] = map[string]bool{}
	}
	in[id][what] = is
}

// retry records the releases that enter again.
func (c *chaos) retry(channel string) {
	version, off := c.anyVersion(), map[entities.InstanceID]bool{}
	for id, i := range c.s.Instances {
		off[id] = i.Delivery.Cancelled != ""
	}
	c.actAsPerson(func() (string, error) { return perform(c.s.Retry(version, channel, bob, c.now)) })
	for id, i := range c.s.Instances { // a cancelled release restarts, also at an instance on a drained runtime
		if off[id] && i.Delivery.Cancelled == "" && i.Delivery.Target != nil {
			setFlag(c.cancelledPayloads, id, i.Delivery.Target.Payload, false)
		}
	}
}

func (c *chaos) anyID() entities.InstanceID { return c.pickID(c.s.Spec.IDs()) }

func (c *chaos) anyScope() string {
	return c.pick(entities.ScopeApplication, entities.ScopeRuntime+"local", entities.ScopeRuntime+"other")
}

func (c *chaos) anyRuntime() string {
	return c.pick(entities.ScopeRuntime+"local", entities.ScopeRuntime+"other")
}

func (c *chaos) anyVersion() string {
	all := []string{"", "v0", "g1"}
	for _, r := range c.s.Releases {
		all = append(all, r.FullVersion)
	}
	return c.pick(all...)
}

// waitingVersion is next in line, more often than any other.
func (c *chaos) waitingVersion() string {
	for _, ch := range c.decision.Channels {
		if ch.Next != nil && c.oneIn(2, "next") {
			return ch.Next.FullVersion
		}
	}
	return c.anyVersion()
}

// releaseMany adds more waiting releases than are kept complete.
func (c *chaos) releaseMany() {
	for range state.MaxLoaded + 5 {
		c.n++
		c.recordRelease(c.mustRelease(fmt.Sprintf("v%d", c.n)))
	}
}

func (c *chaos) newRelease() {
	c.n++
	strategy := ""
	if c.oneIn(4, "of its own") {
		strategy = c.anyStrategy()
	}
	if r, err := c.release(fmt.Sprintf("v%d", c.n), "", strategy); err == nil {
		c.recordRelease(r)
	}
}

func (c *chaos) repeatRelease() {
	c.skipUnless(len(c.s.Releases) > 0)
	if r, err := c.release(c.s.Newest().Version, ""); err == nil {
		c.recordRelease(r)
	}
}

// anyDeclared is an instance of the next configuration.
func (c *chaos) anyDeclared() *entities.InstanceSpec {
	c.skipUnless(len(c.next.Channels) > 0)
	ch := &c.next.Channels[rapid.IntRange(0, len(c.next.Channels)-1).Draw(c.t, "channel")]
	ch.Instances = slices.Clone(ch.Instances)
	return &ch.Instances[rapid.IntRange(0, len(ch.Instances)-1).Draw(c.t, "of it")]
}

func (c *chaos) changeConfig() {
	c.anyDeclared().Template = c.pick("t1", "t2", "t3")
	c.publishNow()
}

func (c *chaos) moveInstance() {
	i := c.anyDeclared()
	from := i.Runtime
	i.Runtime, i.MovedFrom = c.pick(c.runtimes...), nil
	if c.oneIn(2, "moved from") {
		i.MovedFrom = &entities.MovedFrom{Runtime: from, Remove: c.oneIn(2, "cleared")}
	}
	c.publishNow()
}

// toggleInstance adds an instance to a fleet, or takes one away.
func (c *chaos) toggleInstance() {
	c.skipUnless(len(c.next.Channels) > 0)
	ch := &c.next.Channels[rapid.IntRange(0, len(c.next.Channels)-1).Draw(c.t, "channel")]
	at := slices.IndexFunc(ch.Instances, func(i entities.InstanceSpec) bool { return i.Name == "eu-9" })
	ch.Instances = slices.Clone(ch.Instances)
	switch {
	case at >= 0:
		ch.Instances = slices.Delete(ch.Instances, at, at+1)
	case len(ch.Instances) > 2 && c.oneIn(2, "shrink"):
		ch.Instances = ch.Instances[1:]
	default:
		ch.Instances = append(ch.Instances, entities.InstanceSpec{Name: "eu-9", Runtime: c.pick(c.runtimes...), Template: "t1"})
	}
	c.publishNow()
}

// changeRules changes the rules of a channel for releases in flight.
func (c *chaos) changeRules() {
	c.skipUnless(len(c.next.Channels) > 0)
	name := c.next.Channels[rapid.IntRange(0, len(c.next.Channels)-1).Draw(c.t, "channel")].Name
	if c.oneIn(4, "another strategy") {
		c.next.Maestro.Strategy = c.anyStrategy()
	}
	c.declareChannel(int(name[1] - '0'))
	c.publishNow()
}

// reportOnly makes a channel report-only, or enforced again: then a release in progress there enters again.
func (c *chaos) reportOnly() {
	c.skipUnless(len(c.next.Channels) > 0)
	enforcement(&c.next.Channels[rapid.IntRange(0, len(c.next.Channels)-1).Draw(c.t, "channel")], c.pick("report", "enforce"))
	c.publishNow()
}

func (c *chaos) toggleChannel() {
	n := rapid.IntRange(0, c.channels-1).Draw(c.t, "channel")
	name := nameOf(n)
	switch {
	case !c.known(name):
		c.declareChannel(n)
	case len(c.next.Channels) > 1:
		maps.DeleteFunc(c.cancelledVersions, func(key string, _ bool) bool { return strings.HasPrefix(key, name+"/") })
		c.next.Channels = slices.DeleteFunc(slices.Clone(c.next.Channels), func(s entities.ChannelSpec) bool { return s.Name == name })
		for n := range c.next.Channels {
			c.next.Channels[n].Conditions = slices.DeleteFunc(slices.Clone(c.next.Channels[n].Conditions),
				func(cond entities.Condition) bool { return slices.Contains(cond.Channels, name) })
		}
	}
	c.publishNow()
}

// endApply ends a running apply: with success, with objects of some status, lost, or with a failure.
func (c *chaos) endApply(how string) {
	id := c.pickID(entities.SortedIDs(c.applies))
	op := c.applies[id]
	switch how {
	case "ok":
		c.actual[id] = running(op.Target.FullVersion, entities.ObjectSucceeded)
		c.applyEnded(id, "", false)
	case "lost":
		delete(c.applies, id)
		c.s.ApplyLost(id, op.Target, how, c.now, 0)
	case "PENDING", "FAILED":
		c.actual[id] = running(op.Target.FullVersion, entities.ObjectStatus(how))
		c.applyEnded(id, "", false)
	default:
		c.applyEnded(id, how, how == "for good")
	}
	if c.noFailures || c.setting.gated || c.oneIn(2, "observed at once") {
		c.observeNow(id)
	}
}

// canObserve reports whether an instance is observed now.
func (c *chaos) canObserve(id entities.InstanceID) bool {
	i := c.s.Instances[id]
	_, rt := c.s.Runtime(id)
	return i != nil && c.s.Declared(id) && rt.Observable && !i.Delivery.Apply.Running &&
		(rt.Mode != entities.FetchExitCode || i.Delivery.Target != nil)
}

// observeNow reports the current objects.
func (c *chaos) observeNow(id entities.InstanceID) {
	if c.canObserve(id) {
		c.observe(id, c.actual[id], true)
	}
}

// misreport reports anything, from any time.
func (c *chaos) misreport() {
	id := c.anyID()
	c.skipUnless(c.observable(id))
	r := rapid.SampledFrom([]entities.Reading{
		{},
		{Err: &entities.ReadingError{Code: "timeout", Message: "timeout"}},
		running("v1", entities.ObjectSucceeded), running("v2", entities.ObjectFailed), running("v2", entities.ObjectPending), running("", entities.ObjectSucceeded),
	}).Draw(c.t, "reading")
	c.observe(id, r, rapid.Bool().Draw(c.t, "fresh"))
}

func (c *chaos) damage() {
	id := c.anyID()
	c.actual[id] = rapid.SampledFrom([]entities.Reading{
		{}, running("v1", entities.ObjectFailed), running("g1", entities.ObjectPending), running("elsewhere", entities.ObjectSucceeded),
	}).Draw(c.t, "damage")
	c.observeNow(id)
}

func (c *chaos) answerQuery() {
	id := c.pickID(entities.SortedIDs(c.queries))
	c.answer(id, rapid.SampledFrom([]entities.Reading{
		running(c.queries[id].Target.FullVersion, entities.ObjectSucceeded), workPending(),
		{Err: &entities.ReadingError{Code: "fetch-failed", Message: "exit status 3"}},
	}).Draw(c.t, "answer"))
}

func (c *chaos) advanceTime() {
	c.now = c.now.Add(time.Duration(rapid.IntRange(1, 3000).Draw(c.t, "seconds")) * time.Second)
}

func (c *chaos) wakeUp() {
	c.skipUnless(!c.decision.Wake.IsZero())
	c.now = later(c.now, c.decision.Wake)
}

// evaluateChecks evaluates the needed checks.
func (c *chaos) evaluateChecks() {
	for _, e := range c.decision.Evaluations(c.s) {
		c.evaluated(e, entities.CheckReading{Verdict: c.checkResults[e.Channel], At: c.now})
	}
}

func (c *chaos) preflightDone() {
	op := c.preflights[c.pick(entities.SortedKeys(c.preflights)...)]
	delete(c.preflights, op.Channel)
	readings := map[string]entities.CheckReading{}
	for _, e := range op.Checks {
		readings[e.Key()] = entities.CheckReading{Verdict: c.checkResults[e.Channel], At: c.now}
	}
	if op.Window {
		c.windowPassed[op.Channel+"/"+op.Release] = c.checkResults[op.Channel] == entities.Pass
	} else {
		c.preflightFresh[op.Channel+"/"+op.Release] = true
	}
	c.s.RecordPreflight(op, readings, c.now)
}

// changeCheckResult changes the external truth, without a decision.
func (c *chaos) changeCheckResult() {
	c.checkResults[c.pick(entities.SortedKeys(c.checkResults)...)] = rapid.SampledFrom([]entities.Verdict{
		entities.Pass, entities.Pass, entities.Wait, entities.Fail, entities.Error,
	}).Draw(c.t, "truth")
}

func bypassKey(r, channel, condition string) string { return r + "/" + channel + "/" + condition }

func (c *chaos) bypass() {
	version, channel := c.waitingVersion(), c.pick("c0", "c1", "c2")
	id := c.pick(checkID, "approval/go", "extension/migrate", "extension/smoke", "channel-stable/c0", "channel-stable/c1",
		"reading", "in-progress", "lease", "pin", "approval/apply/"+channel)
	r, _ := c.s.FindOpen(version, "")
	c.actAsPerson(func() (string, error) {
		text, err := perform(decide.Bypass(c.s, version, entities.Bypass{Channel: channel, Condition: id, Who: bob, Reason: "why not", At: c.now}))
		if err == nil && r.BypassOf(channel, id) != nil {
			c.bypassed[bypassKey(r.ID, channel, id)] = true
		}
		return text, err
	})
}

func (c *chaos) approve(reject bool) {
	topic := c.pick("go", "go", "apply/c0", "apply/c1", "apply/c2", "nothing")
	version, who := c.waitingVersion(), c.pick("alice", "bob", "carol", "mallory")
	c.actAsPerson(func() (string, error) {
		return perform(c.s.Approve(version, entities.Approval{Topic: topic, Who: entities.Who{Name: who}, At: c.now, Reject: reject}))
	})
}

// rejectAfterApproval approves a release, then rejects it, and makes another channel require that approval too.
func (c *chaos) rejectAfterApproval() {
	version := c.waitingVersion()
	for _, who := range []string{"alice", "bob"} {
		c.tryApprove(version, "go")
		_, _ = perform(c.s.Approve(version, entities.Approval{Topic: "go", Who: entities.Who{Name: who}, At: c.now}))
	}
	_, err := perform(c.s.Approve(version, entities.Approval{Topic: "go", Who: bob, At: c.now, Reject: true}))
	c.skipUnless(err == nil)
	for n := range c.next.Channels {
		ch := &c.next.Channels[n]
		if len(ch.Approvals()) == 0 {
			ch.Conditions = append(slices.Clone(ch.Conditions), entities.Condition{
				ID: "approval/go", Kind: entities.ManualApproval, Topic: "go", MinApprovers: 2, Approvers: []string{"alice", "bob", "carol"},
			})
			ch.Conditions = slices.DeleteFunc(ch.Conditions, func(cond entities.Condition) bool { return cond.Kind == entities.ChannelStable })
		}
	}
	c.publishNow()
}

func (c *chaos) endExtension(err string) {
	name := c.pick(entities.SortedKeys(c.runs)...)
	c.s.ExtensionEnded(c.runs[name], err, "", "", c.now)
	delete(c.runs, name)
}

// workSome does some of the remaining work, with occasional external events.
func (c *chaos) workSome() {
	if n := c.s.Newest(); n == nil || n.Over() {
		c.newRelease()
	}
	for range 6 {
		if c.oneIn(10, "alert") {
			c.changeCheckResult()
		}
		if !c.workOnce() {
			return
		}
		c.settle()
	}
}

// workOnce does the remaining work, or lets time pass until something is due; false: nothing is.
func (c *chaos) workOnce() bool {
	for _, id := range entities.SortedIDs(c.removes) {
		c.s.RecordRemoval(c.removes[id], "", c.now)
		delete(c.removes, id)
		return true
	}
	switch {
	case len(c.runs) > 0:
		c.endExtension("")
	case len(c.renders)+len(c.recalls) > 0:
		c.render()
	case len(c.queries) > 0:
		for _, id := range entities.SortedIDs(c.queries) {
			c.answer(id, workPending())
		}
	case len(c.preflights) > 0:
		c.preflightDone()
	case len(c.applies) > 0:
		for range max(len(c.applies)/2, 1) {
			c.endApply("ok")
		}
	case c.grant():
	case c.approveWaiting():
	default:
		return c.observeAll()
	}
	return true
}

// approveWaiting gives one required approval.
func (c *chaos) approveWaiting() bool {
	for _, ch := range c.decision.Channels {
		for _, i := range c.s.InstancesIn(ch.Channel) {
			if !i.Approval.WaitingSince.IsZero() && c.tryApprove(c.targetVersion(i.ID), state.ApplyTopic+ch.Channel) {
				return true
			}
		}
		if ch.Next != nil && (c.tryApprove(ch.Next.FullVersion, "go") || c.tryApprove(ch.Next.FullVersion, state.ApplyTopic+ch.Channel)) {
			return true
		}
	}
	return false
}

func (c *chaos) tryApprove(version, topic string) bool {
	for _, who := range []string{"alice", "bob", "carol"} {
		if _, err := perform(c.s.Approve(version, entities.Approval{Topic: topic, Who: entities.Who{Name: who}, At: c.now})); err == nil {
			return true
		}
	}
	return false
}

// observeAll evaluates checks and reads instances that changed, or lets time pass until something is due.
func (c *chaos) observeAll() bool {
	before := entities.DigestOf(c.decision.Evaluations(c.s))
	c.evaluateChecks()
	c.settle()
	isNew := entities.DigestOf(c.decision.Evaluations(c.s)) != before // a new evaluation has no answer yet
	for _, id := range c.s.Spec.IDs() {
		o := &c.s.Instances[id].Observed
		if c.canObserve(id) && (o.Requested || o.Digest != c.actual[id].Digest() || !o.Fresh) {
			c.observeNow(id)
			isNew = true
		}
	}
	if isNew {
		return true
	}
	if !c.decision.HasEffects() && c.decision.Wake.IsZero() {
		return len(c.renders)+len(c.recalls)+len(c.applies)+len(c.runs)+len(c.preflights)+len(c.removes)+len(c.queries) > 0 || c.grant() || c.approveWaiting()
	}
	c.now = later(c.now, c.decision.Wake)
	return true
}

// endHolds ends all pauses and pins.
func (c *chaos) endHolds() {
	c.noFailures = true
	for n := range c.next.Channels {
		enforcement(&c.next.Channels[n], "enforce")
	}
	c.publishNow()
	for _, p := range slices.Clone(c.s.Pauses) {
		if p.Scope != "" {
			c.s.SetPause(p.Scope, nil, c.now)
		} else {
			_, _ = perform(c.s.Resume(p.Channel, bob, c.now))
		}
	}
	for _, p := range slices.Clone(c.s.Pins) {
		_, _ = perform(c.s.Unpin(state.UnpinRequest{Channel: p.Channel, Who: bob}, c.now))
		c.recordUnpinReleases()
	}
	for name := range c.checkResults {
		c.checkResults[name] = entities.Pass
	}
}

// releaseFix resumes everything, releases a fix, and simulates people, runtimes and checks that are healthy again: the fix arrives
// everywhere (B10), and no work is left.
func (c *chaos) releaseFix() {
	c.endHolds()
	c.now = c.now.Add(time.Second)
	fix, err := c.release("fix", "")
	if err != nil {
		return // the maximum number of releases is in flight
	}
	c.recordRelease(fix)
	c.runUntilIdle()
	for _, ch := range c.decision.Channels {
		spec, declared := c.s.Spec.Channel(ch.Channel)
		if declared && ch.Status != entities.StatusConverged {
			c.t.Fatalf("the fix does not arrive in %s:\n%s%s", ch.Channel, c.decision, c.phases())
		}
		for _, i := range spec.Instances {
			if !c.s.Instances[spec.ID(i)].IsAt(fix) {
				c.t.Fatalf("the fix does not arrive in %s:\n%s%s", spec.ID(i), c.decision, c.phases())
			}
		}
	}
	for channel, p := range fix.Phases {
		if c.s.Channels[channel] != nil && p.Phase != maestro.Succeeded {
			c.t.Fatalf("the fix is %s in %s:\n%s%s", p.Phase, channel, c.decision, c.phases())
		}
	}
	if len(c.decision.Evaluations(c.s)) > 0 || len(c.applies)+len(c.preflights)+len(c.runs)+len(c.removes) > 0 {
		c.t.Fatalf("work or evaluations remain although nothing happens any more:\n%s", c.decision)
	}
}

// runUntilIdle simulates people, runtimes and checks without failures until nothing is left to happen.
func (c *chaos) runUntilIdle() {
	rounds := 60*(len(c.s.Releases)+2)*(len(c.s.Spec.IDs())+1) + 3000
	for range rounds {
		c.settle()
		if !c.workOnce() {
			return
		}
	}
	c.t.Fatalf("the work does not end:\n%s%s", c.decision, c.phases())
}
