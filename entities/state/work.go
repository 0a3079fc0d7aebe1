package state

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// This file holds the changes that a decision may make in a state, and the work that it may start. Commit records both here; the caller
// starts the work.

// ChangeKind names a change to the state.
type ChangeKind string

// The changes of a decision.
const (
	ChangeSkip           ChangeKind = "skip"        // a newer release entered instead, or the release in progress yields to one that enters
	ChangePromote        ChangeKind = "promote"     // a delivery decision: the release enters, targets are set
	ChangeTarget         ChangeKind = "target"      // an instance follows the release in progress
	ChangeUnchanged      ChangeKind = "unchanged"   // the release succeeded here without an apply (A9)
	ChangeConverged      ChangeKind = "converged"   // targets are stable; with a release: it succeeded in the channel
	ChangeRepaired       ChangeKind = "repaired"    // stable again after drift or ill health
	ChangeFail           ChangeKind = "fail"        // targets failed here permanently
	ChangeRequestReading ChangeKind = "read"        // a reading is required now, regardless of the last one
	ChangeStopClock      ChangeKind = "stop-clock"  // the progress deadline is suspended
	ChangeStartClock     ChangeKind = "start-clock" // and continues
	ChangeStable         ChangeKind = "stable"      // all are stable for the first time: the post-deployment window starts
	ChangeUnstable       ChangeKind = "unstable"    // no longer stable in that window: the deadline starts again
	ChangeRollback       ChangeKind = "rollback"    // targets return to the last good ones (A22)
	ChangePin            ChangeKind = "pin"         // targets are set to those of the channel's pin, or back
	ChangeDrained        ChangeKind = "away"        // the runtimes of instances are drained
	ChangeRestored       ChangeKind = "back"        // and not any more
	ChangeAside          ChangeKind = "aside"       // the release in progress waits between two steps for values that pass it (B5)
	ChangeResume         ChangeKind = "resume"      // and continues
	ChangeAwaitApproval  ChangeKind = "await"       // an apply waits for an approval, or not any more (C10)
)

// Change is one change to the state, and why.
type Change struct {
	Kind      ChangeKind
	Channel   string
	Instances []entities.InstanceID // that it concerns; none: the channel as a whole
	Release   string                // id; empty if no release is concerned
	Moves     []Move                // the targets that it sets
	Target    *entities.Target      // the target that became stable, or needs an approval; nil: none
	Partial   bool                  // of a convergence: the rest of the channel is still in progress
	// WhilePaused: of a rollback that a person requested while the channel, or the service, is paused.
	WhilePaused bool
	// Reenters: of a rollback that is no evidence against the release, which enters again.
	Reenters bool
	Window   bool // of a clock: that of the channel's post-deployment window too
	Cause    string
	Failure  string // of a failure: the cause, without the name of the instance; empty: the cause
}

// Move is a target that is set.
type Move struct {
	Instance entities.InstanceID
	Target   entities.Target
	Reading  *entities.Reading // of an exit-code runtime: its answer about the target
	// Version, as a person or CI named it, of a target that was rendered for a rollback (RollbackRender).
	Version string
}

// Work is the work that a decision starts. At most one apply runs at a time per instance.
type Work struct {
	Applies    []ApplyOp
	Queries    []QueryOp
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
	Last     bool // the release fails if the apply takes longer than Timeout: no other attempt follows
	Cause    string
}

// EndOp requests the end of a running apply, because its release yields to a newer one (B3) or was cancelled (I2); or, if a release is
// named, of the run of an extension.
type EndOp struct {
	Instance  entities.InstanceID
	Release   string // id
	Extension string // Extension.RunKey
}

// QueryOp queries an exit-code runtime whether there is work to do for a version that is not yet the target.
type QueryOp struct {
	Instance entities.InstanceID
	Target   entities.Target
}

// RenderOp renders a config release with the current version.
type RenderOp struct {
	Instance entities.InstanceID
	Release  string
	Present  string // full version
	// FullVersion is the full version of the release there, if it differs from its own, and Version its version, as a person or CI named it.
	FullVersion, Version string
	// RollbackTarget: it is the rollback target of a release that this one passes (Release.RollbackTargets).
	RollbackTarget bool
}

// RecallOp loads the digests of a release from the store.
type RecallOp struct {
	Release string
}

// PreflightOp evaluates checks of a channel again, all at once, before a target is set.
type PreflightOp struct {
	Channel string
	Release string
	Checks  []entities.Evaluation
	Window  bool
	// StableSince is that of the window: a window that restarted in the meantime is evaluated again.
	StableSince time.Time
}

// ExtensionOp runs an extension once.
type ExtensionOp struct {
	Channel   string
	Release   string
	Extension entities.Extension
	Attempt   int
	BackTo    string // of a release that was rolled back: the full version that replaced it
}

// LeaseOp requests a lease, or returns one.
type LeaseOp struct {
	Instance entities.InstanceID
	Runtime  string
	ID       string
	Version  string // full version that is applied
	Return   bool
	Repeat   bool // it was requested before, and the Runtime workflow may have lost the request
	Rollback bool // goes first
	Limit    int
	Timeout  time.Duration // of the apply: after it the Runtime workflow queries whether the lease is still held
}

// RemoveOp removes the objects of an instance, or those that it left on a runtime that it moved away from.
type RemoveOp struct {
	Instance entities.InstanceID
	Target   entities.Target
	From     string // the runtime where they were left; "": the instance's own
}
