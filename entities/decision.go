package entities

import (
	"fmt"
	"strings"
	"time"
)

// Decision is what follows from a state at a moment: changes to the state itself, work to start,
// the status of each channel, and when to look again. It is a value: deciding changes nothing.
type Decision struct {
	Changes []Change
	Applies []ApplyOp
	Asks    []AskOp
	Renders []RenderOp
	// Preflights, Extensions, Leases and Removes are started as applies are (gates_state.go).
	Preflights []PreflightOp
	Extensions []ExtensionOp
	Leases     []LeaseOp
	Removes    []RemoveOp
	Channels   []ChannelDecision // in the spec's order, then orphans by name
	// Wake is when something may be due by itself; zero when only an event can change anything.
	Wake time.Time
}

// ChangeKind names a change to the state.
type ChangeKind string

// The changes a decision makes.
const (
	ChangeSkip      ChangeKind = "skip"      // a newer release entered instead
	ChangePromote   ChangeKind = "promote"   // a delivery decision: the target is set
	ChangeUnchanged ChangeKind = "unchanged" // the release succeeded here without an apply (A9)
	ChangeConverged ChangeKind = "converged" // the target is stable
	ChangeRepaired  ChangeKind = "repaired"  // stable again after drift or ill health
	ChangeFail      ChangeKind = "fail"      // the target failed here for good
	ChangeLook      ChangeKind = "look"      // look now, whatever is known
	ChangeFreeze    ChangeKind = "freeze"    // the progress deadline stands still
	ChangeThaw      ChangeKind = "thaw"      // and goes on
	ChangeStable    ChangeKind = "stable"    // stable for the first time: the post-deployment window begins
	ChangeUnsettled ChangeKind = "unsettled" // no longer stable in that window: the deadline counts anew
	ChangeRollback  ChangeKind = "rollback"  // the target returns to the last good one (A22)
	ChangePin       ChangeKind = "pin"       // the target is set to what the channel is pinned to
	ChangeAwait     ChangeKind = "await"     // an apply waits for a person's approval (C10)
)

// Change is one change to the state, and why.
type Change struct {
	Kind    ChangeKind
	Channel string
	Release string // id; empty when no release is concerned
	Target  *Target
	Reading *Reading // promote on an exit-code runtime: what it answered about the target
	Cause   string
}

// ApplyOp starts an apply of an instance's target. At most one runs at a time per instance.
type ApplyOp struct {
	Channel string
	Target  Target
	Attempt int // 1 for the first
	Timeout time.Duration
	Cause   string
}

// AskOp asks an exit-code runtime whether there is work to do for a version not yet the target.
type AskOp struct {
	Channel string
	Target  Target
}

// RenderOp asks what a config release renders to under the version already in the channel.
type RenderOp struct {
	Channel string
	Release string
	Present string // full version
}

// ChannelDecision is the status of one channel and all that `explain` says of it.
type ChannelDecision struct {
	Channel string
	Status  Status
	Current Current
	Next    *Release    // the release next in line, or nil
	Gates   []Judgement // what Next passes or waits for
	Reasons []string    // why the status is not CONVERGED
	Due     time.Time   // when something is due here by itself
	wants   *wants      // what its gates want; nil: nothing
}

// Gate returns the judgement with that id.
func (c ChannelDecision) Gate(id string) (Judgement, bool) {
	for _, j := range c.Gates {
		if j.ID == id {
			return j, true
		}
	}
	return Judgement{}, false
}

// String prints the decision, a line for each thing with its cause; tests compare it whole.
func (d *Decision) String() string {
	var b strings.Builder
	for _, c := range d.Changes {
		fmt.Fprintf(&b, "%s %s", c.Kind, c.Channel)
		if c.Release != "" {
			fmt.Fprintf(&b, " release=%s", c.Release)
		}
		if c.Target != nil {
			fmt.Fprintf(&b, " target=%s", c.Target.FullVersion)
		}
		fmt.Fprintf(&b, "%s\n", because(c.Cause))
	}
	for _, o := range d.Applies {
		fmt.Fprintf(&b, "apply %s %s attempt=%d%s\n", o.Channel, o.Target.FullVersion, o.Attempt, because(o.Cause))
	}
	for _, o := range d.Asks {
		fmt.Fprintf(&b, "ask %s %s\n", o.Channel, o.Target.FullVersion)
	}
	for _, o := range d.Renders {
		fmt.Fprintf(&b, "render %s release=%s under=%s\n", o.Channel, o.Release, o.Present)
	}
	d.writeGates(&b)
	for _, c := range d.Channels {
		fmt.Fprintf(&b, "%s %s%s\n", c.Channel, c.Status, because(strings.Join(c.Reasons, "; ")))
		for _, j := range c.Gates {
			fmt.Fprintf(&b, "  %s %s%s\n", j.Verdict, j.ID, because(j.Reason))
		}
	}
	if !d.Wake.IsZero() {
		fmt.Fprintf(&b, "wake %s\n", d.Wake.UTC().Format("15:04:05"))
	}
	return b.String()
}

// writeGates prints the work of gates and of ways back.
func (d *Decision) writeGates(b *strings.Builder) {
	for _, o := range d.Preflights {
		ids := make([]string, len(o.Checks))
		for i, l := range o.Checks {
			ids[i] = l.ID
		}
		window := ""
		if o.Window {
			window = " window"
		}
		fmt.Fprintf(b, "preflight %s release=%s%s: %s\n", o.Channel, o.Release, window, strings.Join(ids, ", "))
	}
	for _, o := range d.Extensions {
		fmt.Fprintf(b, "extension %s release=%s %s attempt=%d\n", o.Channel, o.Release, o.Extension.ExtensionKey(), o.Attempt)
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
		fmt.Fprintf(b, "%s %s of %s for %s\n", verb, o.ID, o.Runtime, o.Channel)
	}
	for _, o := range d.Removes {
		fmt.Fprintf(b, "remove %s %s\n", o.Channel, o.Target.FullVersion)
	}
}

// acts tells whether the decision changes anything or starts anything.
func (d *Decision) acts() bool {
	return len(d.Changes)+len(d.Applies)+len(d.Asks)+len(d.Preflights)+len(d.Extensions)+len(d.Leases)+len(d.Removes) > 0
}

// join appends what another pass decided.
func (d *Decision) join(o *Decision) {
	d.Changes = append(d.Changes, o.Changes...)
	d.Applies, d.Asks = append(d.Applies, o.Applies...), append(d.Asks, o.Asks...)
	d.Preflights, d.Extensions = append(d.Preflights, o.Preflights...), append(d.Extensions, o.Extensions...)
	d.Leases, d.Removes = append(d.Leases, o.Leases...), append(d.Removes, o.Removes...)
}

// take replaces changes and work by those of another decision.
func (d *Decision) take(o *Decision) {
	d.Changes, d.Applies, d.Asks = o.Changes, o.Applies, o.Asks
	d.Preflights, d.Extensions, d.Leases, d.Removes = o.Preflights, o.Extensions, o.Leases, o.Removes
}

func because(cause string) string {
	if cause == "" {
		return ""
	}
	return ": " + cause
}

// wakeBy makes sure that the decision is made again at t.
func (d *Decision) wakeBy(t time.Time) {
	if !t.IsZero() && (d.Wake.IsZero() || t.Before(d.Wake)) {
		d.Wake = t
	}
}
