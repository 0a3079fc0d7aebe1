package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// Decision is what follows from a state at a moment: changes to the state itself, work to start,
// the status of each channel, and when to decide again. It is a value: deciding changes nothing.
type Decision struct {
	Changes []state.Change
	state.Work
	Channels []ChannelDecision // in the spec's order, then orphans by name
	// Wake is when something may be due by itself; zero when only an event can change anything.
	Wake time.Time

	leases int64 // asked for by this decision
}

// ChannelDecision is the status of one channel and all that `explain` says of it.
type ChannelDecision struct {
	Channel   string
	Status    entities.Status
	Health    entities.Status    // the status of what is there alone (Facts.Health)
	Current   entities.Current   // of all its instances
	Instances []InstanceDecision // where there are several
	Step      string             // how far the release in progress is, where it goes in steps
	Next      *state.Release     // the release next in line, or nil
	Held      *state.Release     // the release in progress, where gates hold its next step; or nil
	Gates     []Judgement        // what Next passes or waits for, and then what Held does
	Reasons   []Reason           // why the status is not CONVERGED
	Due       time.Time          // when something is due here by itself
	Wanted    *state.Wanted      // what its gates want to be evaluated; nil: nothing
	Drained   string             // of its only instance: how far it is with leaving its runtime, which is drained
	Left      []LeftBehind       // on runtimes that its instances are not on any more
}

// InstanceDecision is the status of one instance of several.
type InstanceDecision struct {
	ID      entities.InstanceID
	Status  entities.Status
	Current entities.Current
	Drained string // how far it is with leaving its runtime, which is drained; else ""
}

// LeftBehind is what an instance has left on a runtime that it is not on any more, and what becomes of it.
type LeftBehind struct {
	ID   entities.InstanceID
	Left *state.Left
	Text string
}

// Reason is one line of why a status is what it is. The text is for people; what kind of line it is says Code.
type Reason struct {
	Code ReasonCode
	Text string
}

// ReasonCode is a kind of reason.
type ReasonCode string

// The kinds of reason.
const (
	ReasonGate     ReasonCode = "gate"     // what a gate says, which is shown among the gates too
	ReasonPause    ReasonCode = "pause"    // who paused it
	ReasonPin      ReasonCode = "pin"      // what it is pinned to
	ReasonFailure  ReasonCode = "failure"  // what failed
	ReasonRollback ReasonCode = "rollback" // what was taken back
	ReasonCommand  ReasonCode = "command"  // what a person can do
	ReasonProgress ReasonCode = "progress" // how far it is
	ReasonReport   ReasonCode = "report"   // what would be done, where that is only reported
)

// Texts are what reasons say.
func (c *ChannelDecision) Texts() []string {
	var out []string
	for _, r := range c.Reasons {
		out = append(out, r.Text)
	}
	return out
}

// Gate returns the judgement with that id.
func (c *ChannelDecision) Gate(id string) (Judgement, bool) {
	if n := slices.IndexFunc(c.Gates, func(j Judgement) bool { return j.ID == id }); n >= 0 {
		return c.Gates[n], true
	}
	return Judgement{}, false
}

// Approvals are the approvals that can be given now: those that a channel waits for once all that comes before
// them passes.
func (c *ChannelDecision) Approvals() []Judgement {
	var out []Judgement
	for _, j := range c.Gates {
		switch approval := j.Kind == KindApproval; {
		case approval && j.Verdict == entities.Wait:
			out = append(out, j)
		case j.Verdict != entities.Pass && !approval:
			return out
		}
	}
	return out
}

// Acts tells whether the decision changes anything or starts anything.
func (d *Decision) Acts() bool {
	w := &d.Work
	return len(d.Changes)+len(w.Applies)+len(w.Asks)+len(w.Preflights)+len(w.Extensions)+len(w.Leases)+len(w.Removes)+len(w.Ends) > 0
}

// Join appends what another pass decided to change and to start.
func (d *Decision) Join(o *Decision) {
	d.Changes = append(d.Changes, o.Changes...)
	d.Applies, d.Asks = append(d.Applies, o.Applies...), append(d.Asks, o.Asks...)
	d.Preflights, d.Extensions = append(d.Preflights, o.Preflights...), append(d.Extensions, o.Extensions...)
	d.Leases, d.Removes = append(d.Leases, o.Leases...), append(d.Removes, o.Removes...)
	d.Ends = append(d.Ends, o.Ends...)
}

// Take replaces changes and work by those of another decision, but for what is to be rendered or recalled: that is as of now.
func (d *Decision) Take(o *Decision) {
	renders, recalls := d.Renders, d.Recalls
	d.Changes, d.Work = o.Changes, o.Work
	d.Renders, d.Recalls = renders, recalls
}

// Next are the releases that are next in a channel.
func (d *Decision) Next() []*state.Release {
	var out []*state.Release
	for n := range d.Channels {
		if r := d.Channels[n].Next; r != nil && !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}

// wakeBy makes sure that the decision is made again at t.
func (d *Decision) wakeBy(t time.Time) {
	if !t.IsZero() && (d.Wake.IsZero() || t.Before(d.Wake)) {
		d.Wake = t
	}
}

// String prints the decision, a line for each thing with its cause; tests compare it whole.
func (d *Decision) String() string {
	var b strings.Builder
	for _, c := range d.Changes {
		writeChange(&b, c)
	}
	for _, o := range d.Applies {
		fmt.Fprintf(&b, "apply %s %s attempt=%d%s\n", o.Instance, o.Target.FullVersion, o.Attempt, entities.Because(o.Cause))
	}
	for _, o := range d.Ends {
		if o.Release != "" {
			fmt.Fprintf(&b, "end the run of %s for release=%s\n", o.Extension, o.Release)
			continue
		}
		fmt.Fprintf(&b, "end the apply of %s\n", o.Instance)
	}
	for _, o := range d.Asks {
		fmt.Fprintf(&b, "ask %s %s\n", o.Instance, o.Target.FullVersion)
	}
	for _, o := range d.Renders {
		as := ""
		if o.As != "" {
			as = " as=" + o.As
		}
		fmt.Fprintf(&b, "render %s release=%s under=%s%s\n", o.Instance, o.Release, o.Present, as)
	}
	for _, o := range d.Recalls {
		fmt.Fprintf(&b, "recall release=%s\n", o.Release)
	}
	d.writeGates(&b)
	for n := range d.Channels {
		d.Channels[n].write(&b)
	}
	if !d.Wake.IsZero() {
		fmt.Fprintf(&b, "wake %s\n", d.Wake.UTC().Format("15:04:05"))
	}
	return b.String()
}

func writeChange(b *strings.Builder, c state.Change) {
	fmt.Fprintf(b, "%s %s", c.Kind, c.Channel)
	concerned := len(c.Instances) + len(c.Moves)
	switch {
	case len(c.Instances) == 1 && c.Instances[0].Name != entities.OnlyInstance:
		fmt.Fprintf(b, "/%s", c.Instances[0].Name)
	case len(c.Moves) == 1 && c.Moves[0].Instance.Name != entities.OnlyInstance:
		fmt.Fprintf(b, "/%s", c.Moves[0].Instance.Name)
	case concerned > 1:
		fmt.Fprintf(b, " in %d", concerned)
	}
	if c.Release != "" {
		fmt.Fprintf(b, " release=%s", c.Release)
	}
	if c.Target != nil {
		fmt.Fprintf(b, " target=%s", c.Target.FullVersion)
	} else if len(c.Moves) > 0 {
		fmt.Fprintf(b, " target=%s", c.Moves[0].Target.FullVersion)
	}
	fmt.Fprintf(b, "%s\n", entities.Because(c.Cause))
}

func (c *ChannelDecision) write(b *strings.Builder) {
	fmt.Fprintf(b, "%s %s%s\n", c.Channel, c.Status, entities.Because(strings.Join(c.Texts(), "; ")))
	for _, j := range c.Gates {
		fmt.Fprintf(b, "  %s %s%s\n", j.Verdict, j.ID, entities.Because(j.Reason))
	}
	for _, i := range c.Instances {
		if i.Status != c.Status {
			fmt.Fprintf(b, "  %s %s\n", i.ID, i.Status)
		}
	}
	for _, l := range c.Left {
		fmt.Fprintf(b, "  %s %s\n", l.ID, l.Text)
	}
}

// writeGates prints the work of gates and of taking things down.
func (d *Decision) writeGates(b *strings.Builder) {
	for _, o := range d.Preflights {
		ids := make([]string, len(o.Checks))
		for i, e := range o.Checks {
			ids[i] = e.ID
		}
		window := ""
		if o.Window {
			window = " window"
		}
		fmt.Fprintf(b, "preflight %s release=%s%s: %s\n", o.Channel, o.Release, window, strings.Join(ids, ", "))
	}
	for _, o := range d.Extensions {
		fmt.Fprintf(b, "extension %s release=%s %s attempt=%d\n", o.Channel, o.Release, o.Extension.RunKey(), o.Attempt)
	}
	for _, o := range d.Leases {
		verb := "lease"
		switch {
		case o.GiveBack:
			verb = "give back"
		case o.Again:
			verb = "lease again"
		case o.Rollback:
			verb = "lease first"
		}
		fmt.Fprintf(b, "%s %s of %s for %s\n", verb, o.ID, o.Runtime, o.Instance)
	}
	for _, o := range d.Removes {
		from := ""
		if o.From != "" {
			from = " from " + o.From
		}
		fmt.Fprintf(b, "remove %s %s%s\n", o.Instance, o.Target.FullVersion, from)
	}
}
