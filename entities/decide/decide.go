package decide

import (
	"slices"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// Mode restricts what a decision may start.
type Mode struct {
	// NoNewWork: start no new work; running work is left to end (before continue-as-new).
	NoNewWork bool
	// Rollbacks start even with NoNewWork: the running work may take long to end.
	Rollbacks bool
	// UnreadRules: a newer configuration is known, and could not be read yet. No release moves an instance by the older one, because the newer
	// one may deny that. Rollbacks, repairs and retries continue.
	UnreadRules bool
}

// blocks reports whether work must not start. rollback: it is part of a rollback.
func (m Mode) blocks(rollback bool) bool { return m.NoNewWork && !(m.Rollbacks && rollback) }

// Decide is the convergence decision. One pass evaluates each channel once. A change may enable another, so entities/loop repeats it
// until nothing changes.
func Decide(s *state.State, now time.Time, mode Mode) *Decision {
	return standard.decide(s, now, mode)
}

// tables are the tables that a decision uses: the kinds of gate, and the kinds of entity.
type tables struct {
	gates    []gate
	entities []entityKind
	steps    []step // the gates in the order in which a release passes them
}

// step is a gate at a stage.
type step struct {
	stage entities.Stage
	gate  *gate
}

func newTables(gates []gate, kinds []entityKind) *tables {
	t := &tables{gates: gates, entities: kinds}
	for _, stage := range stages {
		for n := range gates {
			if slices.Contains(gates[n].at, stage) {
				t.steps = append(t.steps, step{stage, &gates[n]})
			}
		}
	}
	return t
}

func (t *tables) decide(s *state.State, now time.Time, mode Mode) *Decision {
	both := new(struct { // one allocation: this runs for every service at every event
		d Decision
		v view // reused for all channels: nothing keeps it
		// Room for one instance; most channels have only one.
		insts   [1]instance
		healths healthCache
	})
	d, v := &both.d, &both.v
	v.insts = both.insts[:0]
	if s.Spec == nil {
		return d
	}
	d.Channels = make([]ChannelDecision, len(s.Spec.Channels))
	slots, stored := t.slots(s, now, &both.healths, mode), 0
	for n := range s.Spec.Channels {
		*v = view{
			tables: t, s: s, d: d, spec: &s.Spec.Channels[n], now: now, mode: mode,
			insts: v.insts[:0], healths: &both.healths, out: &d.Channels[n],
		}
		v.slot = noSlot
		if slots != nil {
			v.slot = slots[n]
		}
		stored += v.gather()
		v.keepEvaluating()
		v.wakeForDurations()
		v.decide()
	}
	if stored < len(s.Instances) {
		d.decideOrphans(s, now, mode)
	}
	d.endExtensions(s)
	return d
}

// view is the decision about one channel at one moment.
type view struct {
	*tables
	s                 *state.State
	d                 *Decision
	spec              *entities.ChannelSpec
	channel           *state.Channel // the result of channelState, cached
	insts             []instance     // the declared ones
	drained           []instance     // the declared ones on drained runtimes
	healths           *healthCache   // of all channels
	slot              maestro.Slot
	now               time.Time
	mode              Mode
	paused            bool       // as a whole: no instance may move
	pin               *state.Pin // of the channel, or nil
	out               *ChannelDecision
	facts             entities.Facts // of the gates; those of the instances are rolled up into them
	changed           bool           // this pass changes the channel: everything that follows is for the next pass
	soakTexts         []string       // progress of the post-deployment window, for people
	soakReported      bool           // soaking was added to the reasons
	waitsExplained    int            // number of instances for which the reason to wait was given
	extraReasons      []string       // extensions that hold nothing and failed, for people
	rolloutActive     bool           // the release in progress goes in steps and can continue
	rolloutBegunCache *bool          // cached result of rolloutBegun
	stepGates         []Judgement    // of the gates that are evaluated again before a due step
	yielding          bool           // the release in progress starts nothing more: the one that it yields to is about to enter
}

// instance is one instance of the channel at the moment of the decision.
type instance struct {
	*state.Instance // its stored state; never nil
	entities.Entity
	runtime             *entities.RuntimeSpec
	current             entities.Current
	paused              bool
	rollbackWhilePaused bool // it is paused, but a person requested a rollback during the pause
	notApplied          bool // nothing is applied: the channel is report-only, or was when the target was set (A25)
	facts               entities.Facts
	// suspended: the rollout waits at one of its own steps, for a person or until a future time.
	suspended      bool
	drainProgress  string // progress of leaving a drained runtime
	needsLease     bool   // an apply starts now, or would with a lease
	awaitsApproval bool   // an apply of the current target waits for an approval
	startsApply    bool   // an apply starts
	unread         bool   // a reading was requested when the progress deadline passed, and does not come
}

// channelState is the stored state of the channel: never nil, and read at the first use. A steady channel does not need it.
func (v *view) channelState() *state.Channel {
	if v.channel == nil {
		if v.channel = v.s.Channels[v.spec.Name]; v.channel == nil {
			v.channel = &state.Channel{}
		}
	}
	return v.channel
}

// gather collects the pin, the pause and the declared instances of the channel, and counts the instances that have stored state.
func (v *view) gather() (stored int) {
	v.out.Channel = v.spec.Name
	if pin, ok := v.s.PinOf(v.spec.Name); ok {
		pinned := pin // only a pinned channel allocates on the heap
		v.pin = &pinned
	}
	if len(v.spec.Instances) == 0 {
		_, v.paused = v.s.PauseIn(v.spec.Name)
		return 0
	}
	v.paused = true
	for n := range v.spec.Instances {
		spec := &v.spec.Instances[n]
		id := v.spec.ID(*spec)
		v.insts = append(v.insts, instance{})
		i := &v.insts[len(v.insts)-1]
		if i.Instance = v.s.Instances[id]; i.Instance == nil {
			i.Instance = &state.Instance{ID: id, Runtime: spec.Runtime}
		} else {
			stored++
		}
		i.runtime = v.s.RuntimeNamed(i.Runtime) // the runtime where it is now, even if another one is declared
		i.Entity = v.entity(i.runtime.Kind, i.Instance)
		i.current = i.Fetch(i.Delivery.Target)
		i.suspended = i.current.Suspended != "" && (i.current.Until.IsZero() || v.now.Before(i.current.Until))
		if _, i.paused = v.s.PauseOf(id); i.paused && v.s.DrainOf(i.Runtime) != nil {
			v.drained = append(v.drained, *i)
			v.insts = v.insts[:len(v.insts)-1]
			continue
		}
		i.rollbackWhilePaused = i.paused && i.RollingBack() && i.Delivery.Rollback.WhilePaused && i.Delivery.Failure == "" && !v.s.HasWiderPause(id)
		i.notApplied = v.isReportOnly() || i.Delivery.ReportedOnly
		v.paused = v.paused && i.paused
	}
	return stored
}

func (v *view) decide() {
	if v.decideDown() || v.decideAllDrained() {
		return
	}
	v.skipOvertaken()
	v.restoreAfterDrain()
	v.resume()
	v.updateClocks()
	v.moveToPin()
	v.judgeTargets()
	v.admitNext()
	v.targetRemaining()
	v.endCancelled()
	for n := range v.insts {
		v.startApply(&v.insts[n])
	}
	v.withdrawApprovalRequests()
	v.returnLeases()
	v.removeLeftovers()
	v.drainInstances()
	v.runFollowUps()
	v.conclude()
	v.d.wakeBy(v.out.Due)
}

// change records a change of the channel. Everything that follows is for the next pass.
func (v *view) change(c state.Change) {
	v.addChange(c)
	v.changed = true
}

// addChange records a change that does not end this pass.
func (v *view) addChange(c state.Change) {
	c.Channel = v.spec.Name
	v.d.Changes = append(v.d.Changes, c)
}

func (v *view) due(t time.Time) {
	if v.out.Due.IsZero() || t.Before(v.out.Due) {
		v.out.Due = t
	}
}

func (v *view) release(index int) *state.Release {
	if index == maestro.None {
		return nil
	}
	return v.s.Releases[index]
}

// fleet reports whether the channel has several instances. Each is then shown by its name.
func (v *view) fleet() bool { return len(v.insts)+len(v.drained) > 1 }

// skipOvertaken ends pending releases that are older than the newest one that entered here.
func (v *view) skipOvertaken() {
	for _, n := range v.slot.Skips {
		v.addChange(state.Change{Kind: state.ChangeSkip, Release: v.release(n.Release).ID, Cause: supersededBy(v.release(n.By))})
	}
}

func supersededBy(newer *state.Release) string { return "superseded by " + newer.FullVersion }

// updateClocks stops the progress deadlines of instances whose deadline is suspended, and restarts them (A23).
func (v *view) updateClocks() {
	stop, start := state.Change{Kind: state.ChangeStopClock}, state.Change{Kind: state.ChangeStartClock}
	for n := range v.insts {
		i := &v.insts[n]
		v.wakeAfterStep(i)
		switch {
		case i.deadlineRuns() && i.deadlineSuspended():
			stop.Instances = append(stop.Instances, i.ID)
		case !i.Delivery.StoppedAt.IsZero() && !i.deadlineSuspended():
			start.Instances = append(start.Instances, i.ID)
		}
	}
	if v.slot.Holder != maestro.None && !v.channelState().StableSince.IsZero() {
		stopped := !v.channelState().StoppedAt.IsZero()
		stop.Window, start.Window = v.paused && !stopped, !v.paused && stopped
	}
	if len(stop.Instances) > 0 || stop.Window {
		v.addChange(stop)
	}
	if len(start.Instances) > 0 || start.Window {
		v.change(start) // the clock is wrong until then
	}
}

// wakeAfterStep schedules a decision for the end of the step at which the rollout of an instance waits.
func (v *view) wakeAfterStep(i *instance) {
	if i.suspended && !i.current.Until.IsZero() && !i.Delivery.Converged {
		v.due(i.current.Until)
	}
}

// deadlineRuns reports whether a target is in progress and its clock is not stopped.
func (i *instance) deadlineRuns() bool {
	d := &i.Delivery
	return d.Target != nil && !d.Converged && d.Failure == "" && !d.Apply.FirstStarted.IsZero() && d.StoppedAt.IsZero()
}

// deadlineSuspended reports whether the progress deadline is suspended: because of a pause, because nothing is applied anyway, because the
// next attempt waits for a lease or an approval (A23), because the rollout waits at one of its own steps, or because nothing can be observed.
func (i *instance) deadlineSuspended() bool {
	l := i.Delivery.Lease
	return i.paused && !i.rollbackWhilePaused || i.notApplied || i.suspended || i.unanswered() || l != nil && l.GrantedAt.IsZero() || !i.Approval.WaitingSince.IsZero()
}

// unknown reports whether the state of the instance is not known although it could be.
func (i *instance) unknown() bool {
	return i.unread || !i.Delivery.Apply.NoWorkerSince.IsZero() ||
		observable(i.runtime, i.Instance) && (i.Observed.Reading.Err != nil || i.Observed.Digest == "")
}

// conclude computes the status from the facts, and the reasons.
func (v *view) conclude() {
	var one [1]entities.Facts
	all := one[:0]
	if v.fleet() {
		all = make([]entities.Facts, 0, len(v.insts)+len(v.drained))
	}
	for n := range v.insts {
		all = append(all, v.insts[n].computeFacts())
	}
	for n := range v.drained {
		all = append(all, v.drained[n].facts)
	}
	f := v.facts.RollUp(all)
	f.Converging = f.Converging || v.rolloutActive || len(v.soakTexts) > 0
	f.Waits = slices.ContainsFunc(all, func(i entities.Facts) bool { return i.Waits })
	v.out.Health = v.health(f)
	f.Paused = v.paused && !slices.ContainsFunc(v.insts, func(i instance) bool { return i.rollbackWhilePaused })
	v.showStepGates()
	for n := range v.out.Gates {
		j := &v.out.Gates[n]
		f.Blocked = f.Blocked || j.Verdict == entities.Fail
		f.Waits = f.Waits || j.Verdict != entities.Pass
	}
	v.out.Status = entities.StatusOf(f)
	if v.fleet() && v.slot.Holder != maestro.None && (v.out.Status == entities.StatusConverged || v.out.Status == entities.StatusProgressing) {
		v.out.Status = v.unfinishedStatus(v.release(v.slot.Holder))
	}
	if v.fleet() {
		v.concludeFleet(all)
	} else {
		v.concludeOnly()
	}
	v.explain()
}

// unfinishedStatus is the status of a healthy fleet in which the release in progress has not reached all instances: a pause holds it, or it
// is about to move.
func (v *view) unfinishedStatus(r *state.Release) entities.Status {
	for n := range v.insts {
		if i := &v.insts[n]; i.paused || v.destinationPause(i, r) != "" {
			return entities.StatusPaused
		}
	}
	v.reason(ReasonProgress, r.FullVersion+" is about to continue")
	return entities.StatusConverging
}

func (i *instance) computeFacts() entities.Facts {
	d, f := &i.Delivery, &i.facts
	f.Paused, f.Failed = i.paused && !i.rollbackWhilePaused, d.Failure != ""
	if b := d.Rollback; b != nil {
		f.RollbackFailed = !b.Failed.IsZero()
		f.RolledBack = d.Converged
		f.RollingBack = !f.RollbackFailed && !f.RolledBack && !d.AppliesAgain()
	}
	f.Unknown = i.unknown()
	moving := d.Target != nil && !d.Converged && !i.onlyReported() && (!i.applyCancelled() || d.Apply.Running)
	f.Cancelled = d.Cancelled != ""
	f.ApplyNeedsApproval = moving && !i.Approval.WaitingSince.IsZero()
	f.Converging = moving && !f.ApplyNeedsApproval || i.Drained && d.Target != nil // it is being restored
	f.Suspended = moving && i.suspended && i.current.Until.IsZero()
	f.Waits = i.onlyReported()
	i.markDegraded()
	return *f
}

// markDegraded marks a converged instance that is not stable any more, or that flaps: progressing, or degraded.
func (i *instance) markDegraded() {
	if i.current.Known && i.Flapping() {
		i.facts.Degraded = true
		return
	}
	if !i.Delivery.Converged || !i.current.Known || i.current.Stable {
		return
	}
	i.facts.Progressing = i.current.Progressing()
	i.facts.Degraded = !i.facts.Progressing
}

// concludeOnly sets the current version from the only instance, if there is one.
func (v *view) concludeOnly() {
	for n := range v.insts {
		v.out.Current = v.insts[n].current
	}
	for n := range v.drained {
		v.out.Current = v.drained[n].current
	}
}

// concludeFleet sets the status of each instance, and rolls up the current versions.
func (v *view) concludeFleet(facts []entities.Facts) {
	insts := slices.Concat(v.insts, v.drained)
	v.out.Instances = make([]InstanceDecision, len(insts))
	parts := make([]entities.Current, len(insts))
	for n := range insts {
		i := &insts[n]
		parts[n] = i.current
		v.out.Instances[n] = InstanceDecision{ID: i.ID, Status: entities.StatusOf(facts[n]), Current: i.current, Drained: i.drainProgress}
	}
	v.out.Current = entities.RollUp(parts)
}
