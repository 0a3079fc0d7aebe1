package decide

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/state"
)

// Decision is the result of a decision: changes to the state, work to start, the status of each channel, and when to decide again. It is
// a value: deciding changes nothing.
type Decision struct {
	Changes []state.Change
	state.Work
	Channels []ChannelDecision // in the spec's order, then orphans by name
	// Wake is when something may be due without an event; zero if only an event can change anything.
	Wake time.Time

	leases int64 // requested by this decision
}

// ChannelDecision is the status of one channel and everything that `explain` shows of it.
type ChannelDecision struct {
	Channel      string
	Status       entities.Status
	Health       entities.Status     // the health of the current objects alone (Facts.Health)
	Current      entities.Current    // of all its instances
	Instances    []InstanceDecision  // if there are several
	Step         string              // progress of a release that goes in steps
	Next         *state.Release      // the release next in line, or nil
	Held         *state.Release      // the release in progress, if gates hold its next step; or nil
	Gates        []Judgement         // the gates of Next, then those of Held
	Reasons      []Reason            // why the status is not CONVERGED
	Due          time.Time           // when the next decision is due here without an event
	NeededChecks *state.NeededChecks // the evaluations that its gates need; nil: none
	Drained      string              // of its only instance: progress of leaving its drained runtime
	Leftovers    []Leftover          // objects left on runtimes that its instances moved away from
}

// InstanceDecision is the status of one instance of several.
type InstanceDecision struct {
	ID      entities.InstanceID
	Status  entities.Status
	Current entities.Current
	Drained string // progress of leaving its drained runtime; else ""
}

// Leftover describes the objects that an instance left on a runtime that it moved away from, and what happens to them.
type Leftover struct {
	ID        entities.InstanceID
	Placement *state.PreviousPlacement
	Text      string
}

// Reason is one line that explains a status. Text is for people; Code is the kind of line.
type Reason struct {
	Code ReasonCode
	Text string
}

// ReasonCode is a kind of reason.
type ReasonCode string

// The kinds of reason.
const (
	ReasonGate     ReasonCode = "gate"     // a gate's reason, which is also shown among the gates
	ReasonPause    ReasonCode = "pause"    // who paused it
	ReasonPin      ReasonCode = "pin"      // the version that it is pinned to
	ReasonFailure  ReasonCode = "failure"  // a failure
	ReasonRollback ReasonCode = "rollback" // a rollback
	ReasonCommand  ReasonCode = "command"  // a command that a person can use
	ReasonProgress ReasonCode = "progress" // progress
	ReasonFlapping ReasonCode = "flapping" // it does not stay stable after repairs
	ReasonReport   ReasonCode = "report"   // the action that a report-only channel does not take
)

// Texts are the texts of the reasons.
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

// Approvals are the approvals that people are asked for now.
func (c *ChannelDecision) Approvals() []Judgement {
	return slices.DeleteFunc(slices.Clone(c.Gates), func(j Judgement) bool { return j.Code != CodeOpen })
}

// HasEffects reports whether the decision changes or starts anything.
func (d *Decision) HasEffects() bool {
	w := &d.Work
	return len(d.Changes)+len(w.Applies)+len(w.Queries)+len(w.Preflights)+len(w.Extensions)+len(w.Leases)+len(w.Removes)+len(w.Ends) > 0
}

// Join appends the changes and the work of another pass.
func (d *Decision) Join(o *Decision) {
	d.Changes = append(d.Changes, o.Changes...)
	d.Applies, d.Queries = append(d.Applies, o.Applies...), append(d.Queries, o.Queries...)
	d.Preflights, d.Extensions = append(d.Preflights, o.Preflights...), append(d.Extensions, o.Extensions...)
	d.Leases, d.Removes = append(d.Leases, o.Leases...), append(d.Removes, o.Removes...)
	d.Ends = append(d.Ends, o.Ends...)
}

// ReplaceWork replaces changes and work by those of another decision, except for renders and recalls: those reflect the latest pass.
func (d *Decision) ReplaceWork(o *Decision) {
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

// wakeBy ensures that the next decision is made at t at the latest.
func (d *Decision) wakeBy(t time.Time) {
	if !t.IsZero() && (d.Wake.IsZero() || t.Before(d.Wake)) {
		d.Wake = t
	}
}

// String formats the decision, one line per item with its cause. Tests compare it as a whole.
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
	for _, o := range d.Queries {
		fmt.Fprintf(&b, "query %s %s\n", o.Instance, o.Target.FullVersion)
	}
	for _, o := range d.Renders {
		as := ""
		if o.FullVersion != "" {
			as = " as=" + o.FullVersion
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
	for _, l := range c.Leftovers {
		fmt.Fprintf(b, "  %s %s\n", l.ID, l.Text)
	}
}

// writeGates formats preflights, extensions, leases and removals.
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
		case o.Return:
			verb = "return lease"
		case o.Repeat:
			verb = "repeat lease"
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
