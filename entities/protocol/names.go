// Package protocol is the public interface between the CLI, other tools and the workflows: ids,
// names and payloads of workflows, updates, signals, queries and activities. It is data only, so
// that a client needs nothing else; docs/protocol.md prints it.
package protocol

import "strings"

// TaskQueue is where workflows and, by default, all activities run.
const TaskQueue = "converge"

// RuntimeTaskQueue is where the activities of a runtime with `worker: remote` run.
func RuntimeTaskQueue(runtime string) string { return "runtime/" + runtime }

// OwnTaskQueue tells whether only workers of Converge poll a queue, so that nobody else's workflow is to be started there.
func OwnTaskQueue(queue string) bool {
	return queue == TaskQueue || strings.HasPrefix(queue, RuntimeTaskQueue(""))
}

// ApplyWorkflowID is that of the workflow of a user that applies an instance on a runtime: there is one at a time. one is the
// instance's key and the runtime: "shop/web/prod/main/edge".
func ApplyWorkflowID(one string) string { return "apply/" + one }

// Workflow types.
const (
	ServiceWorkflow      = "Service"
	ApplicationWorkflow  = "Application"
	PreviewWorkflow      = "Preview"
	RuntimeWorkflow      = "Runtime"
	InstallationWorkflow = "Installation"
	PlanWorkflow         = "Plan"
)

// RuntimeID is the workflow id of a runtime.
func RuntimeID(runtime string) string { return "runtime/" + runtime }

// InstallationID is the workflow id of the installation, of which a namespace has one.
func InstallationID() string { return "installation" }

// ServiceID is the workflow id of a service.
func ServiceID(application, service string) string { return "service/" + application + "/" + service }

// ApplicationID is the workflow id of an application.
func ApplicationID(application string) string { return "application/" + application }

// PreviewID is the workflow id of one preview; service is "*" for several services.
func PreviewID(application, service, id string) string {
	return "preview/" + application + "/" + service + "/" + id
}

// ShortID is what people call a service, by its workflow id: application/service.
func ShortID(id string) string {
	if application, service, ok := ParseServiceID(id); ok {
		return application + "/" + service
	}
	return id
}

// ParseServiceID takes a service's workflow id apart.
func ParseServiceID(id string) (application, service string, ok bool) {
	rest, ok := strings.CutPrefix(id, "service/")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// Verbs: each is an Update and a Signal of the same name with the same JSON (docs/protocol.md).
const (
	Publish = "publish" // Application; internally also Application → Service (signal only)
	Release = "release"
	Pause   = "pause"
	Resume  = "resume"
	Cancel  = "cancel"
	Retry   = "retry"
	Refresh = "refresh"

	Approve  = "approve"
	Reject   = "reject"
	Bypass   = "bypass"
	Pin      = "pin"
	Unpin    = "unpin"
	Rollback = "rollback"
	// RestartService is a Service's verb; Restart is that of its workflow.
	RestartService = "restart"
	Delete         = "delete"
	// Promote and Abort are of rollouts that go on in steps of their own: `converge rollout promote`.
	Promote = "promote"
	Abort   = "abort"
)

// Rules of the installation are set by a verb of its own.
const (
	Configure = "configure"
)

// PublishLibrary is an Installation's verb: a library is published under its name and version (LibraryRequest).
const PublishLibrary = "publish-library"

// TakeOver is what a grant says of a publication that moves an application to another directory or store.
const TakeOver = "takeOver"

// Signals between workflows, and of workers to them; nobody else sends them.
const (
	SignalScopePause = "scope-pause" // Application, Runtime or Installation → Service: a pause of it begins or ends (ScopePause)
	SignalGranted    = "granted"     // Runtime → Service: a lease is granted (LeaseSignal)
	SignalHeld       = "held"        // Runtime → Service: is this lease still held? (LeaseSignal)

	SignalWake = "wake" // a worker → any: have a look whether this run should end (Wake)

	SignalLease = "request" // Service → Runtime: a lease is wanted (LeaseRequest)
	SignalKeep  = "keep"    // Service → Runtime: it is still held (LeaseSignal)
	SignalGive  = "release" // Service → Runtime: a lease is given back (LeaseSignal)
)

// Grant is a Runtime's verb: a person lets a lease that waits go first, beyond the limit (LeaseAct).
// A Runtime's `request` and `release` are Updates as well.
const Grant = "grant"

// Drain and TurnUp are a Runtime's verbs: what runs there leaves, and comes back (DrainRequest).
const (
	Drain  = "drain"
	TurnUp = "turnup"
)

// Unmanage and Manage are an Application's verbs: its services are kept down, and looked after again (ManageRequest).
const (
	Unmanage = "unmanage"
	Manage   = "manage"
)

// Queries: all answer from workflow state alone.
const (
	QueryStatus  = "status"
	QueryExplain = "explain"
	QueryHistory = "history" // the audit lines that are not in the store yet
	QueryState   = "state"   // the whole state but for what waits to be carried out, to be played forward
	// QueryTerminated answers what of a service runs and is to end at once, to the activities that are asked to end.
	QueryTerminated = "terminated"
	// QueryPlaced answers where a service is, to who drains a runtime (Placed).
	QueryPlaced = "placed"
	// QueryConfigured answers how far a service is with the configuration of an incarnation, which is asked for (Configured).
	QueryConfigured = "configured"
	// QueryDeployed answers how far a service is with what a plan deploys (DeployedQuestion, Deployed).
	QueryDeployed = "deployed"
	// QueryCheckpoint has the state handed over to be kept in the store, unless the workflow is in the middle of something, and
	// answers whether it was. Nothing changes for the workflow.
	QueryCheckpoint = "checkpoint"
)

// Activities, called by name so that no runtime's SDK enters the workflows' build.
const (
	ActivityLoadSpec   = "LoadSpec" // local
	ActivityPrepare    = "Prepare"  // local
	ActivityObserve    = "Observe"
	ActivityObserveAll = "ObserveAll" // Observe of several runtimes
	ActivityApply      = "Apply"
	ActivityPreview    = "Preview"
	ActivityNotify     = "Notify"
	ActivitySpill      = "Spill"   // local
	ActivityRestore    = "Restore" // local
	ActivityAdopt      = "Adopt"   // local: the newest checkpoint of a workflow

	ActivityCheck     = "Check"     // observes checks, without history while nothing changes
	ActivityPreflight = "Preflight" // evaluates checks once, now
	ActivityExtension = "Extension"
	ActivityRemove    = "Remove"
	ActivitySteer     = "Steer"    // has a rollout go on, or go back
	ActivityVerify    = "Verify"   // local: who a token proves
	ActivityLease     = "Lease"    // local: signals a Runtime workflow, starting it when there is none
	ActivityHistory   = "History"  // local: appends audit lines to the store
	ActivityAnnounce  = "Announce" // sends an audit line to webhooks
	ActivityPause     = "Pause"    // announces a pause to the services of an application or a runtime
	ActivityDrain     = "Drain"    // tells services in which order they leave a runtime, and come back
	ActivityAlone     = "Alone"    // of which channels nothing would be left without a runtime
	ActivityUnmanage  = "Unmanage" // ends the workflows of services that are kept down
	ActivityPropose   = "Propose"  // local: writes down a joint release
	ActivityDecide    = "Decide"   // asks services for their parts of a joint release, decides, and has them carry that out
	ActivityReserve   = "Reserve"  // local: tries a service's part of a joint release
	ActivityOutcome   = "Outcome"  // local: what was decided of a joint release

	ActivityRules     = "Rules"     // local: the rules of the installation
	ActivityConfigure = "Configure" // local: keeps them
	ActivityConfirm   = "Confirm"   // local: what the store has of a publication
	ActivityInForce   = "InForce"   // local: the pause of something wider that is in force
	ActivityGranted   = "Granted"   // local: whether a runtime has granted a lease
	ActivityBaseline  = "Baseline"  // has services look what is in force, since the baseline is another one
	ActivityLibrary   = "Library"   // local: keeps that a library is published

	ActivityPlanBegin    = "PlanBegin"    // local: what a plan does, and how far it is
	ActivityPlanKeep     = "PlanKeep"     // local: keeps how far it is, and grants entry
	ActivityPlanFollow   = "PlanFollow"   // follows what is deployed
	ActivityPlanCommands = "PlanCommands" // local: what runs for a piece of work
	ActivityPlanRun      = "PlanRun"      // runs it
)

// Search attributes.
const (
	AttrApplication = "ConvergeApplication"
	AttrService     = "ConvergeService"
	AttrStatus      = "ConvergeStatus"
	AttrVersion     = "ConvergeVersion"
	AttrWaitingFor  = "ConvergeWaitingFor"
)

// Error types of refused updates and failed activities, for callers that must tell them apart.
const (
	ErrRefused   = "Refused"   // the request is wrong or not possible now; nothing changed
	ErrDamaged   = "Damaged"   // something in the store is damaged; it has to be written again first
	ErrStore     = "Store"     // the store did not answer in time; nothing changed, try again
	ErrIssuer    = "Issuer"    // whoever issues tokens did not answer in time; nothing changed, try again
	ErrUnchanged = "Unchanged" // benign: a reading that is as known
)
