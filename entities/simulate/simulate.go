// Package simulate runs a release in virtual time, with the same decision code as the Service workflow. It reports when each channel
// would move and what holds it until then. A week of soak takes milliseconds. It is pure: the caller supplies the results of checks.
package simulate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/chart"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/loop"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// Input describes a simulation.
type Input struct {
	// State is the service with its spec. It is not changed.
	State *state.State
	// Version is released at At. If Aspect is set, values of that aspect are released instead. The values themselves do not matter;
	// Version then holds the name of the aspect, for display.
	Version, Aspect string
	At              time.Time
	// Judge returns the verdict of a check at a moment of virtual time, and when it may next change.
	Judge func(e entities.Evaluation, at time.Time) entities.CheckReading
	// Apply is the time from the start of an apply to stable objects. Extension is the duration of an extension. Zero is one minute.
	Apply, Extension time.Duration
	// Approve: each required approval is given at once. Otherwise the simulation ends where only a person can continue.
	Approve bool
	// Until bounds the simulation, from At. Zero is 90 days.
	Until time.Duration
	// Stop ends the simulation where it is, as if it had reached its bound; nil: never. Rules that change at every minute take long.
	Stop func() bool
}

// Kind is the activity of a channel during a span of time.
type Kind = chart.Kind

// The kinds of span.
const (
	Waits   = chart.Waits
	Deploys = chart.Deploys
	Soaks   = chart.Soaks
	Runs    = chart.Runs
	Fails   = chart.Fails
)

// Span is one activity of a channel between two moments. To is zero if it has no end.
type Span = chart.Span

// Channel is the progress of a release in one channel. A time is zero if the event does not happen.
type Channel struct {
	Name      string    `json:"name"`
	Entered   time.Time `json:"entered,omitzero"`
	Succeeded time.Time `json:"succeeded,omitzero"`
	Spans     []Span    `json:"spans"`
}

// Timeline is the result of a simulation.
type Timeline struct {
	Application string    `json:"application"`
	Service     string    `json:"service"`
	Version     string    `json:"version"`
	From        time.Time `json:"from"`
	To          time.Time `json:"to"` // when nothing changes any more, or the simulation reached its bound
	CutOff      bool      `json:"cutOff,omitempty"`
	Channels    []Channel `json:"channels"`
}

const (
	defaultWork   = time.Minute
	defaultUntil  = 90 * 24 * time.Hour
	maxIterations = 100_000 // of a simulation: a bound for checks that claim to change at every moment
)

// Run simulates the release. It returns the same errors as the workflow.
func Run(in Input) (*Timeline, error) {
	s, err := clone(in.State)
	if err != nil {
		return nil, err
	}
	if err := check(s, &in); err != nil {
		return nil, err
	}
	for _, c := range s.Spec.Channels { // a repeated extension holds nothing
		for n := range c.Extensions {
			c.Extensions[n].Every = 0
		}
	}
	p := &simulation{Input: in, s: s, now: in.At, end: in.At.Add(durationOr(in.Until, defaultUntil))}
	p.Apply, p.Extension = durationOr(in.Apply, defaultWork), durationOr(in.Extension, defaultWork)
	p.release = p.open()
	p.timeline = &Timeline{Application: s.Application, Service: s.Title(), Version: in.Version, From: in.At}
	for _, c := range s.Spec.Channels {
		if p.release.Phases[c.Name] != nil {
			p.timeline.Channels = append(p.timeline.Channels, Channel{Name: c.Name})
		}
	}
	p.run()
	return p.timeline, nil
}

// check returns an error if the release is invalid, and sets Version to the aspect's name for values of an aspect.
func check(s *state.State, in *Input) error {
	a := s.Spec.Aspect(in.Aspect)
	if a == nil && in.Aspect == "" {
		return s.CheckRelease(in.Version, nil, nil)
	}
	in.Version = in.Aspect
	if a == nil {
		return s.CheckAspect(in.Aspect, nil, nil)
	}
	return s.CheckAspect(in.Aspect, a.Parameters, nil)
}

func durationOr(d, fallback time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return fallback
}

func clone(s *state.State) (*state.State, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("copy the state: %w", err)
	}
	out := state.New(s.Application, s.Service)
	if err := json.Unmarshal(raw, out); err != nil {
		return nil, fmt.Errorf("copy the state: %w", err)
	}
	return out, nil
}

// simulation is a service in virtual time.
type simulation struct {
	Input
	s        *state.State
	release  *state.Release
	now, end time.Time
	events   []event // running work that will end
	decision *decide.Decision
	timeline *Timeline
}

// event is work that ends at a time.
type event struct {
	at     time.Time
	finish func()
	apply  entities.InstanceID // the instance, for an apply
}

// open opens the release with simulated payloads, as if it were rendered.
func (p *simulation) open() *state.Release {
	payloads, version := map[entities.InstanceID]string{}, p.Version
	for _, id := range p.s.Spec.IDs() {
		payloads[id] = "simulated/" + p.Version + "/" + id.Key()
	}
	if p.Aspect != "" {
		version = entities.ValuesName(p.Aspect, nil, nil)
	}
	r := p.s.OpenRelease(state.NewRelease{
		Version: version, FullVersion: version, Aspect: p.Aspect, Incarnation: p.s.Spec.Incarnation, Hash: p.s.Spec.Hash,
		Payloads: payloads, By: "simulation",
	}, p.now)
	p.endRunningWork()
	return r
}

// endRunningWork marks the running work of the real service as done. The simulation starts with nothing in flight that it could not end.
func (p *simulation) endRunningWork() {
	for _, id := range entities.SortedIDs(p.s.Instances) {
		i := p.s.Instances[id]
		i.Observed.Query, i.Delivery.Lease = nil, nil
		if i.Delivery.Apply.Running && i.Delivery.Target != nil {
			p.applied(id, *i.Delivery.Target)
		}
	}
	for _, c := range p.s.Spec.Channels {
		p.s.Channel(c.Name).Preflight = nil
	}
	for _, id := range p.s.Spec.IDs() {
		if o := &p.s.Instance(id).Observed; o.Digest == "" && o.Reading.Err == nil { // no reading yet: there are no objects
			p.s.RecordReading(id, "", entities.Reading{At: p.now}, true, p.now)
		}
	}
	for _, r := range p.s.Releases {
		for _, key := range entities.SortedKeys(r.Extensions) {
			r.Extensions[key].Running = false
		}
	}
}

func (p *simulation) run() {
	for range maxIterations {
		p.settle()
		next, ok := p.next()
		switch {
		case p.stopped():
			p.finish(true)
			return
		case !ok:
			p.finish(false)
			return
		case next.After(p.end):
			p.now = p.end
			p.finish(true)
			return
		}
		p.now = next
	}
	p.finish(true)
}

// recall restores an offloaded release with simulated payloads. The real ones are in the store.
func (p *simulation) recall(r *state.Release) {
	payloads := map[entities.InstanceID]string{}
	for _, id := range entities.SortedIDs(r.Payloads) {
		payloads[id] = "simulated " + r.FullVersion
	}
	_ = r.RestoreDigests(payloads) // no payload is missing
}

// settle decides, judges and answers until nothing more happens at this moment. Then it records the activity of each channel.
func (p *simulation) settle() {
	for range maxIterations {
		p.endDue()
		p.decision = loop.Settle(p.s, p.now, decide.Mode{})
		busy := p.begin(p.decision)
		if !p.judge() && !p.approve() && !busy || p.stopped() {
			break
		}
	}
	p.recordSpans()
}

func (p *simulation) stopped() bool { return p.Stop != nil && p.Stop() }

// endDue ends due events in order of their time.
func (p *simulation) endDue() {
	slices.SortStableFunc(p.events, func(a, b event) int { return a.at.Compare(b.at) })
	for len(p.events) > 0 && !p.events[0].at.After(p.now) {
		e := p.events[0]
		p.events = p.events[1:]
		e.finish()
	}
}

// begin starts the work of a decision. It completes work that takes no time, and reports whether there was any.
func (p *simulation) begin(d *decide.Decision) bool {
	for _, op := range d.Applies {
		p.events = append(p.events, event{p.now.Add(p.Apply), func() { p.applied(op.Instance, op.Target) }, op.Instance})
	}
	for _, op := range d.Ends {
		if r := p.s.ReleaseByID(op.Release); r != nil {
			r.Extensions[op.Extension].Running = false
			continue
		}
		p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.apply == op.Instance })
		p.s.ApplyLost(op.Instance, *p.s.Instances[op.Instance].Delivery.Target, "cancelled", p.now, 0)
	}
	for _, op := range d.Extensions {
		p.events = append(p.events, event{at: p.now.Add(p.Extension), finish: func() { p.s.ExtensionEnded(op, "", "", "", p.now) }})
	}
	for _, op := range d.Queries {
		p.s.RecordQueryAnswer(op.Instance, op.Target, entities.Reading{At: p.now, Objects: []entities.Object{{Name: p.s.Service, Type: "simulated", Status: entities.ObjectPending}}})
	}
	for _, op := range d.Renders {
		p.s.RecordRender(op.Release, op.Instance, entities.Target{FullVersion: op.Present, Payload: "simulated"})
		if op.FullVersion != "" {
			p.s.RecordMergedRender(op, entities.Target{FullVersion: op.FullVersion, Payload: "simulated, kept"})
		}
	}
	for _, op := range d.Recalls {
		p.recall(p.s.ReleaseByID(op.Release))
	}
	for _, op := range d.Preflights {
		readings := map[string]entities.CheckReading{}
		for _, e := range op.Checks {
			readings[e.Key()] = p.reading(e)
		}
		p.s.RecordPreflight(op, readings, p.now)
	}
	granted := 0
	for _, op := range d.Leases {
		if !op.Return && p.s.LeaseGranted(op.ID, p.now) {
			granted++
		}
	}
	return len(d.Ends)+len(d.Queries)+len(d.Renders)+len(d.Recalls)+len(d.Preflights)+granted > 0
}

// applied completes an apply: the runtime reports the target as stable.
func (p *simulation) applied(id entities.InstanceID, target entities.Target) {
	p.s.ApplyEnded(id, target, "", false, p.now)
	p.s.RecordReading(id, target.FullVersion, entities.Reading{At: p.now, Objects: []entities.Object{{
		Name: p.s.Service, Type: "simulated", Status: entities.ObjectSucceeded,
		Versions: []entities.ObjectVersion{{Version: target.FullVersion, Active: true}},
	}}}, true, p.now)
}

func (p *simulation) reading(e entities.Evaluation) entities.CheckReading {
	r := p.Judge(e, p.now)
	r.At = p.now
	return r
}

// judge evaluates the needed checks, and reports whether any result changed.
func (p *simulation) judge() bool {
	changed := false
	for _, e := range p.decision.Evaluations(p.s) {
		r := p.reading(e)
		if r.Digest() != e.KnownDigest {
			p.s.RecordCheck(e, r, p.now)
			changed = true
		}
	}
	return changed
}

// approve gives the approvals that are required now, if Approve is set.
func (p *simulation) approve() bool {
	if !p.Approve {
		return false
	}
	given := false
	for _, c := range p.s.Spec.Channels {
		d, ok := p.channelDecision(c.Name)
		if !ok || d.Status != entities.StatusManualApproval {
			continue
		}
		for _, g := range d.Gates {
			if g.Kind == decide.KindApproval && g.Verdict == entities.Wait && p.addApproval(c, g.Subject, d.Next) {
				given = true
			}
		}
	}
	return given
}

// addApproval adds the approval of one more person.
func (p *simulation) addApproval(c entities.ChannelSpec, topic string, r *state.Release) bool {
	if r == nil {
		return false
	}
	who := entities.Who{Name: fmt.Sprintf("person %d", len(r.Approvals)+1)}
	for _, condition := range c.Conditions {
		if condition.Topic != topic {
			continue
		}
		for _, approver := range condition.Approvers {
			if group, ok := strings.CutPrefix(approver, "group:"); ok {
				who.Groups = append(who.Groups, group)
			} else if !slices.ContainsFunc(r.Approvals, func(a entities.Approval) bool { return a.Who.Name == approver && a.Topic == topic }) {
				who.Name = approver
			}
		}
	}
	effect, err := p.s.Approve(r.FullVersion, entities.Approval{Topic: topic, Who: who, At: p.now})
	if err != nil {
		return false
	}
	effect()
	return true
}

func (p *simulation) channelDecision(name string) (decide.ChannelDecision, bool) {
	if n := slices.IndexFunc(p.decision.Channels, func(d decide.ChannelDecision) bool { return d.Channel == name }); n >= 0 {
		return p.decision.Channels[n], true
	}
	return decide.ChannelDecision{}, false
}

// next is the next moment at which anything may happen; false: never.
func (p *simulation) next() (time.Time, bool) {
	var next time.Time
	consider := func(t time.Time) {
		if t.After(p.now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if p.ended() {
		return next, false
	}
	consider(p.decision.Wake)
	for _, e := range p.events {
		consider(e.at)
	}
	for _, e := range p.decision.Evaluations(p.s) {
		consider(p.reading(e).Next)
	}
	return next, !next.IsZero()
}

// ended reports whether the release has ended in every channel.
func (p *simulation) ended() bool {
	r := p.s.ReleaseByID(p.release.ID)
	return r == nil || r.Over()
}

// phase is the phase of the release in a channel.
func (p *simulation) phase(channel string) maestro.Phase {
	if r := p.s.ReleaseByID(p.release.ID); r != nil && r.Phases[channel] != nil {
		return r.Phases[channel].Phase
	}
	return p.release.Phases[channel].Phase
}
