package protocol

import (
	"encoding/json"
	"time"

	"github.com/converge-engine/converge/entities"
)

// Carried is a workflow's state on its way into the next run: as it is when it is small, packed (gzip) when it
// is not, and by digest in the store beyond that, so that no payload passes 64 KiB. What the state consists of is
// the workflow's own business; its form has a number, and a worker that knows only older ones leaves it alone.
type Carried struct {
	StateVersion int             `json:"stateVersion,omitempty"`
	State        json.RawMessage `json:"state,omitempty"`
	Packed       Packed          `json:"packed,omitempty"`
	Spilled      string          `json:"spilled,omitempty"` // digest of packed bytes in the store
}

// Empty tells that nothing is carried.
func (c Carried) Empty() bool {
	return c.StateVersion == 0 && len(c.State) == 0 && len(c.Packed) == 0 && c.Spilled == ""
}

// Input is what each workflow of Converge is started with.
type Input interface {
	// Begins is the id that its workflow has, what the run before carried over, and how a first run begins.
	Begins() (id string, carried Carried, first Beginning)
}

// Begins implements Input.
func (in ServiceInput) Begins() (string, Carried, Beginning) {
	return ServiceID(in.Application, in.Service), in.Carried, in.Beginning
}

// Begins implements Input.
func (in ApplicationInput) Begins() (string, Carried, Beginning) {
	return ApplicationID(in.Application), in.Carried, in.Beginning
}

// Begins implements Input.
func (in RuntimeInput) Begins() (string, Carried, Beginning) {
	return RuntimeID(in.Runtime), in.Carried, in.Beginning
}

// Begins implements Input.
func (in InstallationInput) Begins() (string, Carried, Beginning) {
	return InstallationID(), in.Carried, in.Beginning
}

// Beginning says how a first run begins, which carries no state.
type Beginning struct {
	// Adopt: with the newest checkpoint that the store has of the workflow.
	Adopt bool `json:"adopt,omitempty"`
	// Restart: nobody asked for it; the workflow was gone.
	Restart *Restart `json:"restart,omitempty"`
}

// Logic is the number of the logic by which workers of this version begin a run. A run keeps to the logic that its
// input names, as its history demands: none is that of workers that did not name it yet.
const Logic = LogicHoldsGates

const (
	// LogicRecordsShown is the logic by which what a service shows is recorded before it is shown.
	LogicRecordsShown = 1
	// LogicKeepsCommitted is the logic by which the audit trail in the store has lines of earlier workflow tasks only, and
	// checkpoints are ordered by those tasks: what a task did that was lost is taken for nothing that happened.
	LogicKeepsCommitted = 2
	// LogicGoesByRules is the logic by which a Runtime and an Installation ask for the rules of the installation before
	// they carry out what people send.
	LogicGoesByRules = 3
	// LogicKeepsAllTrails is the logic by which a Runtime and an Installation write their audit lines to the store, as a
	// Service and an Application do.
	LogicKeepsAllTrails = 4
	// LogicGoesByNotices is the logic by which a Service asks the store before it takes over that it is no longer declared.
	LogicGoesByNotices = 5
	// LogicTellsErrors is the logic by which people hear of checks that cannot be evaluated, several times in a row.
	LogicTellsErrors = 6
	// LogicRenames is the logic by which a Service has channels be called otherwise.
	LogicRenames = 7
	// LogicReadsOneThing is the logic by which a signal is refused that cannot be read, or that could be read in two ways, and
	// a request id that comes again with another content.
	LogicReadsOneThing = 8
	// LogicCancelEnds is the logic by which runs of extensions are asked to end, and count under a channel's new name, and
	// configuration reaches channels that keep another version.
	LogicCancelEnds = 9
	// LogicLooksAgain is the logic by which a postcondition fails nothing before a look that is due has been taken, and the last
	// evaluation of what was stable counts for nothing once that began anew.
	LogicLooksAgain = 10
	// LogicKeepsLines is the logic by which what goes no further in a channel by itself makes room for its own aspect alone.
	LogicKeepsLines = 11
	// LogicPasses is the logic by which values of an aspect pass a release that goes through a fleet, between two of its steps.
	LogicPasses = 12
	// LogicAsksPlans is the logic by which a Service asks plans at once when one hints that it lets it enter.
	LogicAsksPlans = 13
	// LogicMakesRoom is the logic by which a release makes room for a newer one where its first step cannot begin, and where it is
	// halted before the only instance that is left, and what was refused is passed over after a rollback that failed, too; by which the
	// approval of an apply takes the place of no other, and a word on a version is for that of its releases which goes on; and by which
	// configuration comes to no instance that it knows nothing of.
	LogicMakesRoom = 14
	// LogicLetsBy is the logic by which a release that one instance leaves no room for its next step lets a newer one by: halfway too, and
	// where that instance is at what was cancelled or only reported, or is not repaired; and by which a release is not retried over a newer
	// one that was cancelled on its way and is there.
	LogicLetsBy = 15
	// LogicPlansInParts is the logic by which a plan has so many commands under way at most, those of CALLBACK beside each other, has what waits
	// wait without them, and lists the commands of a node in parts.
	LogicPlansInParts = 15
	// LogicFitsPayloads is the logic by which a Service of many instances or checks has them observed and evaluated in parts, each of which fits
	// into a payload.
	LogicFitsPayloads = 16
	// LogicAppliesFirst is the logic by which a Service has an apply begin before it is shown that it does, and observes what is steady as its
	// runtime is declared anew.
	LogicAppliesFirst = 17
	// LogicReadsHere is the logic by which a Service has what was hinted at read within the task of the hint, follows what it applied by hints
	// at first, and leaves an observation of what is steady as it is while workers know what is to be compared.
	LogicReadsHere = 18
	// LogicPassesCommands is the logic by which a DEPLOY of a plan passes a command on its serial target that has no place.
	LogicPassesCommands = 18
	// LogicObservesTogether is the logic by which a Service has what it knows nothing of, and what is steady where workers read it, observed on
	// all of its runtimes at once, and what is steady when a rollout is over.
	LogicObservesTogether = 19
	// LogicKeepsHints is the logic by which a Service reads, after an apply, what was hinted at before it had taken in how that ended, and shows later
	// what goes on while many releases begin.
	LogicKeepsHints = 20
	// LogicLooksHere is the logic by which a Service that knows nothing of any instance yet has all of them read within its workflow task, where
	// they are read at once.
	LogicLooksHere = 21
	// LogicReadsAfter is the logic by which a Service reads once more what was hinted at while it was observed: what it is answered then may
	// have been read before; and has what is steady observed while other things go on, though an observation that is under way lacks it.
	LogicReadsAfter = 22
	// LogicHoldsGates is the logic by which a Service takes nothing for good, or for applied, that has failed, is taken back through the gates, was only
	// reported or was cut off with its channel; has what goes back asked once more whether it may; and keeps an approval whose apply did not begin.
	LogicHoldsGates = 23
)

// ServiceInput starts a Service workflow, or carries its state into the next run.
type ServiceInput struct {
	Application string `json:"application"`
	Service     string `json:"service"`
	Runs        int64  `json:"runs,omitempty"` // continue-as-new so far
	Logic       int    `json:"logic,omitempty"`
	Carried
	Beginning
}

// ApplicationInput starts an Application workflow, or carries its state into the next run.
type ApplicationInput struct {
	Application string `json:"application"`
	Logic       int    `json:"logic,omitempty"`
	Carried
	Beginning
}

// RuntimeInput starts a Runtime workflow, or carries its state into the next run.
type RuntimeInput struct {
	Runtime string `json:"runtime"`
	Logic   int    `json:"logic,omitempty"`
	Carried
	Beginning
}

// InstallationInput starts an Installation workflow, or carries its state into the next run.
type InstallationInput struct {
	ID    string `json:"id"` // of its record in the store
	Logic int    `json:"logic,omitempty"`
	// Pause: everything begins paused, whatever is known of it.
	Pause *entities.Pause `json:"pause,omitempty"`
	Carried
	Beginning
}

// ApplicationPin keeps an application's services at an incarnation (D15).
type ApplicationPin struct {
	Incarnation Incarnation  `json:"incarnation"`
	Who         entities.Who `json:"who"`
	Reason      string       `json:"reason,omitempty"`
	At          time.Time    `json:"at"`
}

// SpillRequest writes packed state to the store (local activity); the answer is its digest. One without state asks whether
// the store would take it.
type SpillRequest struct {
	Packed Packed `json:"packed"`
}

// RestoreRequest reads one part of spilled state back (local activity).
type RestoreRequest struct {
	Digest string `json:"digest"`
	Offset int    `json:"offset"`
}

// RestoreAnswer is at most 48 KiB of packed state. Total is the length of all of it.
type RestoreAnswer struct {
	Part  []byte `json:"part"`
	Total int    `json:"total"`
}

// Wake says nothing that changes anything: a workflow that gets it looks whether its run should end, since another
// version of workers is current, and whether it may go on.
type Wake struct {
	Version string `json:"version,omitempty"` // for people: who asks
	// Plan: a plan lets the service enter, it says, so that it asks now and not a little later (E1).
	Plan bool `json:"plan,omitempty"`
}
