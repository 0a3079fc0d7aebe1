package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// Kind is a kind of gate: a requirement that a release must meet to enter a channel.
type Kind string

// The kinds of gate. Each is a row of the table below, with a file of its own if it needs more than a few lines.
const (
	KindInProgress    Kind = "in-progress"            // another release or apply is in progress in the channel
	KindFloor         Kind = entities.NoRollbackBelow // a rollback may not go below the version that the configuration names
	KindReading       Kind = "reading"                // the current state must be known (D17)
	KindRollback      Kind = "rollback"               // a rollback is in progress, or failed
	KindPin           Kind = "pin"                    // the channel is pinned (A17)
	KindHeld          Kind = "held"                   // the channel is kept for the release before (B3)
	KindChannelStable Kind = "channel-stable"         // the release succeeded in other channels (A8)
	KindUnknown       Kind = "unknown"                // a condition of a kind that this version does not know
	KindUpstream      Kind = "upstream"               // a channel further upstream prevents it
	KindCheck         Kind = "check"                  // a protection, or a condition on another service (A19–A20, D20–D22)
	KindExtension     Kind = "extension"              // a command ran (A21)
	KindApproval      Kind = "approval"               // people approved it, or its apply (A14, C10)
	KindPaused        Kind = "paused"                 // the instances left to move are paused
	KindDown          Kind = "down"                   // a person deleted the channel
	KindDrain         Kind = "drain"                  // the workflow is about to continue as new
	KindRender        Kind = "render"                 // the result of a config release is being rendered
	KindQuery         Kind = "asked"                  // an exit-code runtime is queried before (C7)
	KindPreflight     Kind = "preflight"              // all external conditions are evaluated again (A10)
	KindRollout       Kind = "rollout"                // the policy of the channel lets no instance move now (D24)
	KindLease         Kind = "lease"                  // a slot among the concurrent applies of the runtime (C10)
)

// gate is a row of the table: how a kind of gate is evaluated, and what a person can do about it.
type gate struct {
	kind Kind
	// id of its judgements: "approval/NAME", "NAME" as declared, or the kind alone.
	id string
	// at are the stages at which it is evaluated, in the order of stages; none: immediately before the target is set.
	at []entities.Stage
	// judge adds the judgements of a stage.
	judge func(p *admission, at entities.Stage)
	// bypassable: a person can let one release pass it (A15). No bypass ends work in progress, holds a lease, unpins, or undoes a
	// rollback.
	bypassable bool
	// sticky: once passed it stays passed, so no preflight evaluates it again.
	sticky bool
	// repairs: a repair of drift waits for it too, if it is declared so.
	repairs bool
	// steps: a release that goes through a channel in steps is evaluated again before each step.
	steps bool
	// plain: its reason names the subject, so a line about it omits the id.
	plain bool
	// bypassIDs lists the ids of a channel that a release can be let pass; nil: the kind alone, if it applies.
	bypassIDs func(v *view, entered bool) []string
	// unblock is what a person can do about a judgement with the verdict when, or, if that is empty, about any that does not pass; nil:
	// no command helps.
	unblockVerdict entities.Verdict
	unblock        func(v *view, j *Judgement, r *state.Release) string
}

// The stages around those at which a check or an extension can be declared.
const (
	atEntry    entities.Stage = "entry" // before anything that is expensive to evaluate
	atApproval entities.Stage = "approval"
)

// stages in the order in which a release passes them.
var stages = [...]entities.Stage{atEntry, entities.PreApproval, atApproval, entities.PostApproval, entities.Deployment}

var declaredStages = []entities.Stage{entities.PreApproval, entities.PostApproval, entities.Deployment}

// gates is the table. Within a stage its order is the order of evaluation.
var gates = [...]gate{
	{kind: KindInProgress, id: "in-progress", at: []entities.Stage{atEntry}, judge: judgeInProgress, plain: true},
	{kind: KindReading, id: "reading", at: []entities.Stage{atEntry}, judge: judgeReading, bypassable: true, steps: true, plain: true, bypassIDs: readingID},
	{kind: KindRollback, id: "rollback", at: []entities.Stage{atEntry}, judge: judgeRollback, plain: true, unblockVerdict: entities.Fail, unblock: unblockRollback},
	{kind: KindFloor, id: string(KindFloor), at: []entities.Stage{atEntry}, judge: judgeFloor, bypassable: true, plain: true},
	{kind: KindPin, id: "pin", at: []entities.Stage{atEntry}, judge: judgePin, plain: true, unblock: unblockPin},
	{kind: KindHeld, id: "held", at: []entities.Stage{atEntry}, judge: judgeHeld, bypassable: true, plain: true, bypassIDs: heldID},
	{kind: KindChannelStable, id: "channel-stable/CHANNEL", at: []entities.Stage{atEntry}, judge: judgeChannelsStable, bypassable: true, sticky: true, steps: true, plain: true, bypassIDs: conditionIDs(entities.ConditionKind.OnChannels), unblockVerdict: entities.Fail, unblock: unblockRetry},
	{kind: KindUnknown, id: "KIND/NAME", at: []entities.Stage{atEntry}, judge: judgeUnknown, bypassable: true, steps: true, bypassIDs: unknownConditionIDs},
	{kind: KindUpstream, id: "upstream", at: []entities.Stage{atEntry}, judge: judgeUpstream, bypassable: true, sticky: true, steps: true, plain: true, bypassIDs: upstreamID, unblockVerdict: entities.Fail, unblock: unblockRetry},
	{kind: KindCheck, id: "NAME", at: declaredStages, judge: (*admission).checks, bypassable: true, steps: true, repairs: true, bypassIDs: checkIDs, unblockVerdict: entities.Fail, unblock: unblockCheck},
	{kind: KindExtension, id: "extension/NAME", at: declaredStages, judge: (*admission).extensions, bypassable: true, sticky: true, bypassIDs: extensionIDs, unblockVerdict: entities.Fail, unblock: unblockExtension},
	{kind: KindApproval, id: "approval/TOPIC", at: []entities.Stage{atApproval}, judge: judgeApprovals, bypassable: true, sticky: true, bypassIDs: approvalIDs, unblockVerdict: entities.Wait, unblock: unblockApproval},
	{kind: KindPaused, id: "paused", plain: true},
	{kind: KindDown, id: "down", plain: true},
	{kind: KindDrain, id: "drain", plain: true},
	{kind: KindRender, id: "render", plain: true},
	{kind: KindQuery, id: "asked", bypassable: true, plain: true, bypassIDs: queryID},
	{kind: KindPreflight, id: "preflight", plain: true},
	{kind: KindRollout, id: "rollout", plain: true},
	{kind: KindLease, id: "lease", plain: true},
}

// Code distinguishes judgements with equal verdicts. No code parses a reason for that.
type Code string

// The codes of judgements. Most have none.
const (
	CodeNotEvaluated Code = "not-asked" // an earlier gate does not pass, so this one was not evaluated
	CodeBypassed     Code = "bypassed"  // a person let the release pass it
	CodeRejected     Code = "rejected"  // a person rejected the release
	CodeOpen         Code = "open"      // an approval that people are asked for now
)

// Judgement is the verdict on one gate, with its reason and, if known, when it may change.
type Judgement struct {
	Kind    Kind
	ID      string
	Subject string // its subject within the kind: the topic of an approval, the name of an extension
	Verdict entities.Verdict
	Code    Code
	Reason  string // for people
	Since   time.Time
	Next    time.Time // when it may next change without an event
	Unblock string    // what a person can do
	// Errors is the number of consecutive errors of a check. Interval is the base interval of its retries.
	Errors   int
	Interval time.Duration
	// Have are the people who approved. Need is the required number.
	Have []string
	Need int
	// Eligible are the people who may give an open approval; nil: everybody may.
	Eligible *entities.Eligible
	// Awaits are the channels in which the release is still to succeed, in the order of the condition.
	Awaits []string
	// Elsewhere is the channel for which a shared extension ran, if it is another one.
	Elsewhere string
	// Bypassable: a person can let the release pass it. Plain: the reason names the subject.
	Bypassable, Plain bool
}

func (t *tables) gate(kind Kind) *gate {
	if n := slices.IndexFunc(t.gates, func(g gate) bool { return g.kind == kind }); n >= 0 {
		return &t.gates[n]
	}
	return &gate{kind: kind, id: string(kind)}
}

// judgementText formats a judgement, with its id unless the reason names the subject.
func (v *view) judgementText(j Judgement) string {
	if v.gate(j.Kind).plain {
		return j.Reason
	}
	return j.ID + entities.Because(j.Reason)
}

// admission evaluates the gates of one channel for one release.
type admission struct {
	*view
	row              *gate // the current row
	release          *state.Release
	gates            []Judgement
	clear            bool // all judgements so far pass
	arrived          bool // the preconditions hold
	preconditionsMet bool // and it is not paused: expensive gates are evaluated
}

// evaluateGates evaluates all gates that a release must pass before it may enter, in order; filter selects the rows, nil selects all. The
// rest is in enter: a lease, a preflight, and then the target is set. After that come its objects, and the post-deployment window.
func (v *view) evaluateGates(r *state.Release, filter func(*gate) bool) *admission {
	most := len(v.spec.Conditions) + len(v.spec.Checks) + len(v.spec.Extensions)
	p := &admission{view: v, release: r, clear: true, gates: make([]Judgement, 0, most)}
	entry := true
	for _, s := range v.steps {
		if entry && s.stage != atEntry {
			entry, p.arrived, p.preconditionsMet = false, p.clear, p.clear && !v.paused
		}
		if filter == nil || filter(s.gate) {
			p.row = s.gate
			s.gate.judge(p, s.stage)
		}
	}
	return p
}

// add adds a judgement, unless a person lets the release pass it (A15).
func (p *admission) add(j Judgement) {
	g := p.row
	if g == nil || g.kind != j.Kind {
		g = p.gate(j.Kind)
	}
	j.Bypassable, j.Plain = g.bypassable, g.plain
	if b := p.release.BypassOf(p.spec.Name, j.ID); b != nil && g.bypassable {
		j = bypassed(j.Kind, b)
	}
	p.gates = append(p.gates, j)
	p.clear = p.clear && j.Verdict == entities.Pass
	if j.Verdict != entities.Pass && (g.unblockVerdict == "" || g.unblockVerdict == j.Verdict) && j.Unblock == "" && g.unblock != nil {
		last := &p.gates[len(p.gates)-1]
		last.Unblock = g.unblock(p.view, last, p.release)
	}
}

// bypassed is the judgement of a bypassed gate.
func bypassed(kind Kind, b *entities.Bypass) Judgement {
	return Judgement{Kind: kind, ID: b.Condition, Verdict: entities.Pass, Code: CodeBypassed, Reason: b.Text(), Since: b.At, Bypassable: true}
}

// lastPassed is when the last of the judgements so far passed: from then on the release waits for the next gate.
func (p *admission) lastPassed() time.Time {
	last := p.release.At
	for _, j := range p.gates {
		if j.Verdict == entities.Pass && j.Since.After(last) {
			last = j.Since
		}
	}
	return last
}

// command is a command line about a release.
func (v *view) command(verb string, r *state.Release, more ...string) string {
	text := fmt.Sprintf("converge %s %s/%s %s", verb, v.s.Application, v.s.Title(), r.FullVersion)
	return strings.Join(append([]string{text}, more...), " ")
}

// Bypassable lists the ids that a release can be let pass in a channel: all of them before it enters, afterwards those that can still
// fail it.
func Bypassable(s *state.State, channel string, r *state.Release, now time.Time) []string {
	v := viewOf(s, channel, r, now)
	phase := r.Phases[channel].Phase
	betweenSteps := phase == maestro.InProgress && v.isRollout(r)
	var out []string
	for n := range v.tables.gates {
		if g := &v.tables.gates[n]; g.bypassable && g.bypassIDs != nil {
			out = append(out, g.bypassIDs(v, phase != maestro.Pending && !(betweenSteps && g.steps))...)
		}
	}
	if s.HeldByFloor(channel, r) {
		out = append(out, entities.NoRollbackBelow)
	}
	return out
}

// BypassableKind reports whether an id belongs to a bypassable kind of gate, declared or not.
func BypassableKind(id string) bool {
	for n := range gates {
		if gates[n].id == id {
			return gates[n].bypassable
		}
	}
	return true
}

// Gate is the judgement of a gate of a channel on a release now, even if another release is next in line there.
func Gate(s *state.State, channel, id string, r *state.Release, now time.Time) (Judgement, bool) {
	c := ChannelDecision{Gates: viewOf(s, channel, r, now).evaluateGates(r, nil).gates}
	return c.Gate(id)
}

// viewOf is the view of one release in one channel, even if another release is next in line there. The work that it decides is not
// started.
func viewOf(s *state.State, channel string, r *state.Release, now time.Time) *view {
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		if c.Name != channel {
			continue
		}
		v := &view{
			tables: standard, s: s, d: &Decision{}, spec: c, now: now, mode: Mode{NoNewWork: true},
			slot: noSlot, healths: new(healthCache), out: &ChannelDecision{},
		}
		if slots := standard.slots(s, now, v.healths, v.mode); slots != nil {
			v.slot = slots[n]
		}
		v.gather()
		if next := v.release(v.slot.Next); next != nil && next != r {
			v.slot.Stuck = ""
		}
		if r != v.release(v.slot.Holder) {
			v.slot.HolderStuck = ""
		}
		return v
	}
	return nil
}

// Bypass lets a release pass a condition of a channel (A15). The release must need the condition there. A condition that passes already
// is not bypassed, and the answer states that. It is in this package because only the table of gates knows the conditions of a channel.
// Like every verb it returns its effect and changes nothing itself.
func Bypass(s *state.State, version string, b entities.Bypass) (state.Effect, error) {
	r, err := s.FindOpen(version, b.Channel)
	if err != nil {
		return nil, err
	}
	if err := s.CheckBypass(r, b); err != nil {
		return nil, err
	}
	if reason := whyNotBypassable(s, b); reason != nil {
		return nil, reason
	}
	if known := Bypassable(s, b.Channel, r, b.At); !slices.Contains(known, b.Condition) {
		if !BypassableKind(b.Condition) {
			return nil, fmt.Errorf("%s cannot be bypassed%s", b.Condition, entities.Expected(known))
		}
		return nil, fmt.Errorf("%s has no condition %q%s", b.Channel, b.Condition, entities.Expected(known))
	}
	if old := r.BypassOf(b.Channel, b.Condition); old != nil {
		return textEffect("%s of %s is already %s", b.Condition, b.Channel, old.Text()), nil
	}
	if r.Phases[b.Channel].Phase == maestro.Pending {
		if j, ok := Gate(s, b.Channel, b.Condition, r, b.At); ok && j.Verdict == entities.Pass {
			return textEffect("%s passes already%s; nothing is bypassed", b.Condition, entities.Because(j.Reason)), nil
		}
	}
	return s.Bypass(r, b), nil
}

// whyNotBypassable returns an error for a bypass of a pause or a pin, with the command that ends it.
func whyNotBypassable(s *state.State, b entities.Bypass) error {
	switch b.Condition {
	case "pause", string(KindPaused):
		if p, ok := pauseOf(s, b.Channel); ok {
			return fmt.Errorf("a pause cannot be bypassed; end it: %s", s.ResumeCommand(p))
		}
		return fmt.Errorf("%s is not paused", b.Channel)
	case string(KindPin):
		return fmt.Errorf("a pin cannot be bypassed; end it: converge channel unpin %s/%s %s", s.Application, s.Title(), b.Channel)
	}
	return nil
}

// pauseOf is the pause that holds a channel, or one of its instances.
func pauseOf(s *state.State, channel string) (entities.Pause, bool) {
	c, _ := s.Spec.Channel(channel)
	for _, i := range c.Instances {
		if p, ok := s.PauseOf(c.ID(i)); ok {
			return p, true
		}
	}
	return s.PauseIn(channel)
}

// textEffect is an effect that changes nothing and returns a text.
func textEffect(format string, args ...any) state.Effect {
	return func() string { return fmt.Sprintf(format, args...) }
}
