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

// Payload is the input of a runtime for one service in one channel: rendered for one version, immutable, named by its digest. Everything
// else in the configuration is rules.
type Payload struct {
	Application string             `json:"application"`
	Service     string             `json:"service"`
	Channel     string             `json:"channel"`
	Runtime     string             `json:"runtime"`
	Kind        RuntimeKind        `json:"kind"`
	Address     map[string]string  `json:"address,omitempty"` // where on the runtime, e.g. namespace
	Parameters  map[string]any     `json:"parameters,omitempty"`
	Constants   map[string]string  `json:"constants,omitempty"`
	Custom      *CustomPayload     `json:"custom,omitempty"`
	Kubernetes  *KubernetesPayload `json:"kubernetes,omitempty"`
	ECS         *ECSPayload        `json:"ecs,omitempty"`
}

// Bundled contains the objects of a payload. They are large, so the payload names them by the digest of a bundle, which is stored
// separately.
type Bundled struct {
	// Bundle is the digest of the compiled objects, with unfilled placeholders. Values are the values of the placeholders, by name
	// ("params.replicas").
	Bundle string         `json:"bundle"`
	Values map[string]any `json:"values,omitempty"`
	// Objects is the bundle with its values filled in, one JSON object each, in the order of the bundle. It is set when a payload is read for
	// a runtime, and is not stored.
	Objects []json.RawMessage `json:"-"`
}

// Bundled returns the objects of the payload, or nil if its runtime uses no objects.
func (p *Payload) Bundled() *Bundled {
	switch {
	case p.Kubernetes != nil:
		return &p.Kubernetes.Bundled
	case p.ECS != nil:
		return &p.ECS.Bundled
	}
	return nil
}

// Fill fills in the placeholders in the texts of commands and in the values of objects.
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

// ECSPayload is the part of a payload for an ECS runtime: the task definition and the service, in that order, in the format of the AWS CLI
// (register-task-definition and create-service --cli-input-json).
type ECSPayload struct {
	Bundled
	// Adopt: an existing service with that name that belongs to another owner, or to none, is adopted instead of refused.
	Adopt bool `json:"adopt,omitempty"`
	// Prune: unused revisions of the task definition that this instance registered are deregistered, except the newest.
	Prune bool `json:"prune,omitempty"`
}

// KubernetesPayload is the part of a payload for a Kubernetes runtime.
type KubernetesPayload struct {
	Bundled
	// Adopt: existing objects that belong to another owner, or to none, are adopted instead of refused. The same applies to fields that
	// another manager declares.
	Adopt bool `json:"adopt,omitempty"`
	// Prune: objects of an earlier payload that this one does not declare are removed instead of reported as orphaned.
	Prune bool `json:"prune,omitempty"`
	// CreateNamespace: the instance's namespace is created if it does not exist. It then has no owner, and is never removed.
	CreateNamespace bool `json:"createNamespace,omitempty"`
	// RemoveClaims: PersistentVolumeClaims are removed like everything else, and not kept.
	RemoveClaims bool `json:"removeClaims,omitempty"`
	// RemoveForeign: additions of others to the pod templates of workloads are drift, and removed.
	RemoveForeign bool `json:"removeForeign,omitempty"`
	// Ignore lists fields that another party owns.
	Ignore []IgnoredDifference `json:"ignore,omitempty"`
	// Excluded are objects that the source declares and excludes from every apply: they are neither changed nor removed.
	Excluded []ExcludedObject `json:"excluded,omitempty"`
	// NamespaceLabels and NamespaceAnnotations are set when the namespace is created.
	NamespaceLabels      map[string]string `json:"namespaceLabels,omitempty"`
	NamespaceAnnotations map[string]string `json:"namespaceAnnotations,omitempty"`
}

// ExcludedObject names an object that no apply touches. Without a namespace it is in that of the instance, or in none.
type ExcludedObject struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Reason    string `json:"reason"` // the annotation that excludes it
}

// CustomPayload is the part of a payload for the commands of a custom runtime.
type CustomPayload struct {
	Env   map[string]Value  `json:"env,omitempty"`
	Files map[string]string `json:"files,omitempty"` // relative path → content
}

// Value is a literal or a reference to a secret. The worker resolves a secret when a command starts. It is never stored, and never in
// history. At most one of Literal, WorkerEnv, KubernetesSecret, AWSSecret and Captured is set. If none is, it is the empty literal.
type Value struct {
	Literal   string `json:"value,omitempty"`
	WorkerEnv string `json:"workerEnv,omitempty"` // name of an environment variable of the worker
	// KubernetesSecret is the name of a Secret in Namespace. Its cluster is that of Context in the worker's kubeconfig, or the worker's own.
	// Key selects one of its values.
	KubernetesSecret string `json:"kubernetesSecret,omitempty"`
	Namespace        string `json:"namespace,omitempty"`
	Context          string `json:"context,omitempty"`
	// AWSSecret is the name or ARN of a secret of AWS Secrets Manager in Region, or in the worker's region. VersionStage is the stage of the
	// version, by default AWSCURRENT. Key selects a field of a JSON object, by default the whole secret.
	AWSSecret    string `json:"awsSecret,omitempty"`
	Region       string `json:"region,omitempty"`
	VersionStage string `json:"versionStage,omitempty"`
	Key          string `json:"key,omitempty"`
	// Captured is a service of the same application. Key is a value that its setup in the same release channel produced.
	Captured string `json:"captured,omitempty"`
}

// IsSecret reports whether a value is a reference to a secret.
func (v Value) IsSecret() bool {
	return v.WorkerEnv != "" || v.KubernetesSecret != "" || v.AWSSecret != "" || v.Captured != ""
}

// Reference returns the reference in the syntax of a configuration.
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

// RuntimeDefinition is a connection to a runtime. It is published separately and is never part of an incarnation: a changed poll interval
// releases nothing.
type RuntimeDefinition struct {
	Name  string      `json:"name"`
	Kind  RuntimeKind `json:"kind"`
	Owner string      `json:"owner,omitempty"` // application that defines it
	// directory of relative commands, relative to the owner's directory; absolute in earlier versions
	Dir        string             `json:"dir,omitempty"`
	Remote     bool               `json:"remote,omitempty"`
	Labels     map[string]string  `json:"labels,omitempty"`  // that fleets select by
	Address    string             `json:"address,omitempty"` // address of the workloads on it, for the commands of plans
	Custom     *CustomRuntime     `json:"custom,omitempty"`
	Kubernetes *KubernetesRuntime `json:"kubernetes,omitempty"`
	ECS        *ECSRuntime        `json:"ecs,omitempty"`
	Timing     RuntimeTiming      `json:"timing"`
	// MaxApplies limits the concurrent applies; zero is no limit. ApproveApplies: every apply requires an approval (C10). NoRollback turns
	// automatic rollback off for all services on it (A22).
	MaxApplies     int  `json:"maxApplies,omitempty"`
	ApproveApplies bool `json:"approveApplies,omitempty"`
	NoRollback     bool `json:"noRollback,omitempty"`
	// ReadOnly: nothing is written there. Its channels are report-only (A25), and its runtime refuses everything but readings.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Comparisons apply to every release on it, unless a channel turns them off.
	Comparisons []DefaultComparison `json:"comparisons,omitempty"`
	// Allow says who may use it; nil: everyone. The newest declaration applies, even if a service knows an older digest.
	Allow *RuntimeAllow `json:"allow,omitempty"`
}

// SamePlace reports whether two definitions certainly reach the same place. Names and settings do not matter.
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
			p.Dir = d.Owner + ":" + d.Dir // different applications have different directories
		}
		return p
	}
	return d.Kind != RuntimeFake && DigestOf(of(d)) == DigestOf(of(o))
}

// KubernetesRuntime is a connection to a cluster. If both fields are empty, it uses the worker's environment (KUBECONFIG, ~/.kube/config),
// or the service account of the worker's pod.
type KubernetesRuntime struct {
	Kubeconfig string `json:"kubeconfig,omitempty"` // a path, relative to the definition's directory
	Context    string `json:"context,omitempty"`    // in it; empty: its current one
	// FailAfter is how long a pod of the target version may keep failing to start (an image that cannot be pulled, a container that crashes
	// repeatedly) before its object has FAILED.
	FailAfter time.Duration `json:"failAfter,omitempty"`
	// Ignore lists fields that another party owns, in the objects of all services.
	Ignore []IgnoredDifference `json:"ignore,omitempty"`
	// KubeVersion and APIVersions are the capabilities of the cluster that charts see. If empty, charts get common defaults.
	KubeVersion string   `json:"kubeVersion,omitempty"`
	APIVersions []string `json:"apiVersions,omitempty"`
	// Health defines the health of kinds (H3). Other kinds have built-in rules.
	Health []HealthRule `json:"health,omitempty"`
}

// HealthRule defines the health of objects of a kind, by CEL expressions about their fields.
type HealthRule struct {
	Group      string `json:"group,omitempty"` // empty: the core group
	Kind       string `json:"kind"`
	Current    string `json:"current"` // it is as declared
	Failed     string `json:"failed,omitempty"`
	InProgress string `json:"inProgress,omitempty"`
	Suspended  string `json:"suspended,omitempty"` // it waits for a user
}

// ECSRuntime is a cluster of Amazon ECS. Credentials come from the worker's environment, as for all AWS tools. With a role, these
// credentials assume it.
type ECSRuntime struct {
	Cluster    string `json:"cluster"` // a name or an ARN
	Region     string `json:"region,omitempty"`
	RoleARN    string `json:"roleArn,omitempty"`
	ExternalID string `json:"externalId,omitempty"` // that the role requires
	Endpoint   string `json:"endpoint,omitempty"`   // of the ECS API; empty: the AWS default
}

// RuntimeTiming holds the settings of C10 that the decision needs. Compiling replaces zero values with defaults.
type RuntimeTiming struct {
	PollInterval       time.Duration `json:"pollInterval"`       // while an instance changes
	SteadyPollInterval time.Duration `json:"steadyPollInterval"` // while it is steady
	GracePeriod        time.Duration `json:"gracePeriod"`        // after a successful apply that is not yet visible
	ApplyTimeout       time.Duration `json:"applyTimeout"`
	FetchTimeout       time.Duration `json:"fetchTimeout"`
	MaxAttempts        int           `json:"maxAttempts"`  // applies of one target before it fails for good
	RetryBackoff       time.Duration `json:"retryBackoff"` // before the second attempt; doubles up to RetryMax
	RetryMax           time.Duration `json:"retryMax"`
}

// FetchMode is the output format of a custom runtime's fetch command.
type FetchMode string

// The fetch modes (C1–C3).
const (
	FetchNone       FetchMode = ""           // no fetch: a successful apply is the state
	FetchExitCode   FetchMode = "exitCode"   // 0 no work, 2 work to do
	FetchStructured FetchMode = "structured" // exit 0 and one JSON document on stdout
)

// CustomRuntime is a runtime that consists of commands (section C of the requirements).
type CustomRuntime struct {
	Apply Command   `json:"apply"`
	Fetch *Command  `json:"fetch,omitempty"`
	Mode  FetchMode `json:"mode,omitempty"`
	// Remove removes an instance (A24); nil: the objects of an instance can only be left in place.
	Remove *Command `json:"remove,omitempty"`
	// Plan says what an apply would change; nil: that is not supported. Watch keeps running, and prints a line when something may have
	// changed.
	Plan  *Command         `json:"plan,omitempty"`
	Watch *Command         `json:"watch,omitempty"`
	Env   map[string]Value `json:"env,omitempty"`
	Job   *CommandJob      `json:"job,omitempty"` // nil, and no task: commands are processes of the worker's machine
	Task  *CommandTask     `json:"task,omitempty"`
}

// CommandJob runs the commands of a custom runtime as Kubernetes Jobs.
type CommandJob struct {
	Cluster        KubernetesRuntime `json:"cluster"`
	Namespace      string            `json:"namespace"`
	Image          string            `json:"image"`
	ServiceAccount string            `json:"serviceAccount,omitempty"`
	// Wrapper is the path of converge-wrapper in the image; empty: none, and the log is used unchanged.
	Wrapper string `json:"wrapper,omitempty"`
	// Requests and Limits are quantities by resource, in Kubernetes syntax.
	Requests     map[string]string `json:"requests,omitempty"`
	Limits       map[string]string `json:"limits,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Tolerations  []Toleration      `json:"tolerations,omitempty"`
	// Labels and Annotations belong to the Job and its pod. PullSecrets are names of Secrets in the namespace.
	Labels        map[string]string  `json:"labels,omitempty"`
	Annotations   map[string]string  `json:"annotations,omitempty"`
	PullSecrets   []string           `json:"pullSecrets,omitempty"`
	PriorityClass string             `json:"priorityClass,omitempty"`
	PodSecurity   *PodSecurity       `json:"podSecurity,omitempty"`
	Security      *ContainerSecurity `json:"security,omitempty"`
}

// Toleration allows a Job's pods on nodes with a taint, as in Kubernetes.
type Toleration struct {
	Key      string `json:"key,omitempty"`
	Operator string `json:"operator,omitempty"`
	Value    string `json:"value,omitempty"`
	Effect   string `json:"effect,omitempty"`
}

// CommandTask runs each command as a task of Amazon ECS (RunTask).
type CommandTask struct {
	Cluster          ECSRuntime `json:"cluster"`
	TaskDefinition   string     `json:"taskDefinition"`      // family:revision, or an ARN with a revision
	Container        string     `json:"container,omitempty"` // that runs the command; empty: the first essential one
	LaunchType       string     `json:"launchType,omitempty"`
	CapacityProvider string     `json:"capacityProvider,omitempty"`
	Subnets          []string   `json:"subnets,omitempty"`
	SecurityGroups   []string   `json:"securityGroups,omitempty"`
	AssignPublicIP   bool       `json:"assignPublicIp,omitempty"`
	// Wrapper is the path of converge-wrapper in the image; empty: none, and the log is used unchanged.
	Wrapper string `json:"wrapper,omitempty"`
}

// Place describes where it runs, for people, with a link to the tasks of the cluster if the region is known.
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

// AWSConsole returns the address of the AWS console for a region.
func AWSConsole(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "https://" + region + ".console.amazonaws.cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "https://" + region + ".console.amazonaws-us-gov.com"
	}
	return "https://" + region + ".console.aws.amazon.com"
}

// Command is a program and its arguments. RetryableExitCodes: if given, an apply with any other non-zero exit code failed for good; if
// empty, every failure is retried.
type Command struct {
	Argv               []string      `json:"command"`
	Timeout            time.Duration `json:"timeout,omitempty"`
	RetryableExitCodes []int         `json:"retryableExitCodes,omitempty"`
	// Workflow runs instead of a program, for an apply (D28).
	Workflow *ApplyWorkflow `json:"workflow,omitempty"`
}

// ApplyWorkflow is a user's own workflow. The user's workers run it, in the same namespace as Converge.
type ApplyWorkflow struct {
	Type      string `json:"type"`
	TaskQueue string `json:"taskQueue"`
}
