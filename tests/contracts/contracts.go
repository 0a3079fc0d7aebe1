// Package contracts names and numbers what versions of Converge share while they overlap: what one writes and another
// reads. The state that workflows carry from run to run, what people and workflows send them, what they ask of
// activities (remote workers among those who answer), and the records in the store.
//
// Its test holds today's forms to those of the versions that were released, both ways: what they wrote is read, and what
// is written now they read. testdata has a folder for each of them; `make freeze-contracts` adds to it.
package contracts

import (
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/workflows"
)

// Contract is one form in which something is written by one version and read by another. Within a number fields are only
// added; what cannot be said so takes another number, and a name of its own (or, for a state, stateVersion).
type Contract struct {
	Name   string
	Number int
	// Strict: its reader refuses fields that it does not know, as it should where a person may have misspelt one. A
	// newer version may say more to it only where it was asked to.
	Strict bool
	// Form is an empty value of its type.
	Form any
	// Of is the name in package protocol, or the method of the store that writes it, that it belongs to.
	Of string
}

// All are the contracts, in no particular order.
func All() []Contract {
	var all []Contract
	for _, part := range [][]Contract{states(), inputs(), verbs(), messages(), answers(), activities(), records()} {
		all = append(all, part...)
	}
	return all
}

func states() []Contract {
	var out []Contract
	for workflow, form := range workflows.StateFormats() {
		out = append(out, Contract{Name: "state of " + workflow, Number: form.Number, Form: form.State, Of: workflow})
	}
	return out
}

// inputs start workflows and carry their states.
func inputs() []Contract {
	return []Contract{
		{"input of Service", 1, false, protocol.ServiceInput{}, protocol.ServiceWorkflow},
		{"input of Application", 1, false, protocol.ApplicationInput{}, protocol.ApplicationWorkflow},
		{"input of Runtime", 1, false, protocol.RuntimeInput{}, protocol.RuntimeWorkflow},
		{"input of Installation", 1, false, protocol.InstallationInput{}, protocol.InstallationWorkflow},
		{"input of Preview", 1, false, protocol.PreviewInput{}, protocol.PreviewWorkflow},
		{"answer of Preview", 1, false, protocol.PreviewAnswer{}, protocol.PreviewWorkflow},
		{"input of Plan", 1, false, protocol.PlanInput{}, protocol.PlanWorkflow},
		{"answer of Plan", 1, false, protocol.PlanStatus{}, protocol.PlanWorkflow},
	}
}

// verbs are what people send, through a CLI of another version; a Runtime's are sent by services too.
func verbs() []Contract {
	var out []Contract
	for _, table := range []struct {
		of   string
		rows []verb.Row
	}{{"Service", verb.Service()}, {"Application", verb.Application()}, {"Runtime", verb.Runtime()}, {"Installation", verb.Installation()}} {
		for n := range table.rows {
			row := &table.rows[n]
			out = append(out, Contract{Name: table.of + " verb " + row.Name, Number: 1, Strict: true, Form: row.Payload(), Of: row.Name})
		}
	}
	return out
}

// messages are signals between workflows.
func messages() []Contract {
	return []Contract{
		{"Service signal publish", 1, false, protocol.ServicePublish{}, protocol.Publish},
		{"Service signal scope-pause", 1, false, protocol.ScopePause{}, protocol.SignalScopePause},
		{"Service signal granted", 1, false, protocol.LeaseSignal{}, protocol.SignalGranted},
		{"Service signal held", 1, false, protocol.LeaseSignal{}, protocol.SignalHeld},
		{"signal wake", 1, false, protocol.Wake{}, protocol.SignalWake},
		{"Service message lease-call", 1, false, protocol.LeaseCall{}, protocol.ActivityLease},
	}
}

// answers are what verbs and queries answer to a CLI of another version.
func answers() []Contract {
	return []Contract{
		{"answer to verbs", 1, false, protocol.Answer{}, ""},
		{"answer to release", 1, false, protocol.ReleaseAnswer{}, protocol.Release},
		{"answer to a joint release", 1, false, protocol.JointAnswer{}, protocol.Release},
		{"answer to publish", 1, false, protocol.PublishAnswer{}, protocol.Publish},
		{"Service query status", 1, false, protocol.Status{}, protocol.QueryStatus},
		{"Service query explain", 1, false, protocol.Explanation{}, protocol.QueryExplain},
		{"Service query history", 1, false, protocol.HistoryAnswer{}, protocol.QueryHistory},
		{"Service query placed", 1, false, protocol.Placement{}, protocol.QueryPlaced},
		{"Service query configured", 1, false, protocol.Configured{}, protocol.QueryConfigured},
		{"Service question deployed", 1, false, protocol.DeployedQuestion{}, protocol.QueryDeployed},
		{"Service query deployed", 1, false, protocol.Deployed{}, protocol.QueryDeployed},
		{"Service query terminated", 1, false, []string{}, protocol.QueryTerminated},
		{"query checkpoint", 1, false, protocol.CheckpointPosition{}, protocol.QueryCheckpoint},
		{"Application query status", 1, false, protocol.ApplicationStatus{}, protocol.QueryStatus},
		{"Runtime query status", 1, false, protocol.RuntimeStatus{}, protocol.QueryStatus},
		{"Installation query status", 1, false, protocol.InstallationStatus{}, protocol.QueryStatus},
		{"Plan query status", 1, false, protocol.PlanStatus{}, protocol.QueryStatus},
	}
}

// activities may be carried out by a worker of another version, a remote one above all.
func activities() []Contract {
	var out []Contract
	for _, a := range []struct {
		name            string
		request, answer any // nil: it has none
	}{
		{protocol.ActivityLoadSpec, protocol.LoadSpecRequest{}, protocol.LoadSpecAnswer{}},
		{protocol.ActivityPrepare, protocol.PrepareRequest{}, protocol.PrepareAnswer{}},
		{protocol.ActivityObserve, protocol.ObserveRequest{}, protocol.ObserveAnswer{}},
		{protocol.ActivityObserveAll, protocol.ObserveAllRequest{}, protocol.ObserveAllAnswer{}},
		{protocol.ActivityApply, protocol.ApplyRequest{}, protocol.ApplyAnswer{}},
		{protocol.ActivityPreview, protocol.PreviewRequest{}, protocol.PreviewAnswer{}},
		{protocol.ActivityNotify, protocol.NotifyRequest{}, protocol.NotifyAnswer{}},
		{protocol.ActivitySpill, protocol.SpillRequest{}, nil},
		{protocol.ActivityRestore, protocol.RestoreRequest{}, protocol.RestoreAnswer{}},
		{protocol.ActivityAdopt, protocol.AdoptRequest{}, protocol.AdoptAnswer{}},
		{protocol.ActivityCheck, protocol.CheckRequest{}, protocol.CheckAnswer{}},
		{protocol.ActivityPreflight, protocol.CheckRequest{}, protocol.CheckAnswer{}},
		{protocol.ActivityExtension, protocol.ExtensionRequest{}, protocol.ExtensionAnswer{}},
		{protocol.ActivityConfirm, protocol.ConfirmRequest{}, protocol.ConfirmAnswer{}},
		{protocol.ActivityInForce, protocol.InForceRequest{}, protocol.ScopePause{}},
		{protocol.ActivityGranted, protocol.LeaseSignal{}, protocol.GrantedAnswer{}},
		{protocol.ActivityRules, protocol.RulesRequest{}, protocol.Rules{}},
		{protocol.ActivityConfigure, protocol.Rules{}, protocol.Rules{}},
		{protocol.ActivityBaseline, protocol.BaselineRequest{}, protocol.AnnounceAnswer{}},
		{protocol.ActivityLibrary, protocol.Library{}, protocol.Library{}},
		{protocol.ActivityRemove, protocol.RemoveRequest{}, protocol.RemoveAnswer{}},
		{protocol.ActivitySteer, protocol.SteerRequest{}, protocol.SteerAnswer{}},
		{protocol.ActivityVerify, protocol.VerifyRequest{}, protocol.VerifyAnswer{}},
		{protocol.ActivityLease, protocol.LeaseCall{}, nil},
		{protocol.ActivityHistory, protocol.HistoryRequest{}, nil},
		{protocol.ActivityAnnounce, protocol.AnnounceRequest{}, nil},
		{protocol.ActivityPause, protocol.AnnouncePause{}, nil},
		{protocol.ActivityDrain, protocol.AnnouncePause{}, protocol.DrainAnswer{}},
		{protocol.ActivityAlone, protocol.AloneRequest{}, protocol.AloneAnswer{}},
		{protocol.ActivityUnmanage, protocol.UnmanageRequest{}, protocol.UnmanageAnswer{}},
		{protocol.ActivityPropose, protocol.ProposeRequest{}, protocol.ProposeAnswer{}},
		{protocol.ActivityDecide, protocol.DecideRequest{}, protocol.DecideAnswer{}},
		{protocol.ActivityReserve, protocol.ReserveRequest{}, protocol.ReserveAnswer{}},
		{protocol.ActivityOutcome, protocol.OutcomeRequest{}, protocol.OutcomeAnswer{}},
		{protocol.ActivityPlanBegin, protocol.PlanInput{}, protocol.PlanStart{}},
		{protocol.ActivityPlanKeep, protocol.PlanKeepRequest{}, nil},
		{protocol.ActivityPlanFollow, protocol.PlanRef{}, protocol.PlanFollowAnswer{}},
		{protocol.ActivityPlanCommands, protocol.PlanCommandsRequest{}, protocol.PlanCommands{}},
		{protocol.ActivityPlanRun, protocol.PlanRunRequest{}, protocol.PlanRunAnswer{}},
	} {
		out = append(out, Contract{"request to activity " + a.name, 1, false, a.request, a.name})
		if a.answer != nil {
			out = append(out, Contract{"answer of activity " + a.name, 1, false, a.answer, a.name})
		}
	}
	return out
}

// records are what the store keeps for good, by the method that writes it. Bundles and spilled states are bytes to it:
// what Kubernetes reads, and a state as above.
func records() []Contract {
	return []Contract{
		{"record of an incarnation", 1, false, incarnation.Document{}, "PutIncarnation"},
		{"record of a spec", 1, false, entities.Spec{}, "PutSpec"},
		{"record of a manifest", 1, false, incarnation.Manifest{}, "PutManifest"},
		{"record of a payload", 1, false, entities.Payload{}, "PutPayload"},
		{"record of a check", 1, false, entities.CheckDefinition{}, "PutCheck"},
		{"record of an extension", 1, false, entities.ExtensionDefinition{}, "PutExtension"},
		{"record of a version", 1, false, store.VersionRecord{}, "CreateVersion"},
		{"record of a number", 1, false, protocol.Incarnation{}, "PutNumber"},
		{"record of commits", 1, false, protocol.Commits{}, "PutCommits"},
		{"record of a notice", 1, false, protocol.Notice{}, "PutNotice"},
		{"record of a runtime", 1, false, entities.RuntimeDefinition{}, "PutRuntime"},
		{"record of a runtime, published", 1, false, entities.RuntimeDefinition{}, "PublishRuntime"},
		{"record of a runtime's owner", 1, false, store.RuntimeOwner{}, "ClaimRuntime"},
		{"record of a log entry", 1, false, store.LogEntry{}, "PutLog"},
		{"record of a log entry, by key", 1, false, store.LogEntry{}, "PutLogKey"},
		{"record of audit lines", 1, false, entities.AuditEntry{}, "AppendAudit"},
		{"record of a pause", 1, false, protocol.ScopePause{}, "PutPause"},
		{"record of a pause that has ended", 1, false, protocol.PauseEnded{}, "PutPauseEnded"},
		{"record of a checkpoint", 1, false, protocol.Checkpoint{}, "PutCheckpoint"},
		{"record of a claim", 1, false, protocol.Claim{}, "Claim"},
		{"record of an installation", 1, false, protocol.Installation{}, "CreateInstallation"},
		{"record of rules", 1, false, protocol.Rules{}, "CreateRules"},
		{"record of a joint release", 1, false, protocol.Joint{}, "CreateJoint"},
		{"record of what was decided of a joint release", 1, false, protocol.JointDecision{}, "CreateJointDecision"},
		{"record of a library", 1, false, protocol.Library{}, "CreateLibrary"},
		{"record of a library's content", 1, false, config.LibraryContent{}, "PutLibraryContent"},
		{"record of what was captured", 1, false, store.Captured{}, "CreateCaptured"},
		{"record of what was reported", 1, false, store.ReportRecord{}, "PutReport"},
		{"record of a token's use", 1, false, protocol.TokenUse{}, "UseToken"},
		{"record of what was accepted elsewhere", 1, false, protocol.MissedMessages{}, "MissedRecord"},
		{"record of a directory", 1, false, store.Directory{}, "PutDirectory"},
		{"record of a worker that lives", 1, false, store.Presence{}, "PutPresence"},
		{"record of a worker that reads what is steady", 1, false, store.Heartbeat{}, "PutHeartbeat"},
		{"record of what is known of an instance", 1, false, protocol.WatchedInstance{}, "PutWatched"},
		{"record of how far a plan is", 1, false, protocol.PlanRecord{}, "PutPlan"},
		{"record of whom a plan lets enter", 1, false, store.PlanGrant{}, "GrantPlan"},
		{"record of a plan that runs", 1, false, protocol.PlanRef{}, "RunPlan"},
		{"record of an incarnation that is marked", 1, false, int64(0), "MarkPlan"},
		{"record of a key of payloads", 1, false, store.PayloadKey{}, "PutPayloadKey"},
	}
}
