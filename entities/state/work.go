package state

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds what a decision may change in a state, and what it may start. Commit carries both out here;
// whoever runs the decision starts the work outside.

// ChangeKind names a change to the state.
type ChangeKind string

// The changes a decision makes.
const (
	ChangeSkip       ChangeKind = "skip"        // a newer release entered instead, or what is in progress yields to one that enters
	ChangePromote    ChangeKind = "promote"     // a delivery decision: the release enters, targets are set
	ChangeTarget     ChangeKind = "target"      // an instance follows the release in progress
	ChangeUnchanged  ChangeKind = "unchanged"   // the release succeeded here without an apply (A9)
	ChangeConverged  ChangeKind = "converged"   // targets are stable; with a release: it succeeded in the channel
	ChangeRepaired   ChangeKind = "repaired"    // stable again after drift or ill health
	ChangeFail       ChangeKind = "fail"        // targets failed here for good
	ChangeRead       ChangeKind = "read"        // a reading is wanted now, whatever is known
	ChangeStopClock  ChangeKind = "stop-clock"  // the progress deadline stands still
	ChangeStartClock ChangeKind = "start-clock" // and goes on
	ChangeStable     ChangeKind = "stable"      // all are stable for the first time: the post-deployment window begins
	ChangeUnstable   ChangeKind = "unstable"    // no longer stable in that window: the deadline counts anew
	ChangeRollback   ChangeKind = "rollback"    // targets return to the last good ones (A22)
	ChangePin        ChangeKind = "pin"         // targets are set to what the channel is pinned to, or back
	ChangeAway       ChangeKind = "away"        // the runtimes of instances are drained
	ChangeBack       ChangeKind = "back"        // and are no longer
	ChangeAside      ChangeKind = "aside"       // the release in progress waits between two steps for values that pass it (B5)
	ChangeResume     ChangeKind = "resume"      // and goes on
	ChangeAwait      ChangeKind = "await"       // an apply waits for a person's approval, or does no longer (C10)
)

// Change is one change to the state, and why.
type Change struct {
	Kind      ChangeKind
	Channel   string
	Instances []entities.InstanceID // that it concerns; none: the channel as a whole
	Release   string                // id; empty when no release is concerned
	Moves     []Move                // the targets that it sets
	Target    *entities.Target      // what became stable, or is to be approved; nil: nothing
	Partial   bool                  // of what converged: the rest of the channel is still to come
	// WhilePaused: of a rollback that a person asked for while the channel, or the service, is paused.
	WhilePaused bool
	// Again: of a rollback that says nothing against the release, which enters once more.
	Again   bool
	Window  bool // of a clock: that of the channel's post-deployment window too
	Cause   string
	Failure string // of what failed: the cause, without the name of the instance; empty: the cause
}

// Move is a target that is set.
type Move struct {
	Instance entities.InstanceID
	Target   entities.Target
	Reading  *entities.Reading // of an exit-code runtime: what it answered about the target
	// Version, as a person or CI named it, of a target that was rendered for a way back (Way).
	Version string
}

// Work is what a decision starts. At most one apply runs at a time per instance.
type Work struct {
	Applies    []ApplyOp
	Asks       []AskOp
	Renders    []RenderOp
	Recalls    []RecallOp
	Preflights []PreflightOp
	Extensions []ExtensionOp
	Leases     []LeaseOp
	Removes    []RemoveOp
	Ends       []EndOp
}

// ApplyOp starts an apply of an instance's target.
type ApplyOp struct {
	Instance entities.InstanceID
	Target   entities.Target
	Attempt  int // 1 for the first
	Timeout  time.Duration
	Cause    string
}

// EndOp asks an apply that runs to end, since its release yields to a newer one (B3) or was cancelled (I2); or, where a release is
// named, the run of an extension.
type EndOp struct {
	Instance  entities.InstanceID
	Release   string // id
	Extension string // Extension.RunKey
}

// AskOp asks an exit-code runtime whether there is work to do for a version not yet the target.
type AskOp struct {
	Instance entities.InstanceID
	Target   entities.Target
}

// RenderOp asks what a config release renders to under the version already there.
type RenderOp struct {
	Instance entities.InstanceID
	Release  string
	Present  string // full version
	// As is the full version that the release brings there, where that is not its own alone, and Of its version, as a person or CI
	// named it.
	As, Of string
	// Way: it is what a release that this one passes goes back to (Release.Ways).
	Way bool
}

// RecallOp asks the store what a release is made of.
type RecallOp struct {
	Release string
}

// PreflightOp evaluates checks of a channel once more, all at once, before a target is set.
type PreflightOp struct {
	Channel string
	Release string
	Checks  []entities.Evaluation
	Window  bool
	// StableSince is that of the window: what began anew meanwhile is evaluated anew.
	StableSince time.Time
}

// ExtensionOp runs an extension once.
type ExtensionOp struct {
	Channel   string
	Release   string
	Extension entities.Extension
	Attempt   int
	BackTo    string // of a release that was taken back: the full version that is there instead
}

// LeaseOp asks for a lease, or gives one back.
type LeaseOp struct {
	Instance entities.InstanceID
	Runtime  string
	ID       string
	Version  string // full version that is applied
	GiveBack bool
	Again    bool // it was asked for before, and the Runtime workflow may have forgotten
	Rollback bool // goes first
	Limit    int
	Timeout  time.Duration // of the apply: past it the Runtime workflow asks whether it is still held
}

// RemoveOp takes down what an instance is made of, or what it left on a runtime that it is not on any more.
type RemoveOp struct {
	Instance entities.InstanceID
	Target   entities.Target
	From     string // the runtime where it was left; "": where the instance is
}
