package intent

// Runtime is a connection to where services run. It is published on its own and owned by the
// application that first defines it; changing it releases nothing.
type Runtime struct {
	Header
	// A runtime made of commands.
	Custom *RuntimeCustom `json:"custom,omitempty"`
	// A Kubernetes cluster.
	Kubernetes *RuntimeKubernetes `json:"kubernetes,omitempty"`
	// A runtime in memory, for tests and simulations.
	Fake *RuntimeFake `json:"fake,omitempty" jsonschema:"-"`
	// Where its commands run: in any worker (local), or only in a worker started for this runtime
	// (remote), which needs a store that it can reach.
	Worker WorkerPlace `json:"worker,omitempty" jsonschema:"default=local"`
}

// Planned names the fields that later versions accept.
func (Runtime) Planned() []string {
	return []string{"ecs", "autoRollback", "maxConcurrentApplies", "approval", "description"}
}

// RuntimeCustom is a runtime made of commands. They start in the directory of this file, without a shell.
type RuntimeCustom struct {
	// The command that moves a service to a version.
	Apply ApplyCommand `json:"apply"`
	// The command that says what is there. Without it, apply runs once for each version and its
	// success is the state.
	Fetch *FetchCommand `json:"fetch,omitempty"`
	// Environment variables for both commands.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// Runs both commands as Kubernetes Jobs, in an image, instead of on the worker's machine.
	Job *CommandJob `json:"job,omitempty"`
	Pace
}

// Planned names the fields that later versions accept.
func (RuntimeCustom) Planned() []string {
	return []string{"maxConcurrentApplies", "approvalBeforeApply", "plan", "watch", "remove"}
}

// RuntimeFake is a runtime in memory, for tests and simulations.
type RuntimeFake struct {
	Pace
}

// Pace is how often a runtime is asked, and how it is retried.
type Pace struct {
	// The time between looks while something moves.
	PollInterval Duration `json:"pollInterval,omitempty" jsonschema:"default=5s"`
	// The time between looks at what is steady.
	SteadyPollInterval Duration `json:"steadyPollInterval,omitempty" jsonschema:"default=5m"`
	// How long after a successful apply its effect may stay invisible before it is applied again.
	GracePeriod Duration `json:"gracePeriod,omitempty" jsonschema:"default=10m"`
	// How a failed apply is tried again.
	Retry *Retry `json:"retry,omitempty"`
}

// ApplyCommand moves a service to a version.
type ApplyCommand struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10m"`
	// When given, any other exit code but 0 has failed for good; when not, every failure is tried
	// again.
	RetryableExitCodes []int `json:"retryableExitCodes,omitempty"`
}

// FetchCommand says what is there.
type FetchCommand struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// How it answers: structured prints a JSON document, exitCode exits with 0 for nothing to do and
	// 2 for something to do.
	Mode FetchMode `json:"mode"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=30s"`
}

// Retry is how a failed apply is tried again.
type Retry struct {
	// How often one target is applied before it has failed for good.
	MaxAttempts *int `json:"maxAttempts,omitempty" jsonschema:"default=5,minimum=1,maximum=100"`
	// The time before the second attempt; it doubles with each further one.
	Backoff Duration `json:"backoff,omitempty" jsonschema:"default=10s"`
	// The longest time between attempts.
	MaxBackoff Duration `json:"maxBackoff,omitempty" jsonschema:"default=5m"`
}
