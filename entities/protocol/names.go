// Package protocol is the public interface between the CLI, other tools and the workflows: ids, names and payloads of workflows, updates,
// signals, queries and activities. It contains only data, so a client needs nothing else. docs/protocol.md documents it.
package protocol

import "strings"

// TaskQueue is the task queue of workflows and, by default, of all activities.
const TaskQueue = "converge"

// RuntimeTaskQueue is the task queue for the activities of a runtime with `worker: remote`.
func RuntimeTaskQueue(runtime string) string { return "runtime/" + runtime }

// OwnTaskQueue reports whether only workers of Converge poll a queue, so that no other workflow may be started on it.
func OwnTaskQueue(queue string) bool {
	return queue == TaskQueue || strings.HasPrefix(queue, RuntimeTaskQueue(""))
}

// ApplyWorkflowID is the id of the user's workflow that applies an instance on a runtime. Only one runs at a time. one is the instance's
// key and the runtime: "shop/web/prod/main/edge".
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

// InstallationID is the workflow id of the installation. A namespace has only one.
func InstallationID() string { return "installation" }

// ServiceID is the workflow id of a service.
func ServiceID(application, service string) string { return "service/" + application + "/" + service }

// ApplicationID is the workflow id of an application.
func ApplicationID(application string) string { return "application/" + application }

// PreviewID is the workflow id of one preview; service is "*" for several services.
func PreviewID(application, service, id string) string {
	return "preview/" + application + "/" + service + "/" + id
}

// ShortID returns the name of a service for people, from its workflow id: application/service.
func ShortID(id string) string {
	if application, service, ok := ParseServiceID(id); ok {
		return application + "/" + service
	}
	return id
}

// ParseServiceID splits a service's workflow id.
func ParseServiceID(id string) (application, service string, ok bool) {
	rest, ok := strings.CutPrefix(id, "service/")
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "/")
}

// ParseRuntimeID is the reverse of RuntimeID.
func ParseRuntimeID(id string) (runtime string, ok bool) { return strings.CutPrefix(id, "runtime/") }

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
	// RestartService is a Service's verb; Restart is the record of a restarted workflow.
	RestartService = "restart"
	Delete         = "delete"
	// Adopt and Return hand a service over in a report-only channel, to Converge and back.
	Adopt  = "adopt"
	Return = "return"
	// Promote and Abort control rollouts with their own steps: `converge promote`.
	Promote = "promote"
	Abort   = "abort"
)

// Rules of the installation are set by a separate verb.
const (
	Configure = "configure"
)

// PublishLibrary is an Installation's verb: it publishes a library under its name and version (LibraryRequest).
const PublishLibrary = "publish-library"

// TakeOver is the verb that a grant names for a publication that moves an application to another directory or store.
const TakeOver = "takeOver"

// PinApplication is the verb that a grant names for pinning a whole application, and for ending that. Without such a grant it is Pin or
// Unpin.
const PinApplication = "pinApplication"

// Signals between workflows, and from workers to workflows. Other clients do not send them.
const (
	SignalScopePause = "scope-pause" // Application, Runtime or Installation → Service: a pause of it begins or ends (ScopePause)
	SignalGranted    = "granted"     // Runtime → Service: a lease is granted (LeaseSignal)
	SignalHeld       = "held"        // Runtime → Service: is this lease still held? (LeaseSignal)

	SignalWake = "wake" // a worker → any: check whether this run should end (Wake)

	SignalLease = "request" // Service → Runtime: a lease is requested (LeaseRequest)
	SignalKeep  = "keep"    // Service → Runtime: it is still held (LeaseSignal)
	SignalGive  = "release" // Service → Runtime: a lease is returned (LeaseSignal)
)

// Grant is a Runtime's verb: a user grants a waiting lease at once, beyond the limit (LeaseActionRequest). A Runtime's `request` and
// `release` are Updates as well.
const Grant = "grant"

// Drain and Restore are a Runtime's verbs: its services leave, and return (DrainRequest).
const (
	Drain   = "drain"
	Restore = "restore"
)

// Unmanage and Manage are an Application's verbs: they stop and resume the management of services (ManageRequest).
const (
	Unmanage = "unmanage"
	Manage   = "manage"
)

// Queries: all are answered from workflow state alone.
const (
	QueryStatus  = "status"
	QueryExplain = "explain"
	QueryHistory = "history" // the audit entries that are not in the store yet
	QueryState   = "state"   // the whole state without pending requests, for simulations
	// QueryTerminated returns the running activities of a service that must end at once. These activities send it.
	QueryTerminated = "terminated"
	// QueryPlaced returns where a service runs, for a drain (Placement).
	QueryPlaced = "placed"
	// QueryConfigured returns how far a service is with the configuration of a given incarnation (Configured).
	QueryConfigured = "configured"
	// QueryDeployed returns how far a service is with a plan's deployment (DeployedQuestion, Deployed).
	QueryDeployed = "deployed"
	// QueryCheckpoint submits the state to be stored, unless the workflow is in the middle of a step, and returns a CheckpointPosition. The
	// workflow does not change.
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
	ActivitySteer     = "Steer"    // promotes or aborts a rollout
	ActivityVerify    = "Verify"   // local: verifies a token
	ActivityLease     = "Lease"    // local: signals a Runtime workflow, and starts it if there is none
	ActivityHistory   = "History"  // local: appends audit entries to the store
	ActivityAnnounce  = "Announce" // sends an audit entry to webhooks
	ActivityPause     = "Pause"    // announces a pause to the services of an application or a runtime
	ActivityDrain     = "Drain"    // notifies services of the order in which they leave a runtime, and return
	ActivityAlone     = "Alone"    // finds channels that would have nothing left without a runtime
	ActivityUnmanage  = "Unmanage" // ends the workflows of unmanaged services
	ActivityPropose   = "Propose"  // local: records a joint release
	ActivityDecide    = "Decide"   // requests the parts of a joint release from services, decides, and makes them carry it out
	ActivityReserve   = "Reserve"  // local: tests a service's part of a joint release
	ActivityOutcome   = "Outcome"  // local: the decision about a joint release

	ActivityRules     = "Rules"     // local: the rules of the installation
	ActivityConfigure = "Configure" // local: stores them
	ActivityConfirm   = "Confirm"   // local: reads a publication from the store
	ActivityInForce   = "InForce"   // local: the pause of a wider scope that is in force
	ActivityGranted   = "Granted"   // local: whether a runtime has granted a lease
	ActivityBaseline  = "Baseline"  // makes services reread the rules after a change of the baseline
	ActivityLibrary   = "Library"   // local: records a published library

	ActivityPlanBegin    = "PlanBegin"    // local: the graph and the state of a plan
	ActivityPlanKeep     = "PlanKeep"     // local: stores the state of a plan, and grants entry
	ActivityPlanFollow   = "PlanFollow"   // follows the deployments of a plan
	ActivityPlanCommands = "PlanCommands" // local: the commands of a work item
	ActivityPlanRun      = "PlanRun"      // runs one of them
)

// Search attributes.
const (
	AttrApplication = "ConvergeApplication"
	AttrService     = "ConvergeService"
	AttrStatus      = "ConvergeStatus"
	AttrVersion     = "ConvergeVersion"
	AttrWaitingFor  = "ConvergeWaitingFor"
	AttrChanged     = "ConvergeChanged" // when one of the others last changed
)

// Error types of refused updates and failed activities, for callers that need to distinguish them.
const (
	ErrRefused   = "Refused"   // the request is invalid or not possible now; nothing changed
	ErrDamaged   = "Damaged"   // something in the store is damaged; it has to be written again first
	ErrStore     = "Store"     // the store did not answer in time; nothing changed, try again
	ErrTimeout   = "Timeout"   // a local activity ran into its deadline
	ErrIssuer    = "Issuer"    // the token issuer did not answer in time; nothing changed, try again
	ErrUnchanged = "Unchanged" // benign: a reading that equals the known one
	ErrPutOff    = "PutOff"    // benign: a change that has not begun, because the Temporal server is overloaded
)
