package config

// Protection is a way to evaluate a release that several places share by reference. It is evaluated by
// exactly one of its kinds.
type Protection struct {
	Header
	// What it protects from, for people.
	Description string `json:"description,omitempty"`
	// Values that whoever refers to it may set, and that its texts may use as ${{ params.NAME }}. One
	// without a default must be set.
	Parameters []Parameter `json:"parameters,omitempty"`
	ProtectionKind
}

// ProtectionUse is a protection of release channels: written out, or by reference.
type ProtectionUse struct {
	ProtectionItem
	// When in the life of a release it is asked: preApproval and postApproval for allowedTimes,
	// deniedVersions and always, preApproval for the others. Right before anything is applied, all of
	// them are asked once more.
	Lifecycle []ProtectionStage `json:"lifecycle,omitempty"`
	// Whether repairs of drift ask it too: freezes (allowedTimes with nothing but freezes) and capacity
	// do unless this says otherwise, others do not.
	Repairs *bool `json:"repairs,omitempty"`
}

// PostconditionUse is what must hold, once the objects are stable, for a release to have succeeded: written out, or by
// reference, as a protection.
type PostconditionUse struct {
	ProtectionItem
	// How long it may wait once the objects are stable and all windows of postDeployment have ended; then the release has failed.
	// The progressDeadline when not given.
	Within Duration `json:"within,omitempty"`
}

// ProtectionItem is what a protection and a postcondition have in common.
type ProtectionItem struct {
	// What explain shows and bypass names, unique in a channel; the name of what is referred to when
	// not given.
	Name Name `json:"name,omitempty"`
	// The name of a Protection.
	Ref Name `json:"ref,omitempty"`
	// Values for the parameters of what is referred to.
	Parameters map[ParameterName]Literal `json:"parameters,omitempty"`
	ProtectionKind
	// The time between readings while a release waits for it: 30s; 1m for job and task, and 5m for allowedTimes,
	// deniedVersions and always, which say themselves when they change.
	Interval Duration `json:"interval,omitempty"`
	// Where it is evaluated: in any worker (local), or in the worker of the channel's runtime (remote).
	Worker WorkerLocation `json:"worker,omitempty" jsonschema:"default=local"`
}

// ProtectionStage is a stage in the life of a release at which a protection is asked. Exactly one field
// is given.
type ProtectionStage struct {
	// Before people are asked to approve.
	PreApproval *NoSettings `json:"preApproval,omitempty"`
	// After they have.
	PostApproval *NoSettings `json:"postApproval,omitempty"`
	// Right before the deployment, or while it goes on.
	Deployment *DuringDeployment `json:"deployment,omitempty"`
	// After the objects became stable.
	PostDeployment *AfterDeployment `json:"postDeployment,omitempty"`
}

// NoSettings is a mapping without fields: {}.
type NoSettings struct{}

// DuringDeployment says what a protection does to a deployment.
type DuringDeployment struct {
	// Block keeps the deployment from beginning; fail also fails the release when the protection does
	// not pass while it is deploying.
	OnFailure OnFailure `json:"onFailure,omitempty" jsonschema:"default=block"`
}

// AfterDeployment is the window in which a protection must pass after a deployment. Anything but
// passing in it fails the release in the channel, except errors of the protection itself, which delay.
type AfterDeployment struct {
	// How long after the objects became stable it begins.
	Delay Duration `json:"delay,omitempty"`
	// How long it lasts.
	For Duration `json:"for"`
}

// OnFailure is block or fail.
type OnFailure string

// Values lists what may stand in the file.
func (OnFailure) Values() []string { return []string{"block", "fail"} }
