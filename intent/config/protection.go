package config

// Protection is an evaluation of a release that several places can refer to. It has exactly one kind.
type Protection struct {
	Header
	// A description of the protection.
	Description string `json:"description,omitempty"`
	// Values that a reference may set, and that the protection's texts may use as ${{ params.NAME }}. A parameter without a default must
	// be set.
	Parameters []Parameter `json:"parameters,omitempty"`
	ProtectionKind
}

// ProtectionUse is a protection of release channels: inline, or by reference.
type ProtectionUse struct {
	ProtectionItem
	// The stages of a release at which it is evaluated: by default preApproval and postApproval for allowedTimes, deniedVersions and
	// always, preApproval for the others. Immediately before an apply, all of them are evaluated again.
	Lifecycle []ProtectionStage `json:"lifecycle,omitempty"`
	// Whether repairs of drift also evaluate it. By default only freezes (allowedTimes with nothing but freezes) and capacity do.
	Repairs *bool `json:"repairs,omitempty"`
}

// PostconditionUse is a condition that must be true after the objects are stable, before a release counts as succeeded: inline, or by
// reference, like a protection.
type PostconditionUse struct {
	ProtectionItem
	// How long it may wait after the objects are stable and all windows of postDeployment have ended. Then the release fails. By default
	// the progressDeadline.
	Within Duration `json:"within,omitempty"`
}

// ProtectionItem contains the common fields of a protection and a postcondition.
type ProtectionItem struct {
	// The name that explain shows and bypass accepts, unique in a channel; by default the name of the referenced Protection.
	Name Name `json:"name,omitempty"`
	// The name of a Protection.
	Ref Name `json:"ref,omitempty"`
	// Values for the parameters of the referenced Protection.
	Parameters map[ParameterName]Literal `json:"parameters,omitempty"`
	ProtectionKind
	// The time between evaluations while a release waits for it: 30s; 1m for job and task, and 5m for allowedTimes, deniedVersions and
	// always, which know when they change.
	Interval Duration `json:"interval,omitempty"`
	// Where it is evaluated: in any worker (local), or in the worker of the channel's runtime (remote).
	Worker WorkerLocation `json:"worker,omitempty" jsonschema:"default=local"`
}

// ProtectionStage is a stage of a release at which a protection is evaluated. Exactly one field is set.
type ProtectionStage struct {
	// Before approvals are requested.
	PreApproval *NoSettings `json:"preApproval,omitempty"`
	// After the approvals.
	PostApproval *NoSettings `json:"postApproval,omitempty"`
	// Immediately before the deployment, or during it.
	Deployment *DuringDeployment `json:"deployment,omitempty"`
	// After the objects are stable.
	PostDeployment *AfterDeployment `json:"postDeployment,omitempty"`
}

// NoSettings is a mapping without fields: {}.
type NoSettings struct{}

// DuringDeployment configures the effect of a protection on a deployment.
type DuringDeployment struct {
	// Block prevents the start of the deployment; fail also fails the release if the protection does not pass during the deployment.
	OnFailure OnFailure `json:"onFailure,omitempty" jsonschema:"default=block"`
}

// AfterDeployment is the window after a deployment in which a protection must pass. Any other result fails the release in the channel,
// except errors of the protection itself, which delay it.
type AfterDeployment struct {
	// The time between stable objects and the start of the window.
	Delay Duration `json:"delay,omitempty"`
	// The length of the window.
	For Duration `json:"for"`
}

// OnFailure is block or fail.
type OnFailure string

// Values lists the allowed values.
func (OnFailure) Values() []string { return []string{"block", "fail"} }
