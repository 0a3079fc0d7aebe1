package config

import "cmp"

// Extension is a command that runs once for each release, and that several places share by reference.
type Extension struct {
	Header
	// What it does, for people.
	Description string `json:"description,omitempty"`
	// Values that whoever refers to it may set, and that its texts may use as ${{ params.NAME }}. One
	// without a default must be set.
	Parameters []Parameter `json:"parameters,omitempty"`
	ExtensionRun
}

// ExtensionUse is an extension of release channels: written out, or by reference.
type ExtensionUse struct {
	// Its name, unique in a channel; the name of what is referred to when not given.
	Name Name `json:"name,omitempty"`
	// The name of an Extension.
	Ref Name `json:"ref,omitempty"`
	// Values for the parameters of what is referred to.
	Parameters map[ParameterName]Literal `json:"parameters,omitempty"`
	// When in the life of a release it runs. What comes after that waits until it has succeeded. With rollback it runs once the
	// release was taken back and what was good before is there; nothing waits for it.
	Lifecycle ExtensionStage `json:"lifecycle"`
	// At postDeployment: it runs again so long after it ended, while the release stays. Nothing waits for that.
	Every Duration `json:"every,omitempty"`
	// Other extensions of the channel that must have succeeded before, at the same stage or an earlier
	// one.
	DependsOn []Name `json:"dependsOn,omitempty"`
	ExtensionRun
}

// ExtensionRun is what runs. With a reference only timeout, retry and sharedInstanceKey may be given,
// and win.
type ExtensionRun struct {
	CommandRun
	// Channels with the same key share one run: "${{ labels.tier }}". The channel's name when not given.
	SharedInstanceKey string `json:"sharedInstanceKey,omitempty"`
	// The names of what it reports, which what comes after it may use as ${{ outputs.EXTENSION.NAME }}.
	Outputs []ParameterName `json:"outputs,omitempty"`
}

// CommandRun is a command, and where and how it runs.
type CommandRun struct {
	// The program and its arguments. It starts in the directory of this file, without a shell.
	Command []string `json:"command,omitempty"`
	// Environment variables for it.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// Runs it as a Kubernetes Job, in an image, instead of on the worker's machine.
	Job *CommandJob `json:"job,omitempty"`
	// Runs it as a task of Amazon ECS instead. Its env holds no secrets then: who may describe the task reads it.
	Task *CommandTask `json:"task,omitempty"`
	// Where it runs: in any worker (local), or in the worker of the channel's runtime (remote).
	Worker WorkerLocation `json:"worker,omitempty" jsonschema:"default=local"`
	// How long one attempt may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10m"`
	// How a failed attempt is tried again.
	Retry *Retry `json:"retry,omitempty"`
}

// ExtensionStage is a stage in the life of a release at which an extension runs.
type ExtensionStage string

// Values lists what may stand in the file.
func (ExtensionStage) Values() []string {
	return []string{"preApproval", "postApproval", "postDeployment", "rollback"}
}

// Overridden is what a reference runs.
func (e Extension) Overridden(by ExtensionRun) ExtensionRun {
	run := e.ExtensionRun
	run.SharedInstanceKey = cmp.Or(by.SharedInstanceKey, run.SharedInstanceKey)
	run.Timeout = Duration(cmp.Or(string(by.Timeout), string(run.Timeout)))
	if by.Retry != nil {
		run.Retry = by.Retry
	}
	return run
}
