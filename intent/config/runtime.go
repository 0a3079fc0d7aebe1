package config

import (
	"regexp"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// Runtime is a connection to where services run. It is published on its own and owned by the
// application that first defines it; changing it releases nothing.
type Runtime struct {
	Header
	// A runtime made of commands.
	Custom *RuntimeCustom `json:"custom,omitempty"`
	// A Kubernetes cluster.
	Kubernetes *RuntimeKubernetes `json:"kubernetes,omitempty"`
	// A cluster of Amazon ECS.
	ECS *RuntimeECS `json:"ecs,omitempty"`
	// A runtime in memory, for tests and simulations.
	Fake *RuntimeFake `json:"fake,omitempty" jsonschema:"-"`
	// Where its commands run: in any worker (local), or only in a worker started for this runtime
	// (remote), which needs a store that it can reach.
	Worker WorkerLocation `json:"worker,omitempty" jsonschema:"default=local"`
	// How many applies may run on it at once, over all services of all applications; no bound when not
	// given.
	MaxConcurrentApplies *int `json:"maxConcurrentApplies,omitempty" jsonschema:"minimum=1"`
	// Whether a person approves every apply, those of repairs and further attempts included.
	Approval ApprovalRule `json:"approval,omitempty" jsonschema:"default=none"`
	// Whether releases that fail on it are rolled back by themselves; false holds for every service.
	AutoRollback *bool `json:"autoRollback,omitempty" jsonschema:"default=true"`
	// Who may use it, and for what. Without it, everybody may for everything.
	Allow *RuntimeAllow `json:"allow,omitempty"`
}

// RuntimeAllow says who may use a runtime. A list that is not given allows all; in names * stands for anything.
type RuntimeAllow struct {
	// The applications, beside the one that defines it.
	Applications []NamePattern `json:"applications,omitempty"`
	// The namespaces of instances and of their objects. Objects of the whole cluster are then allowed only where their kind
	// is listed by its full name.
	Namespaces []NamePattern `json:"namespaces,omitempty"`
	// The kinds of objects.
	Kinds []AllowedKind `json:"kinds,omitempty"`
	// The service accounts as which release channels may have it used. They must name one of them.
	ServiceAccounts []NamePattern `json:"serviceAccounts,omitempty"`
}

// AllowedKind is a kind of Kubernetes object.
type AllowedKind struct {
	// The API group; without it, that of the core (ConfigMap, Service).
	Group NamePattern `json:"group,omitempty"`
	// The kind.
	Kind NamePattern `json:"kind"`
}

// NamePattern is a name in which * stands for any part of one.
type NamePattern string

const namePatternPattern = `^[A-Za-z0-9*]([A-Za-z0-9*./-]*[A-Za-z0-9*])?$`

var namePatternRE = regexp.MustCompile(namePatternPattern)

// Pattern is for the JSON schema.
func (NamePattern) Pattern() string { return namePatternPattern }

// Check refuses what no name could be like.
func (p NamePattern) Check() *Fault {
	return strict.Unless(namePatternRE.MatchString(string(p)), "bad-name", "%q is no name, nor a pattern of names", string(p), "letters, digits, hyphens and dots, with * for any part of it")
}

// Planned names the fields that later versions accept.
func (Runtime) Planned() []string { return []string{"description"} }

// RuntimeCustom is a runtime made of commands. They start in the directory of this file, without a shell.
type RuntimeCustom struct {
	// The command that moves a service to a version.
	Apply ApplyCommand `json:"apply"`
	// The command that says what is there. Without it, apply runs once for each version and its
	// success is the state.
	Fetch *FetchCommand `json:"fetch,omitempty"`
	// The command that takes a service down. Without it, nothing that runs here can be removed.
	Remove *RemoveCommand `json:"remove,omitempty"`
	// Environment variables for the commands.
	Env map[OwnEnvName]EnvValue `json:"env,omitempty"`
	// Runs the commands as Kubernetes Jobs, in an image, instead of on the worker's machine.
	Job *CommandJob `json:"job,omitempty"`
	// The same as maxConcurrentApplies of the runtime; one of the two may be given.
	MaxConcurrentApplies *int `json:"maxConcurrentApplies,omitempty" jsonschema:"minimum=1"`
	Pace
}

// Planned names the fields that later versions accept.
func (RuntimeCustom) Planned() []string { return []string{"plan", "watch"} }

// RuntimeFake is a runtime in memory, for tests and simulations.
type RuntimeFake struct {
	Pace
}

// Pace is how often a runtime is asked, and how it is retried.
type Pace struct {
	// The time between readings while something moves.
	PollInterval Duration `json:"pollInterval,omitempty" jsonschema:"default=5s"`
	// The time between readings of what is steady.
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

// RemoveCommand takes a service down.
type RemoveCommand struct {
	// The program and its arguments.
	Command []string `json:"command"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10m"`
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

// ApprovalRule is none or everyApply.
type ApprovalRule string

// Values lists what may stand in the file.
func (ApprovalRule) Values() []string { return []string{"none", "everyApply"} }

// CommandJob is where commands run as Kubernetes Jobs. Kubeconfig and context say which cluster, as
// in a runtime of kind kubernetes.
type CommandJob struct {
	// The path of a kubeconfig, relative to this file. Without it the worker's own environment says
	// where the cluster is.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// The context in it; without it, its current one.
	Context string `json:"context,omitempty"`
	// The namespace of the Jobs.
	Namespace string `json:"namespace"`
	// The image that has the commands.
	Image string `json:"image"`
	// The service account of the Jobs' pods. Without it they get no token.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// The path of converge-wrapper in the image, which keeps stdout and stderr apart. Without it the
	// log is taken as it is.
	Wrapper string `json:"wrapper,omitempty"`
}

// Planned names the fields that later versions accept.
func (CommandJob) Planned() []string { return []string{"resources", "nodeSelector", "tolerations"} }

// Kinds counts the kinds that a runtime claims to be.
func (r Runtime) Kinds() int {
	n := 0
	for _, given := range []bool{r.Custom != nil, r.Kubernetes != nil, r.ECS != nil, r.Fake != nil} {
		if given {
			n++
		}
	}
	return n
}
