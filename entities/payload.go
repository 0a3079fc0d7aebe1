package entities

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// RuntimeKind names an adapter under runtimes/.
type RuntimeKind string

// The kinds of runtime.
const (
	RuntimeCustom     RuntimeKind = "custom"
	RuntimeKubernetes RuntimeKind = "kubernetes"
	RuntimeECS        RuntimeKind = "ecs"
	RuntimeFake       RuntimeKind = "fake" // in memory: tests and simulate
)

// Payload is what a runtime receives for one service in one channel: rendered for one version,
// immutable, named by its digest. Everything else in the configuration is rules.
type Payload struct {
	Application string             `json:"application"`
	Service     string             `json:"service"`
	Channel     string             `json:"channel"`
	Runtime     string             `json:"runtime"`
	Kind        RuntimeKind        `json:"kind"`
	Address     map[string]string  `json:"address,omitempty"` // e.g. namespace: where on the runtime
	Parameters  map[string]any     `json:"parameters,omitempty"`
	Constants   map[string]string  `json:"constants,omitempty"`
	Custom      *CustomPayload     `json:"custom,omitempty"`
	Kubernetes  *KubernetesPayload `json:"kubernetes,omitempty"`
	ECS         *ECSPayload        `json:"ecs,omitempty"`
}

// Bundled are the objects of a payload. They are large, so the payload names them by the digest of a bundle, which lies
// in the store on its own.
type Bundled struct {
	// Bundle is the digest of the objects as compiled, with their substitutions open, and Values is
	// what each substitution in them stands for, by name ("params.replicas").
	Bundle string         `json:"bundle"`
	Values map[string]any `json:"values,omitempty"`
	// Objects is the bundle with its values filled in, one JSON object each, in the order of the
	// bundle. It is set when a payload is read for a runtime, and is no part of what is stored.
	Objects []json.RawMessage `json:"-"`
}

// Bundled are the objects of the payload; nil: what its runtime receives is not made of objects.
func (p *Payload) Bundled() *Bundled {
	switch {
	case p.Kubernetes != nil:
		return &p.Kubernetes.Bundled
	case p.ECS != nil:
		return &p.ECS.Bundled
	}
	return nil
}

// Fill fills in the texts of what commands get, and of what the substitutions in objects stand for.
func (p *Payload) Fill(fill func(text string) string) {
	if p.Custom != nil {
		FillEnv(p.Custom.Env, fill)
	}
	if b := p.Bundled(); b != nil {
		for _, name := range SortedKeys(b.Values) {
			if text, isText := b.Values[name].(string); isText {
				b.Values[name] = fill(text)
			}
		}
	}
}

// FillEnv fills in the texts of an environment.
func FillEnv(env map[string]Value, fill func(text string) string) {
	for _, name := range SortedKeys(env) {
		value := env[name]
		value.Literal = fill(value.Literal)
		env[name] = value
	}
}

// ECSPayload is the part of a payload that an ECS runtime receives: the task definition and the service, in that order,
// as the AWS CLI takes them (register-task-definition and create-service --cli-input-json).
type ECSPayload struct {
	Bundled
	// Adopt: a service of that name which exists already and belongs to somebody else, or to nobody, is taken over
	// instead of refused.
	Adopt bool `json:"adopt,omitempty"`
	// Prune: revisions of the task definition that this instance registered, and that are neither used nor among the
	// newest, are deregistered.
	Prune bool `json:"prune,omitempty"`
}

// KubernetesPayload is the part of a payload that a Kubernetes runtime receives.
type KubernetesPayload struct {
	Bundled
	// Adopt: objects that exist already and belong to somebody else, or to nobody, are taken over
	// instead of refused; so are fields that another manager declares.
	Adopt bool `json:"adopt,omitempty"`
	// Prune: objects of an earlier payload that this one does not declare are removed instead of
	// reported as orphaned.
	Prune bool `json:"prune,omitempty"`
	// CreateNamespace: the instance's namespace is made when it is not there. It is nobody's then, and
	// never removed.
	CreateNamespace bool `json:"createNamespace,omitempty"`
	// RemoveClaims: PersistentVolumeClaims are removed as everything else is, and not kept.
	RemoveClaims bool `json:"removeClaims,omitempty"`
	// RemoveForeign: what others add to the pod templates of workloads is drift, and removed.
	RemoveForeign bool `json:"removeForeign,omitempty"`
	// Ignore are fields that are somebody else's.
	Ignore []IgnoredDifference `json:"ignore,omitempty"`
	// NamespaceLabels and NamespaceAnnotations are what it is made with.
	NamespaceLabels      map[string]string `json:"namespaceLabels,omitempty"`
	NamespaceAnnotations map[string]string `json:"namespaceAnnotations,omitempty"`
}

// CustomPayload is the part of a payload that a custom runtime's commands receive.
type CustomPayload struct {
	Env   map[string]Value  `json:"env,omitempty"`
	Files map[string]string `json:"files,omitempty"` // relative path → content
}

// Value is a literal or a reference to a secret that the worker resolves when a command starts
// (never stored, never in history). One of Literal, WorkerEnv, KubernetesSecret, AWSSecret and Captured is set; none is the empty literal.
type Value struct {
	Literal   string `json:"value,omitempty"`
	WorkerEnv string `json:"workerEnv,omitempty"` // name of an environment variable of the worker
	// KubernetesSecret is the name of a Secret in Namespace, of the cluster that Context of the worker's kubeconfig is, or its
	// own; Key is which of its values.
	KubernetesSecret string `json:"kubernetesSecret,omitempty"`
	Namespace        string `json:"namespace,omitempty"`
	Context          string `json:"context,omitempty"`
	// AWSSecret is the name or ARN of a secret of AWS Secrets Manager in Region, or the worker's; VersionStage is which of its
	// versions, AWSCURRENT when empty, and Key which field of a JSON object, all of it when empty.
	AWSSecret    string `json:"awsSecret,omitempty"`
	Region       string `json:"region,omitempty"`
	VersionStage string `json:"versionStage,omitempty"`
	Key          string `json:"key,omitempty"`
	// Captured is a service of the same application, of which Key was captured when it was set up in the same release channel.
	Captured string `json:"captured,omitempty"`
}

// IsSecret tells whether a value is a reference to a secret.
func (v Value) IsSecret() bool {
	return v.WorkerEnv != "" || v.KubernetesSecret != "" || v.AWSSecret != "" || v.Captured != ""
}

// Reference is a reference as a configuration has it.
func (v Value) Reference() string {
	var fields []string
	for _, field := range [...]struct{ name, value string }{
		{"workerEnv", v.WorkerEnv},
		{"kubernetesSecret", v.KubernetesSecret},
		{"awsSecret", v.AWSSecret},
		{"captured", v.Captured},
		{"namespace", v.Namespace},
		{"context", v.Context},
		{"region", v.Region},
		{"versionStage", v.VersionStage},
		{"key", v.Key},
	} {
		if field.value != "" {
			fields = append(fields, field.name+": "+field.value)
		}
	}
	return "{" + strings.Join(fields, ", ") + "}"
}

// RuntimeDefinition is a connection to where things run. It is published on its own and never
// part of an incarnation: changing a poll interval releases nothing.
type RuntimeDefinition struct {
	Name       string             `json:"name"`
	Kind       RuntimeKind        `json:"kind"`
	Owner      string             `json:"owner,omitempty"` // application that defines it
	Dir        string             `json:"dir,omitempty"`   // where relative commands start, relative to the directory of the owner; absolute, as versions before wrote it
	Remote     bool               `json:"remote,omitempty"`
	Labels     map[string]string  `json:"labels,omitempty"`  // that fleets select by
	Address    string             `json:"address,omitempty"` // under which what runs there is reached, for the commands of plans
	Custom     *CustomRuntime     `json:"custom,omitempty"`
	Kubernetes *KubernetesRuntime `json:"kubernetes,omitempty"`
	ECS        *ECSRuntime        `json:"ecs,omitempty"`
	Timing     RuntimeTiming      `json:"timing"`
	// MaxApplies bounds the applies that run at once; zero is no bound. ApproveApplies: a person
	// approves every apply (C10). NoRollback turns automatic rollback off for all services on it (A22).
	MaxApplies     int  `json:"maxApplies,omitempty"`
	ApproveApplies bool `json:"approveApplies,omitempty"`
	NoRollback     bool `json:"noRollback,omitempty"`
	// Comparisons of whatever is released on it, where a channel does not turn them off.
	Comparisons []DefaultComparison `json:"comparisons,omitempty"`
	// Allow says who may use it; nil: everybody. What counts is the newest declaration, whichever digest a service knows.
	Allow *RuntimeAllow `json:"allow,omitempty"`
}

// SamePlace tells whether two definitions, of whatever names and settings, surely reach the same place.
func (d RuntimeDefinition) SamePlace(o RuntimeDefinition) bool {
	type place struct {
		Kind                     RuntimeKind
		Dir, Kubeconfig, Context string
		Apply                    []string
		Workflow                 *ApplyWorkflow `json:",omitempty"`
		Env                      map[string]Value
		Job                      *CommandJob
		Task                     *CommandTask
		ECS                      *ECSRuntime
	}
	of := func(d RuntimeDefinition) place {
		p := place{Kind: d.Kind, ECS: d.ECS}
		if d.Kubernetes != nil {
			p.Kubeconfig, p.Context = d.Kubernetes.Kubeconfig, d.Kubernetes.Context
		}
		if d.Custom != nil {
			p.Apply, p.Workflow, p.Env, p.Job, p.Task = d.Custom.Apply.Argv, d.Custom.Apply.Workflow, d.Custom.Env, d.Custom.Job, d.Custom.Task
		}
		if d.Custom != nil || p.Kubeconfig != "" {
			p.Dir = d.Owner + ":" + d.Dir // of two applications it means two places
		}
		return p
	}
	return d.Kind != RuntimeFake && DigestOf(of(d)) == DigestOf(of(o))
}

// KubernetesRuntime is a connection to a cluster. Both fields empty: what the worker's own
// environment says (KUBECONFIG, ~/.kube/config), or the service account of the pod it runs in.
type KubernetesRuntime struct {
	Kubeconfig string `json:"kubeconfig,omitempty"` // a path, relative to the definition's directory
	Context    string `json:"context,omitempty"`    // in it; empty: its current one
	// FailAfter is how long a pod of the target version may keep failing to start (an image that
	// cannot be pulled, a container that crashes again and again) before its object has FAILED.
	FailAfter time.Duration `json:"failAfter,omitempty"`
	// Ignore are fields that are somebody else's, in the objects of all services.
	Ignore []IgnoredDifference `json:"ignore,omitempty"`
	// KubeVersion and APIVersions are what charts are told of the cluster when they are rendered; empty: what is so for all.
	KubeVersion string   `json:"kubeVersion,omitempty"`
	APIVersions []string `json:"apiVersions,omitempty"`
	// Health says of kinds how their objects are (H3); others are judged by what is known of them.
	Health []HealthRule `json:"health,omitempty"`
}

// HealthRule says how objects of a kind are, by expressions in CEL about their fields.
type HealthRule struct {
	Group      string `json:"group,omitempty"` // empty: that of Kubernetes itself
	Kind       string `json:"kind"`
	Current    string `json:"current"` // it is as declared
	Failed     string `json:"failed,omitempty"`
	InProgress string `json:"inProgress,omitempty"`
	Suspended  string `json:"suspended,omitempty"` // it waits for a person
}

// ECSRuntime is a cluster of Amazon ECS. Credentials are those that the AWS tools find by themselves in the worker's
// environment; with a role, those that it gives for them.
type ECSRuntime struct {
	Cluster    string `json:"cluster"` // a name or an ARN
	Region     string `json:"region,omitempty"`
	RoleARN    string `json:"roleArn,omitempty"`
	ExternalID string `json:"externalId,omitempty"` // that the role asks for
	Endpoint   string `json:"endpoint,omitempty"`   // of the ECS API; empty: AWS's own
}

// RuntimeTiming holds the settings of C10 that the decision needs. Zero values are filled with
// defaults when compiling.
type RuntimeTiming struct {
	PollInterval       time.Duration `json:"pollInterval"`       // while an instance moves
	SteadyPollInterval time.Duration `json:"steadyPollInterval"` // while it is steady
	GracePeriod        time.Duration `json:"gracePeriod"`        // after a successful apply that is not yet visible
	ApplyTimeout       time.Duration `json:"applyTimeout"`
	FetchTimeout       time.Duration `json:"fetchTimeout"`
	MaxAttempts        int           `json:"maxAttempts"`  // applies of one target before it failed for good
	RetryBackoff       time.Duration `json:"retryBackoff"` // before the second attempt; doubles up to RetryMax
	RetryMax           time.Duration `json:"retryMax"`
}

// FetchMode is how a custom runtime's fetch command answers.
type FetchMode string

// The fetch modes (C1–C3).
const (
	FetchNone       FetchMode = ""           // no fetch: a successful apply is the state
	FetchExitCode   FetchMode = "exitCode"   // 0 no work, 2 work to do
	FetchStructured FetchMode = "structured" // exit 0 and one JSON document on stdout
)

// CustomRuntime is a runtime made of commands (section C of the requirements).
type CustomRuntime struct {
	Apply Command   `json:"apply"`
	Fetch *Command  `json:"fetch,omitempty"`
	Mode  FetchMode `json:"mode,omitempty"`
	// Remove takes an instance down (A24); nil: what it runs can only be left.
	Remove *Command `json:"remove,omitempty"`
	// Plan says what an apply would change; nil: nobody can. Watch goes on, and prints a line when something may have changed.
	Plan  *Command         `json:"plan,omitempty"`
	Watch *Command         `json:"watch,omitempty"`
	Env   map[string]Value `json:"env,omitempty"`
	Job   *CommandJob      `json:"job,omitempty"` // nil, and no task: commands are processes of the worker's machine
	Task  *CommandTask     `json:"task,omitempty"`
}

// CommandJob is where a custom runtime's commands run as Kubernetes Jobs instead.
type CommandJob struct {
	Cluster        KubernetesRuntime `json:"cluster"`
	Namespace      string            `json:"namespace"`
	Image          string            `json:"image"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	// Wrapper is the path of converge-wrapper in the image; empty: none, and the log is taken as it is.
	Wrapper string `json:"wrapper,omitempty"`
	// Requests and Limits are quantities by resource, as Kubernetes writes them.
	Requests     map[string]string `json:"requests,omitempty"`
	Limits       map[string]string `json:"limits,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Tolerations  []Toleration      `json:"tolerations,omitempty"`
	// Labels and Annotations are of the Job and its pod; PullSecrets are names of Secrets in the namespace.
	Labels        map[string]string  `json:"labels,omitempty"`
	Annotations   map[string]string  `json:"annotations,omitempty"`
	PullSecrets   []string           `json:"pullSecrets,omitempty"`
	PriorityClass string             `json:"priorityClass,omitempty"`
	PodSecurity   *PodSecurity       `json:"podSecurity,omitempty"`
	Security      *ContainerSecurity `json:"security,omitempty"`
}

// Toleration lets a Job's pods onto nodes with a taint, as in Kubernetes.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

// CommandTask is where commands run as tasks of Amazon ECS instead, each in one of its own (RunTask).
type CommandTask struct {
	Cluster          ECSRuntime `json:"cluster"`
	TaskDefinition   string     `json:"taskDefinition"`      // family:revision, or an ARN with a revision
	Container        string     `json:"container,omitempty"` // that runs the command; empty: the first essential one
	LaunchType       string     `json:"launchType,omitempty"`
	CapacityProvider string     `json:"capacityProvider,omitempty"`
	Subnets          []string   `json:"subnets,omitempty"`
	SecurityGroups   []string   `json:"securityGroups,omitempty"`
	AssignPublicIP   bool       `json:"assignPublicIp,omitempty"`
	// Wrapper is the path of converge-wrapper in the image; empty: none, and the log is taken as it is.
	Wrapper string `json:"wrapper,omitempty"`
}

// Place says where it runs, for people, with a link to the tasks of the cluster where the region is known.
func (t CommandTask) Place() string {
	name, region := t.Cluster.Cluster, t.Cluster.Region
	if parts := strings.Split(name, ":"); len(parts) > 5 { // arn:aws:ecs:eu-west-1:123456789012:cluster/shop
		region, name = parts[3], name[strings.LastIndex(name, "/")+1:]
	}
	if region == "" {
		return "an ECS task in cluster " + name
	}
	return fmt.Sprintf("an ECS task in cluster %s (%s/ecs/v2/clusters/%s/tasks?region=%s)", name, AWSConsole(region), name, region)
}

// AWSConsole is the address of the console of AWS for a region.
func AWSConsole(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "https://" + region + ".console.amazonaws.cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "https://" + region + ".console.amazonaws-us-gov.com"
	}
	return "https://" + region + ".console.aws.amazon.com"
}

// Command is a program and its arguments. RetryableExitCodes: when given, an apply that exits
// with any other non-zero code failed for good; when empty, every failure is retried.
type Command struct {
	Argv               []string      `json:"command"`
	Timeout            time.Duration `json:"timeout,omitempty"`
	RetryableExitCodes []int         `json:"retryableExitCodes,omitempty"`
	// Workflow is what an apply is instead of a program (D28).
	Workflow *ApplyWorkflow `json:"workflow,omitempty"`
}

// ApplyWorkflow is a workflow of somebody else, which workers of its own run, in the namespace of Converge's.
type ApplyWorkflow struct {
	Type      string `json:"type"`
	TaskQueue string `json:"taskQueue"`
}
