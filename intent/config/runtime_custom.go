package config

// RuntimeCustom is a runtime made of commands. They start in the directory of this file, without a shell.
type RuntimeCustom struct {
	// The command that moves a service to a version.
	Apply ApplyCommand `json:"apply"`
	// The command that says what is there. Without it, apply runs once for each version and its
	// success is the state.
	Fetch *FetchCommand `json:"fetch,omitempty"`
	// The command that takes a service down. Without it, nothing that runs here can be removed.
	Remove *RemoveCommand `json:"remove,omitempty"`
	// The command that says what apply would change. Without it, nobody can.
	Plan *PlanCommand `json:"plan,omitempty"`
	// The command that notices changes. Without it, they are found when fetch runs next.
	Watch *WatchCommand `json:"watch,omitempty"`
	// Environment variables for the commands.
	Env map[OwnEnvName]EnvValue `json:"env,omitempty"`
	// Runs the commands as Kubernetes Jobs, in an image, instead of on the worker's machine.
	Job *CommandJob `json:"job,omitempty"`
	// Runs the commands as tasks of Amazon ECS instead. Their env holds no secrets then: who may describe the task reads it.
	Task *CommandTask `json:"task,omitempty"`
	// The same as maxConcurrentApplies of the runtime; one of the two may be given.
	MaxConcurrentApplies *int `json:"maxConcurrentApplies,omitempty" jsonschema:"minimum=1"`
	Pace
}

// Program is a program and its arguments, under one of two names.
type Program struct {
	// The program and its arguments.
	Command []string `json:"command,omitempty"`
	// The same, as {cmd: [...]}: what configurations for other deployers call it.
	Program *ProgramCmd `json:"program,omitempty"`
}

// ProgramCmd is the other spelling of a command.
type ProgramCmd struct {
	// The program and its arguments.
	Cmd []string `json:"cmd"`
}

// ApplyCommand moves a service to a version.
type ApplyCommand struct {
	Program
	// A workflow of your own, in the place of a command.
	Workflow *ApplyWorkflow `json:"workflow,omitempty"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10m"`
	// When given, any other exit code but 0 has failed for good; when not, every failure is tried
	// again.
	RetryableExitCodes []int `json:"retryableExitCodes,omitempty"`
}

// ApplyWorkflow is a Temporal workflow that applies. It runs in the namespace of Converge's worker, by workers of its own.
type ApplyWorkflow struct {
	// The name of the workflow type.
	Type string `json:"type"`
	// The task queue that its workers poll.
	TaskQueue string `json:"taskQueue"`
}

// RemoveCommand takes a service down.
type RemoveCommand struct {
	Program
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10m"`
}

// FetchCommand says what is there.
type FetchCommand struct {
	Program
	// How it answers: structured prints a JSON document, exitCode exits with 0 for nothing to do and
	// 2 for something to do.
	Mode FetchMode `json:"mode,omitempty"`
	// What configurations for other deployers call it. A program without it answers by exit codes.
	FetchMode OtherFetchMode `json:"fetchMode,omitempty"`
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=30s"`
}

// PlanCommand prints a JSON document of what apply would change, and changes nothing.
type PlanCommand struct {
	Program
	// How long it may take.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=1m"`
}

// WatchCommand goes on for as long as the worker does, and prints a line when something may have changed: the service and the
// channel, such as "web prod", or nothing more, for all that runs here.
type WatchCommand struct {
	Program
}

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
	// What the pods ask of a node and may use of it, as in Kubernetes.
	Resources *JobResources `json:"resources,omitempty"`
	// Labels that a node must have, as in Kubernetes.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Taints of nodes that the pods tolerate, as in Kubernetes.
	Tolerations []JobToleration `json:"tolerations,omitempty"`
	// Labels of the Jobs and their pods.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the Jobs and their pods.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Names of Secrets in the namespace with which the image is pulled.
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// The PriorityClass of the pods.
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// What the pods may, as in Kubernetes.
	PodSecurityContext *JobPodSecurity `json:"podSecurityContext,omitempty"`
	// What the container that runs the command may, as in Kubernetes.
	SecurityContext *JobSecurity `json:"securityContext,omitempty"`
}

// JobResources are quantities by resource: {cpu: 500m, memory: 256Mi}.
type JobResources struct {
	// What is set aside for each pod.
	Requests map[string]string `json:"requests,omitempty"`
	// What a pod may use at most.
	Limits map[string]string `json:"limits,omitempty"`
}

// JobToleration is a taint that is tolerated.
type JobToleration struct {
	// The key of the taint; any when not given.
	Key string `json:"key,omitempty"`
	// How the value is compared.
	Operator TolerationOperator `json:"operator,omitempty" jsonschema:"default=Equal"`
	// The value of the taint.
	Value string `json:"value,omitempty"`
	// The effect of the taint; any when not given.
	Effect TaintEffect `json:"effect,omitempty"`
}

// TolerationOperator is Equal or Exists.
type TolerationOperator string

// Values lists what may stand in the file.
func (TolerationOperator) Values() []string { return []string{"Equal", "Exists"} }

// TaintEffect is what a taint does.
type TaintEffect string

// Values lists what may stand in the file.
func (TaintEffect) Values() []string { return []string{"NoSchedule", "PreferNoSchedule", "NoExecute"} }
