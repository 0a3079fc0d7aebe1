package config

// Service is a unit that a team releases. Its releases go through the application's release channels.
type Service struct {
	Header
	// The former name of the service. The service keeps its state under the new name, and its workloads do not change. The field may
	// remain permanently; it then has no further effect.
	RenamedFrom Name `json:"renamedFrom,omitempty"`
	// A description of the service.
	Description string `json:"description,omitempty"`
	// The runtime of the service; required only if several of a channel's runtimes are suitable.
	Runtime Name `json:"runtime,omitempty"`
	// The desired version. The file then owns the version: a change of it releases, and manual releases are rejected.
	Version Version `json:"version,omitempty"`
	// The version that is released once, if nothing was released yet.
	InitialVersion Version `json:"initialVersion,omitempty"`
	// Values that a release may set and payloads may use as ${{ params.NAME }}.
	Parameters []ServiceParameter `json:"parameters,omitempty"`
	// Parameters with separate releases, in groups: each group is released independently of the version and of the other groups.
	Aspects map[AspectName][]ParameterName `json:"aspects,omitempty"`
	// Data for validators, checks, and other programs.
	Addons []Addon `json:"addons,omitempty"`
	// The effect of a change of configuration without a new version: release it as a config release (the default), or hold it until the
	// next release.
	ConfigChanges ConfigChanges `json:"configChanges,omitempty" jsonschema:"default=release"`
	// How long a release may take in a channel, from its first apply to stable objects. Then it fails there.
	ProgressDeadline Duration `json:"progressDeadline,omitempty" jsonschema:"default=10m"`
	// How concurrent releases follow each other.
	Maestro *Maestro `json:"maestro,omitempty"`
	// The reaction to manual changes: enforce repairs them, observe reports them.
	Drift Drift `json:"drift,omitempty" jsonschema:"default=enforce"`
	// The input of a custom runtime's commands.
	Custom *ServiceCustom `json:"custom,omitempty"`
	// The objects of the service on a Kubernetes runtime.
	Kubernetes *ServiceKubernetes `json:"kubernetes,omitempty"`
	// The task definition and the ECS service on an ECS runtime.
	ECS *ServiceECS `json:"ecs,omitempty"`
	// Whether a failed release is rolled back automatically to the previous good version.
	AutoRollback *bool `json:"autoRollback,omitempty" jsonschema:"default=true"`
	// The checks of a manual rollback. If the application requires the gates, so does every service.
	Rollback *Rollback `json:"rollback,omitempty"`
	// From this version or a later one nothing is rolled back to an earlier one, automatically or manually: its migrations cannot be
	// reverted.
	NoRollbackBelow Version `json:"noRollbackBelow,omitempty"`
	// What happens to its objects when it is no longer declared: orphan leaves them, remove deletes them.
	OnDelete OnDelete `json:"onDelete,omitempty" jsonschema:"default=orphan"`
	// Conditions on other services, in every channel that both go to.
	Dependencies []Dependency `json:"dependencies,omitempty"`
	// Services that are deployed before it, in every channel that both go to.
	Requires []Name `json:"requires,omitempty"`
	// The command that captures secrets after the first setup of the service.
	SetupCallback *CallbackUse `json:"setupCallback,omitempty" also:"setup_callback"`
	// Commands that set up the service after it was started, in sequence. It is not deployed until they have succeeded.
	SetupReconcilers []StepUse `json:"setupReconcilers,omitempty" also:"setup_reconcilers"`
	// How the service receives feeds of others, if it is shared infrastructure such as a reverse proxy.
	Aggregator *Aggregator `json:"aggregator,omitempty"`
	// Its feeds for aggregators.
	Feeds []Feed `json:"feeds,omitempty"`
	// Commands that connect the service with others, in sequence, after it and the aggregators are deployed.
	Reconcilers []ReconcilerUse `json:"reconcilers,omitempty" also:"integration_reconcilers"`
	// Services that are connected with this one: when one of them changes, this one is also checked.
	Integrations []Name `json:"integrations,omitempty"`
	// Its DNS names.
	DNS []DNSName `json:"dns,omitempty"`
	// Protections in addition to those of the channels.
	Protections []ProtectionUse `json:"protections,omitempty"`
	// Postconditions in addition to those of the channels.
	Postconditions []PostconditionUse `json:"postconditions,omitempty"`
	// Commands that run once for each release.
	Extensions []ExtensionUse `json:"extensions,omitempty"`
	// Changes to the above for some channels, applied in order; later entries override earlier ones.
	PerReleaseChannel []ChannelOverride `json:"perReleaseChannel,omitempty"`
	// The channels of the service; by default all channels of the application. A skipped channel passes its preconditions on to the
	// channels after it.
	ReleaseChannels []Name `json:"releaseChannels,omitempty"`
}

// Maestro configures how concurrent releases follow each other.
type Maestro struct {
	// Which of the releases that wait for a channel enters it: latest selects the newest that passes its gates, and skips earlier ones
	// there; train sends each release through every channel in order; immediate is like latest, and also ends a release in progress.
	Strategy Strategy `json:"strategy,omitempty" jsonschema:"default=latest"`
	// Reserves a channel for its release until that was promoted into every later channel.
	HoldUntil HoldUntil `json:"holdUntil,omitempty"`
}

// Strategy is latest, train or immediate.
type Strategy string

// Values lists the allowed values.
func (Strategy) Values() []string { return []string{"latest", "train", "immediate"} }

// HoldUntil is promoted.
type HoldUntil string

// Values lists the allowed values.
func (HoldUntil) Values() []string { return []string{"promoted"} }

// Parameter is a value that a release may set. A parameter without a default must have a value in every channel, from perReleaseChannel
// or from the release.
type Parameter struct {
	// The parameter's name.
	Name ParameterName `json:"name"`
	// The type of its value.
	Type ParamType `json:"type"`
	// The default. Text may use ${{ }}, including other parameters.
	Default *Literal `json:"default,omitempty"`
	// A description of the parameter.
	Description string `json:"description,omitempty"`
}

// ServiceParameter is a parameter of a service, which a release may set.
type ServiceParameter struct {
	Parameter
	// Whether a release may set the value. By default it may not set a secretRef: the releaser would choose which secret a command gets.
	Overridable *bool `json:"overridable,omitempty"`
}

// ServiceCustom is the input of a custom runtime's commands for a service. It is the payload: a change of it changes the running
// workload.
type ServiceCustom struct {
	// Environment variables for the commands.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// Files for the commands: paths relative to this file, at or below its directory. Their content is not substituted.
	Files []string `json:"files,omitempty"`
}

// ChannelOverride changes a service for one channel, or for all channels that match a selector. Exactly one of the two is set.
type ChannelOverride struct {
	// The name of the channel.
	ReleaseChannel Name `json:"releaseChannel,omitempty"`
	// Labels that a channel must have.
	Selector map[string]string `json:"selector,omitempty"`
	// The runtime there.
	Runtime Name `json:"runtime,omitempty"`
	// Values of parameters.
	Parameters map[ParameterName]Literal `json:"parameters,omitempty"`
	// How long a release may take there.
	ProgressDeadline Duration `json:"progressDeadline,omitempty"`
	// The reaction to manual changes there.
	Drift Drift `json:"drift,omitempty"`
	// Environment variables are added to those of the service by name; a list of files replaces its list.
	Custom *ServiceCustom `json:"custom,omitempty"`
	// Changes of the Kubernetes configuration there: maps are merged by key, lists and single values are replaced.
	Kubernetes *ServiceKubernetes `json:"kubernetes,omitempty"`
	// Changes of the ECS configuration there: each document replaces the common one.
	ECS *ServiceECS `json:"ecs,omitempty"`
	// Whether a failed release is rolled back automatically there.
	AutoRollback *bool `json:"autoRollback,omitempty"`
	// Additional protections there.
	Protections []ProtectionUse `json:"protections,omitempty"`
	// Additional postconditions there.
	Postconditions []PostconditionUse `json:"postconditions,omitempty"`
	// Additional extensions there.
	Extensions []ExtensionUse `json:"extensions,omitempty"`
}

// Dependency is a condition on another service.
type Dependency struct {
	// The name of the other service; for another application's service orders/api.
	Service ServiceName `json:"service"`
	// Stable waits while the other service is not stable. VersionOrder waits while its version is older than the one to be released.
	// StaticOrder waits until it has no pending release of this configuration or an earlier one (for another application's service: no
	// release that was made before). Capacity orders the two services so that neither serves more than the other can take.
	Rule DependencyRule `json:"rule"`
	// The channel of the other service; by default the same channel.
	ReleaseChannel Name `json:"releaseChannel,omitempty"`
	// For capacity: the parameter with this service's capacity.
	Parameter ParameterName `json:"parameter,omitempty"`
	// For capacity: the parameter with the other service's capacity; by default the same name.
	OtherParameter ParameterName `json:"otherParameter,omitempty"`
	// For capacity: whether this service goes before the other when growing, or when shrinking.
	First FirstWhen `json:"first,omitempty"`
}

// DependencyRule is stable, versionOrder, staticOrder or capacity.
type DependencyRule string

// FirstWhen is growing or shrinking.
type FirstWhen string

// OnDelete is orphan or remove.
type OnDelete string

// Values lists the allowed values.
func (DependencyRule) Values() []string {
	return []string{"stable", "versionOrder", "staticOrder", "capacity"}
}

// Values lists the allowed values.
func (FirstWhen) Values() []string { return []string{"growing", "shrinking"} }

// Values lists the allowed values.
func (OnDelete) Values() []string { return []string{"orphan", "remove"} }
