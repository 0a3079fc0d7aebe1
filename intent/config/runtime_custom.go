package config

// RuntimeCustom is a runtime that consists of commands. They start in the directory of this file, without a shell.
type RuntimeCustom struct {
	// The command that moves a service to a version.
	Apply ApplyCommand `json:"apply"`
	// The command that reports the current state. Without it, apply runs once for each version and its success is the state.
	Fetch *FetchCommand `json:"fetch,omitempty"`
	// The command that removes a service. Without it, services cannot be removed here.
	Remove *RemoveCommand `json:"remove,omitempty"`
	// The command that shows the changes of an apply. Without it, changes cannot be shown.
	Plan *PlanCommand `json:"plan,omitempty"`
	// The command that watches for changes. Without it, changes are found by the next fetch.
	Watch *WatchCommand `json:"watch,omitempty"`
	// Environment variables for the commands.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// Runs the commands as Kubernetes Jobs, in an image, instead of on the worker's machine.
	Job *CommandJob `json:"job,omitempty"`
	// Runs the commands as Amazon ECS tasks instead. Their env must not contain secrets, because everybody who may describe the task can
	// read them.
	Task *CommandTask `json:"task,omitempty"`
	// The same as maxConcurrentApplies of the runtime; only one of the two may be set.
	MaxConcurrentApplies *int `json:"maxConcurrentApplies,omitempty" jsonschema:"minimum=1"`
	Pace
}

// Program is a program and its arguments, under either of two names.
type Program struct {
	// The program and its arguments.
	Command []string `json:"command,omitempty"`
	// The same, written as {cmd: [...]}, for compatibility with configurations of other deployers.
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
	// Your own workflow, instead of a command.
	Workflow *ApplyWorkflow `json:"workflow,omitempty"`
	// The timeout.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10m"`
	// If set, any other exit code except 0 is a permanent failure. If not set, every failure is retried.
	RetryableExitCodes []int `json:"retryableExitCodes,omitempty"`
}

// ApplyWorkflow is a Temporal workflow that applies. It runs in the namespace of Converge's worker, on its own workers.
type ApplyWorkflow struct {
	// The name of the workflow type.
	Type string `json:"type"`
	// The task queue that its workers poll.
	TaskQueue string `json:"taskQueue"`
}

// RemoveCommand removes a service.
type RemoveCommand struct {
	Program
	// The timeout.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=10m"`
}

// FetchCommand reports the current state.
type FetchCommand struct {
	Program
	// The format of the result: structured prints a JSON document, exitCode exits with 0 if there is nothing to do and 2 if there is
	// something to do.
	Mode FetchMode `json:"mode,omitempty"`
	// The same, for compatibility with configurations of other deployers. A program without it uses exit codes.
	FetchMode OtherFetchMode `json:"fetchMode,omitempty"`
	// The timeout.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=30s"`
}

// PlanCommand prints a JSON document with the changes of an apply, and changes nothing.
type PlanCommand struct {
	Program
	// The timeout.
	Timeout Duration `json:"timeout,omitempty" jsonschema:"default=1m"`
}

// WatchCommand runs as long as the worker, and prints a line when something may have changed: the service and the channel, such as "web
// prod", or an empty line for everything on this runtime.
type WatchCommand struct {
	Program
}

// CommandJob configures commands that run as Kubernetes Jobs. Kubeconfig and context select the cluster, as in a runtime of kind
// kubernetes.
type CommandJob struct {
	// The path of a kubeconfig, relative to this file. Without it the worker's environment selects the cluster.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// The context in it; by default its current context.
	Context string `json:"context,omitempty"`
	// The namespace of the Jobs.
	Namespace string `json:"namespace"`
	// The image that contains the commands.
	Image string `json:"image"`
	// The service account of the Jobs' pods. Without it they get no token.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// The path of converge-wrapper in the image, which separates stdout and stderr. Without it the log is used unchanged.
	Wrapper string `json:"wrapper,omitempty"`
	// The resource requests and limits of the pods, as in Kubernetes.
	Resources *JobResources `json:"resources,omitempty"`
	// Labels that a node must have, as in Kubernetes.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Taints of nodes that the pods tolerate, as in Kubernetes.
	Tolerations []JobToleration `json:"tolerations,omitempty"`
	// Labels of the Jobs and their pods.
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations of the Jobs and their pods.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Names of Secrets in the namespace for pulling the image.
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// The PriorityClass of the pods.
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// The security context of the pods, as in Kubernetes.
	PodSecurityContext *JobPodSecurity `json:"podSecurityContext,omitempty"`
	// The security context of the command's container, as in Kubernetes.
	SecurityContext *JobSecurity `json:"securityContext,omitempty"`
}

// JobResources are quantities by resource: {cpu: 500m, memory: 256Mi}.
type JobResources struct {
	// The resources that are reserved for each pod.
	Requests map[string]string `json:"requests,omitempty"`
	// The maximum resources of a pod.
	Limits map[string]string `json:"limits,omitempty"`
}

// JobToleration is a toleration of a taint.
type JobToleration struct {
	// The key of the taint; by default any.
	Key string `json:"key,omitempty"`
	// The comparison of the value.
	Operator TolerationOperator `json:"operator,omitempty" jsonschema:"default=Equal"`
	// The value of the taint.
	Value string `json:"value,omitempty"`
	// The effect of the taint; by default any.
	Effect TaintEffect `json:"effect,omitempty"`
}

// TolerationOperator is Equal or Exists.
type TolerationOperator string

// Values lists the allowed values.
func (TolerationOperator) Values() []string { return []string{"Equal", "Exists"} }

// TaintEffect is the effect of a taint.
type TaintEffect string

// Values lists the allowed values.
func (TaintEffect) Values() []string { return []string{"NoSchedule", "PreferNoSchedule", "NoExecute"} }
