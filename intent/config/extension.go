package config

import "cmp"

// Extension is a command that runs once for each release, and that several places can refer to.
type Extension struct {
	Header
	// A description of the extension.
	Description string `json:"description,omitempty"`
	// Values that a reference may set, and that the extension's texts may use as ${{ params.NAME }}. A parameter without a default must
	// be set.
	Parameters []Parameter `json:"parameters,omitempty"`
	ExtensionRun
}

// ExtensionUse is an extension of release channels: inline, or by reference.
type ExtensionUse struct {
	// Its name, unique in a channel; by default the name of the referenced Extension.
	Name Name `json:"name,omitempty"`
	// The name of an Extension.
	Ref Name `json:"ref,omitempty"`
	// Values for the parameters of the referenced Extension.
	Parameters map[ParameterName]Literal `json:"parameters,omitempty"`
	// The stage of a release at which it runs. Later stages wait until it has succeeded. With rollback it runs after the release was
	// rolled back and the previous good release is deployed; nothing waits for it.
	Lifecycle ExtensionStage `json:"lifecycle"`
	// At postDeployment: the interval between the end of a run and the next run, while the release stays. Nothing waits for these runs.
	Every Duration `json:"every,omitempty"`
	// Other extensions of the channel that must have succeeded first, at the same stage or an earlier one.
	DependsOn []Name `json:"dependsOn,omitempty"`
	ExtensionRun
}

// ExtensionRun is the run of an extension. With a reference only timeout, retry and sharedInstanceKey may be set, and override it.
type ExtensionRun struct {
	CommandRun
	// Channels with the same key share one run: "${{ labels.tier }}". By default the channel's name.
	SharedInstanceKey string `json:"sharedInstanceKey,omitempty"`
	// The names of its outputs, which later steps may use as ${{ outputs.EXTENSION.NAME }}.
	Outputs []ParameterName `json:"outputs,omitempty"`
}

// CommandRun is a command, and where and how it runs.
type CommandRun struct {
	// The program and its arguments. It starts in the directory of this file, without a shell.
	Command []string `json:"command,omitempty"`
	// Environment variables for it.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// Runs the command as a Kubernetes Job, in an image, instead of on the worker's machine.
	Job *CommandJob `json:"job,omitempty"`
	// Runs the command as an Amazon ECS task instead. Its env must not contain secrets, because everybody who may describe the task can
	// read them.
	Task *CommandTask `json:"task,omitempty"`
	// Where it runs: in any worker (local), or in the worker of the channel's runtime (remote).
	Worker WorkerLocation `json:"worker,omitempty" jsonschema:"default=local"`
	// The timeout of one attempt.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10m"`
	// How a failed attempt is retried.
	Retry *Retry `json:"retry,omitempty"`
}

// ExtensionStage is a stage of a release at which an extension runs.
type ExtensionStage string

// Values lists the allowed values.
func (ExtensionStage) Values() []string {
	return []string{"preApproval", "postApproval", "postDeployment", "rollback"}
}

// Overridden returns the run of a reference: the extension with the reference's overrides.
func (e Extension) Overridden(by ExtensionRun) ExtensionRun {
	run := e.ExtensionRun
	run.SharedInstanceKey = cmp.Or(by.SharedInstanceKey, run.SharedInstanceKey)
	run.Timeout = Duration(cmp.Or(string(by.Timeout), string(run.Timeout)))
	if by.Retry != nil {
		run.Retry = by.Retry
	}
	return run
}
