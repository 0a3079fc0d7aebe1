package config

// Service is what a team releases. It goes through the application's release channels.
type Service struct {
	Header
	// The name that the service had before. What is remembered of it goes on under the new name, and what it runs stays as it
	// is. It may stay here for good, and then has no effect any more.
	RenamedFrom Name `json:"renamedFrom,omitempty"`
	// What the service is, for people.
	Description string `json:"description,omitempty"`
	// The runtime it runs on; needed only where several of a channel's runtimes could run it.
	Runtime Name `json:"runtime,omitempty"`
	// The version that shall run. The file then owns the version: changing it releases, and
	// releasing by hand is refused.
	Version Version `json:"version,omitempty"`
	// The version that is released once, when nothing was released yet.
	InitialVersion Version `json:"initialVersion,omitempty"`
	// Values that a release may set and payloads may use as ${{ params.NAME }}.
	Parameters []ServiceParameter `json:"parameters,omitempty"`
	// Parameters whose values go out by releases of their own, in groups: each is released beside the version, and beside the others.
	Aspects map[AspectName][]ParameterName `json:"aspects,omitempty"`
	// What it carries for others to read: validators, checks, and other programs.
	Addons []Addon `json:"addons,omitempty"`
	// What a change of configuration without a new version does: release it as a config release
	// (the default), or keep it until the next release.
	ConfigChanges ConfigChanges `json:"configChanges,omitempty" jsonschema:"default=release"`
	// How long a release may take in a channel, from its first apply to stable objects, before it
	// has failed there.
	ProgressDeadline Duration `json:"progressDeadline,omitempty" jsonschema:"default=10m"`
	// How releases that are under way at once follow each other.
	Maestro *Maestro `json:"maestro,omitempty"`
	// What happens when something was changed by hand: enforce repairs it, observe reports it.
	Drift Drift `json:"drift,omitempty" jsonschema:"default=enforce"`
	// What the commands of a custom runtime receive.
	Custom *ServiceCustom `json:"custom,omitempty"`
	// The objects that make up the service on a Kubernetes runtime.
	Kubernetes *ServiceKubernetes `json:"kubernetes,omitempty"`
	// The task definition and the service that make it up on an ECS runtime.
	ECS *ServiceECS `json:"ecs,omitempty"`
	// Whether a release that fails is rolled back by itself to what was good before.
	AutoRollback *bool `json:"autoRollback,omitempty" jsonschema:"default=true"`
	// What a rollback by hand has to pass. Where the application has gates asked, so does every service.
	Rollback *Rollback `json:"rollback,omitempty"`
	// From this version or a later one nothing goes back to an earlier one, by itself or by hand: its migrations cannot.
	NoRollbackBelow Version `json:"noRollbackBelow,omitempty"`
	// What happens to its objects when it is no longer declared: orphan leaves them, remove takes them
	// down.
	OnDelete OnDelete `json:"onDelete,omitempty" jsonschema:"default=orphan"`
	// What it waits for of other services, in every channel that both go to.
	Dependencies []Dependency `json:"dependencies,omitempty"`
	// Services that are deployed before it, in every channel that both go to.
	Requires []Name `json:"requires,omitempty"`
	// The command that captures what setting it up for the first time produced.
	SetupCallback *CallbackUse `json:"setupCallback,omitempty" also:"setup_callback"`
	// Commands of its own that set it up, one after another, once it was started. Until they have succeeded it is not deployed.
	SetupReconcilers []StepUse `json:"setupReconcilers,omitempty" also:"setup_reconcilers"`
	// How it takes what others have for it: it is what they have in common, such as a reverse proxy.
	Aggregator *Aggregator `json:"aggregator,omitempty"`
	// What it has for aggregators.
	Feeds []Feed `json:"feeds,omitempty"`
	// Commands that fit it into others, one after another, once it and the aggregators are there.
	Reconcilers []ReconcilerUse `json:"reconcilers,omitempty" also:"integration_reconcilers"`
	// Services that it is fitted into, or that are fitted into it: when one of them changes, it is looked at too.
	Integrations []Name `json:"integrations,omitempty"`
	// Its names in the domain name system.
	DNS []DNSName `json:"dns,omitempty"`
	// Protections of its own, beside those of the channels.
	Protections []ProtectionUse `json:"protections,omitempty"`
	// Postconditions of its own, beside those of the channels.
	Postconditions []PostconditionUse `json:"postconditions,omitempty"`
	// Commands that run once for each release.
	Extensions []ExtensionUse `json:"extensions,omitempty"`
	// Changes to the above for some channels, applied in order; later wins.
	PerReleaseChannel []ChannelOverride `json:"perReleaseChannel,omitempty"`
	// The channels it goes to; all of the application's when not given. A channel left out also
	// passes its preconditions on to the channels behind it.
	ReleaseChannels []Name `json:"releaseChannels,omitempty"`
}

// Maestro says how releases that are under way at once follow each other.
type Maestro struct {
	// Which of the releases that wait at a channel enters it: latest is the newest that passes its gates, and those before it are
	// skipped there; train has each go through every channel in order; immediate is as latest, and ends what is in progress.
	Strategy Strategy `json:"strategy,omitempty" jsonschema:"default=latest"`
	// Keeps a channel for its release until that was promoted into every channel that comes after it.
	HoldUntil HoldUntil `json:"holdUntil,omitempty"`
}

// Strategy is latest, train or immediate.
type Strategy string

// Values lists what may stand in the file.
func (Strategy) Values() []string { return []string{"latest", "train", "immediate"} }

// HoldUntil is promoted.
type HoldUntil string

// Values lists what may stand in the file.
func (HoldUntil) Values() []string { return []string{"promoted"} }

// Parameter is a value that a release may set. One without a default must have a value in every
// channel, from perReleaseChannel or from the release.
type Parameter struct {
	// The parameter's name.
	Name ParameterName `json:"name"`
	// The type of its value.
	Type ParamType `json:"type"`
	// The value when nothing else gives one. Text may use ${{ }}, other parameters included.
	Default *Literal `json:"default,omitempty"`
	// What it is for, for people.
	Description string `json:"description,omitempty"`
}

// ServiceParameter is a parameter of a service, which a release may give a value to.
type ServiceParameter struct {
	Parameter
	// Whether a release may give a value. Of a secretRef it may not, unless this says so: whoever releases would choose
	// which secret a command gets.
	Overridable *bool `json:"overridable,omitempty"`
}

// ServiceCustom is what the commands of a custom runtime receive of a service. It is the payload:
// a change of it is a change of what runs.
type ServiceCustom struct {
	// Environment variables for the commands.
	Env map[EnvName]EnvValue `json:"env,omitempty"`
	// Files for the commands: paths relative to this file, at or below its directory. Their content is
	// passed on as it is, without substitution.
	Files []string `json:"files,omitempty"`
}

// ChannelOverride changes a service for one channel, or for all that a selector matches. One of
// the two is given.
type ChannelOverride struct {
	// The name of the channel.
	ReleaseChannel Name `json:"releaseChannel,omitempty"`
	// Labels that a channel must all have.
	Selector map[string]string `json:"selector,omitempty"`
	// Values of parameters.
	Parameters map[ParameterName]Literal `json:"parameters,omitempty"`
	// How long a release may take there.
	ProgressDeadline Duration `json:"progressDeadline,omitempty"`
	// What happens there when something was changed by hand.
	Drift Drift `json:"drift,omitempty"`
	// Environment variables are added to those of the service, by name; a list of files replaces
	// its list.
	Custom *ServiceCustom `json:"custom,omitempty"`
	// What of the objects is different there: maps merge by key, lists and single values replace.
	Kubernetes *ServiceKubernetes `json:"kubernetes,omitempty"`
	// What of the task definition and the service is different there: each replaces the one for all.
	ECS *ServiceECS `json:"ecs,omitempty"`
	// Whether a release that fails there is rolled back by itself.
	AutoRollback *bool `json:"autoRollback,omitempty"`
	// Further protections there.
	Protections []ProtectionUse `json:"protections,omitempty"`
	// Further postconditions there.
	Postconditions []PostconditionUse `json:"postconditions,omitempty"`
	// Further extensions there.
	Extensions []ExtensionUse `json:"extensions,omitempty"`
}

// Dependency is what a service waits for of another one.
type Dependency struct {
	// The name of the other service; of one of another application orders/api.
	Service ServiceName `json:"service"`
	// Stable waits while the other is not stable; versionOrder while its version is older than the one
	// to be released; staticOrder until it has no release of this configuration or an earlier one still
	// to come (of another application: no release that was made before); capacity lets the one of the two go first that must, so that neither serves more than
	// the other can take.
	Rule DependencyRule `json:"rule"`
	// The channel of the other; the same when not given.
	ReleaseChannel Name `json:"releaseChannel,omitempty"`
	// Of capacity: the parameter that says this service's capacity.
	Parameter ParameterName `json:"parameter,omitempty"`
	// Of capacity: the parameter that says the other's; of the same name when not given.
	OtherParameter ParameterName `json:"otherParameter,omitempty"`
	// Of capacity: whether this service goes before the other when growing, or when shrinking.
	First FirstWhen `json:"first,omitempty"`
}

// DependencyRule is stable, versionOrder, staticOrder or capacity.
type DependencyRule string

// FirstWhen is growing or shrinking.
type FirstWhen string

// OnDelete is orphan or remove.
type OnDelete string

// Values lists what may stand in the file.
func (DependencyRule) Values() []string {
	return []string{"stable", "versionOrder", "staticOrder", "capacity"}
}

// Values lists what may stand in the file.
func (FirstWhen) Values() []string { return []string{"growing", "shrinking"} }

// Values lists what may stand in the file.
func (OnDelete) Values() []string { return []string{"orphan", "remove"} }
