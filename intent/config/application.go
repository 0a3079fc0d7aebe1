package config

// Application is the administrative domain: it owns the release channels and every Service in the
// same directory and below. There is one per directory tree.
type Application struct {
	Header
	// What the application is, for people.
	Description string `json:"description,omitempty"`
	// The places that services go to, and the rules for entering each. Their order is only that of
	// display; preconditions order them.
	ReleaseChannels []ReleaseChannel `json:"releaseChannels,omitempty"`
	// Protections of all channels.
	Protections []ProtectionUse `json:"protections,omitempty"`
	// Commands that run once for each release of a service, in all channels.
	Extensions []ExtensionUse `json:"extensions,omitempty"`
	// How the releases of a service that are under way at once follow each other, unless it has a maestro of its own.
	Maestro *Maestro `json:"maestro,omitempty"`
	// In which steps a change of configuration goes through the services whose payload it changes. Without it, to all at once.
	ConfigRollout *ConfigRollout `json:"configRollout,omitempty"`
	// How services that are fitted together are deployed in order. What they say of each other makes the plan; this says the rest.
	Plan *PlanRules `json:"plan,omitempty"`
	// The types that addons of services may have.
	AddonTypes []AddonType `json:"addonTypes,omitempty"`
	// Libraries whose release channels, protections and types of addons this application has too.
	Imports []Import `json:"imports,omitempty"`
	// Commands that print more of this configuration, in YAML. Each is given what those before it printed.
	Generators []ConfigurationCommand `json:"generators,omitempty"`
	// Commands that are given the compiled incarnation, in JSON, and refuse it by their exit code.
	Validators []ConfigurationCommand `json:"validators,omitempty"`
	// What a rollback by hand has to pass, in all services.
	Rollback *Rollback `json:"rollback,omitempty"`
	// How callers prove who they are.
	Identity *Identity `json:"identity,omitempty"`
	// Who may do what. A verb that nothing here names may be used by anybody.
	Authorization []Authorization `json:"authorization,omitempty"`
	// Who is notified of what happens. Nothing is substituted.
	Notifications []Notification `json:"notifications,omitempty"`
}

// Rollback says what a rollback by hand has to pass.
type Rollback struct {
	// Whether the gates of a channel are asked before a person takes a release back there to what was good before: skip does
	// it at once, and the audit trail says so; ask has it wait for all of them, as a release does.
	Gates RollbackGates `json:"gates,omitempty" jsonschema:"default=skip"`
}

// RollbackGates is skip or ask.
type RollbackGates string

// Values lists what may stand in the file.
func (RollbackGates) Values() []string { return []string{"skip", "ask"} }

// ReleaseChannel is a named place that services go to: staging, prod-us.
type ReleaseChannel struct {
	// The channel's name, unique in the application.
	Name Name `json:"name"`
	// The name that the channel had before. What is remembered of it goes on under the new name, and what runs there stays
	// as it is. It may stay here for good, and then has no effect any more.
	RenamedFrom Name `json:"renamedFrom,omitempty"`
	// What the channel is, for people.
	Description string `json:"description,omitempty"`
	// Labels that selectors match, and that payloads may use as ${{ labels.KEY }}.
	Labels map[string]string `json:"labels,omitempty"`
	// The runtimes that services of this channel may run on.
	Runtimes []RuntimeRef `json:"runtimes"`
	// Values that payloads in this channel may use as ${{ constants.KEY }}.
	Constants map[string]string `json:"constants,omitempty"`
	// What must hold before a release may enter this channel.
	Preconditions []Precondition `json:"preconditions,omitempty"`
	// What else a release must pass here, evaluated again and again while it waits.
	Protections []ProtectionUse `json:"protections,omitempty"`
	// What must hold here, once its objects are stable, for a release to have succeeded.
	Postconditions []PostconditionUse `json:"postconditions,omitempty"`
	// Commands that run once for each release of a service here.
	Extensions []ExtensionUse `json:"extensions,omitempty"`
	// Whether a release that fails here is rolled back by itself; false holds for every service.
	AutoRollback *bool `json:"autoRollback,omitempty" jsonschema:"default=true"`
	// Whether what is released here is compared as its runtime says (defaultComparisons).
	DefaultComparisons *bool `json:"defaultComparisons,omitempty" jsonschema:"default=true"`
	// Whether what is wanted here is applied, or nothing is written and what would be done is shown.
	Enforcement Enforcement `json:"enforcement,omitempty" jsonschema:"default=enforce"`
	// What becomes of what runs here when the channel is no longer declared, or a service goes here no
	// more: orphan leaves it, remove takes it down. Without it the services' own onDelete says so.
	OnDelete OnDelete `json:"onDelete,omitempty"`
	// How a release goes through the instances of the channel, where there are several. Without it, to all at once.
	Rollout *Rollout `json:"rollout,omitempty"`
}

// Enforcement is enforce or report.
type Enforcement string

// Values lists what may stand in the file.
func (Enforcement) Values() []string { return []string{"enforce", "report"} }

// RuntimeRef names a runtime of a channel, or selects a fleet of them, and the address there.
type RuntimeRef struct {
	// The name of a Runtime. Either this or selector is given.
	Name Name `json:"name,omitempty"`
	// Labels that a Runtime must all have. Services have an instance on each that does.
	Selector map[string]string `json:"selector,omitempty"`
	// The namespace, for runtimes that have them. It may use ${{ channel }}, ${{ service }}, ${{ application }},
	// ${{ labels.KEY }}, ${{ constants.KEY }}, ${{ runtime }} and ${{ runtime.labels.KEY }}.
	Namespace string `json:"namespace,omitempty"`
	// The Kubernetes service account as which objects are applied and removed: a name in that namespace, or NAMESPACE/NAME.
	// Without it, whom the worker's own credentials are for.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// The runtime that services of this channel were on before they move to this one. Without it such a
	// change is refused.
	MovedFrom *MovedFrom `json:"movedFrom,omitempty"`
}

// MovedFrom names the runtime that services leave, and what becomes of what they leave there.
type MovedFrom struct {
	// The name of the runtime; it need not be defined any more.
	Runtime Name `json:"runtime"`
	// What becomes of the objects there, once the service has converged on its new runtime: keep leaves
	// them, and they are shown as orphaned; remove takes them down.
	Then MovedThen `json:"then,omitempty" jsonschema:"default=keep"`
}

// MovedThen is keep or remove.
type MovedThen string

// Values lists what may stand in the file.
func (MovedThen) Values() []string { return []string{"keep", "remove"} }

// Precondition is one condition for entering a channel. Exactly one field is given.
type Precondition struct {
	// Passes once the release has succeeded in other channels.
	ReleaseChannelStable *ReleaseChannelStable `json:"releaseChannelStable,omitempty"`
	// Passes once people have approved the release in this channel.
	ManualApproval *ManualApproval `json:"manualApproval,omitempty"`
	// Passes once people have approved the release, in all channels that name the same approval.
	SharedManualApproval *SharedManualApproval `json:"sharedManualApproval,omitempty"`
	// Passes while another service is stable.
	ServiceStable *OtherService `json:"serviceStable,omitempty"`
	// Passes while the version of another service is at least the one to be released.
	VersionOrder *OtherService `json:"versionOrder,omitempty"`
	// Passes once another service has no release of this configuration or an earlier one still to come
	// in the channel.
	StaticOrder *OtherService `json:"staticOrder,omitempty"`
}

// ReleaseChannelStable passes once the release has succeeded in a channel, or in all channels that
// a selector matches. One of the two is given. Once succeeded, it stays so for that release.
type ReleaseChannelStable struct {
	// The name of the channel.
	ReleaseChannel Name `json:"releaseChannel,omitempty"`
	// Labels that a channel must all have.
	Selector map[string]string `json:"selector,omitempty"`
	// How long ago the release must have succeeded there. The time runs on, whatever the channel goes on to.
	For Duration `json:"for,omitempty"`
	// Whether its success there is enough, whatever happens there later; with false the channel must be healthy now, too, at
	// whatever version.
	Sticky *bool `json:"sticky,omitempty" jsonschema:"default=true"`
}

// OtherService names a service that the other services of a channel depend on. It does not depend on
// itself.
type OtherService struct {
	// The name of the service; of one of another application orders/api.
	Service ServiceName `json:"service"`
	// The channel that is meant; the same when not given.
	ReleaseChannel Name `json:"releaseChannel,omitempty"`
}

// PreconditionNames are the fields of a precondition; one is given.
var PreconditionNames = []string{"releaseChannelStable", "manualApproval", "sharedManualApproval", "serviceStable", "versionOrder", "staticOrder"}

// Given lists the fields that were given; one is right.
func (p Precondition) Given() []string {
	var given []string
	for i, is := range []bool{
		p.ReleaseChannelStable != nil, p.ManualApproval != nil, p.SharedManualApproval != nil,
		p.ServiceStable != nil, p.VersionOrder != nil, p.StaticOrder != nil,
	} {
		if is {
			given = append(given, PreconditionNames[i])
		}
	}
	return given
}
