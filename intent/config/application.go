package config

// Application is the administrative domain: it owns the release channels and every Service in the
// same directory and below. There is one per directory tree.
type Application struct {
	Header
	// A description of the application.
	Description string `json:"description,omitempty"`
	// The targets of releases, and the rules to enter each. Their order is only for display; preconditions define the order of releases.
	ReleaseChannels []ReleaseChannel `json:"releaseChannels,omitempty"`
	// Protections of all channels.
	Protections []ProtectionUse `json:"protections,omitempty"`
	// Commands that run once for each release of a service, in all channels.
	Extensions []ExtensionUse `json:"extensions,omitempty"`
	// How concurrent releases of a service follow each other, unless the service has its own maestro.
	Maestro *Maestro `json:"maestro,omitempty"`
	// The steps in which a change of configuration is released to the services whose payload it changes. Without it, to all at once.
	ConfigRollout *ConfigRollout `json:"configRollout,omitempty"`
	// Settings for plans, which deploy connected services in order. The services' settings define the plan; this is the rest.
	Plan *PlanRules `json:"plan,omitempty"`
	// The types of the services' addons.
	AddonTypes []AddonType `json:"addonTypes,omitempty"`
	// Libraries whose release channels, protections and types of addons are added to this application.
	Imports []Import `json:"imports,omitempty"`
	// Commands that print additional configuration, in YAML. The input of each is the output of the previous ones.
	Generators []ConfigurationCommand `json:"generators,omitempty"`
	// Commands that validate the compiled incarnation, in JSON, and reject it by their exit code.
	Validators []ConfigurationCommand `json:"validators,omitempty"`
	// The checks of a manual rollback, for all services.
	Rollback *Rollback `json:"rollback,omitempty"`
	// How callers authenticate.
	Identity *Identity `json:"identity,omitempty"`
	// The permissions. Everybody may use a verb that is not listed here.
	Authorization []Authorization `json:"authorization,omitempty"`
	// Who is notified of which events. It has no substitutions.
	Notifications []Notification `json:"notifications,omitempty"`
}

// Rollback configures the checks of a manual rollback.
type Rollback struct {
	// Whether the gates of a channel are evaluated before a manual rollback to the previous good release there: skip rolls back
	// immediately and records that in the audit trail; ask waits for all gates, as for a release.
	Gates RollbackGates `json:"gates,omitempty" jsonschema:"default=skip"`
}

// RollbackGates is skip or ask.
type RollbackGates string

// Values lists the allowed values.
func (RollbackGates) Values() []string { return []string{"skip", "ask"} }

// ReleaseChannel is a named target of releases: staging, prod-us.
type ReleaseChannel struct {
	// The channel's name, unique in the application.
	Name Name `json:"name"`
	// The former name of the channel. The channel keeps its state under the new name, and its workloads do not change. The field may
	// remain permanently; it then has no further effect.
	RenamedFrom Name `json:"renamedFrom,omitempty"`
	// A description of the channel.
	Description string `json:"description,omitempty"`
	// Labels that selectors match, and that payloads may use as ${{ labels.KEY }}.
	Labels map[string]string `json:"labels,omitempty"`
	// The runtimes that services of this channel may run on.
	Runtimes []RuntimeRef `json:"runtimes"`
	// Values that payloads in this channel may use as ${{ constants.KEY }}.
	Constants map[string]string `json:"constants,omitempty"`
	// Conditions that must be true before a release may enter this channel.
	Preconditions []Precondition `json:"preconditions,omitempty"`
	// Other checks that a release must pass here, evaluated repeatedly while it waits.
	Protections []ProtectionUse `json:"protections,omitempty"`
	// Conditions that must be true after the objects are stable, before a release counts as succeeded.
	Postconditions []PostconditionUse `json:"postconditions,omitempty"`
	// Commands that run once for each release of a service here.
	Extensions []ExtensionUse `json:"extensions,omitempty"`
	// Whether a failed release is rolled back automatically here; false applies to every service.
	AutoRollback *bool `json:"autoRollback,omitempty" jsonschema:"default=true"`
	// Whether releases here are compared by the rules of the runtime (defaultComparisons).
	DefaultComparisons *bool `json:"defaultComparisons,omitempty" jsonschema:"default=true"`
	// Whether the desired state is applied here, or the changes are only shown and nothing is written.
	Enforcement Enforcement `json:"enforcement,omitempty" jsonschema:"default=enforce"`
	// What happens to the workloads when the channel is no longer declared, or a service no longer goes to it: orphan leaves them,
	// remove deletes them. Without it the services' own onDelete applies.
	OnDelete OnDelete `json:"onDelete,omitempty"`
	// How a release progresses through the instances of the channel, if there are several. Without it, to all at once.
	Rollout *Rollout `json:"rollout,omitempty"`
}

// Enforcement is enforce or report.
type Enforcement string

// Values lists the allowed values.
func (Enforcement) Values() []string { return []string{"enforce", "report"} }

// RuntimeRef names a runtime of a channel, or selects a fleet of runtimes, and the location there.
type RuntimeRef struct {
	// The name of a Runtime. Exactly one of this and selector is set.
	Name Name `json:"name,omitempty"`
	// Labels that a Runtime must have. Services have an instance on each matching runtime.
	Selector map[string]string `json:"selector,omitempty"`
	// The namespace, for runtimes that have them. It may use ${{ channel }}, ${{ service }}, ${{ application }},
	// ${{ labels.KEY }}, ${{ constants.KEY }}, ${{ runtime }} and ${{ runtime.labels.KEY }}.
	Namespace string `json:"namespace,omitempty"`
	// The Kubernetes service account that applies and removes objects: a name in that namespace, or NAMESPACE/NAME. Without it, the
	// identity of the worker's own credentials.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// The previous runtime of the services of this channel, before they move to this one. Without it such a change is rejected.
	MovedFrom *MovedFrom `json:"movedFrom,omitempty"`
}

// MovedFrom names the previous runtime of services, and what happens to their objects there.
type MovedFrom struct {
	// The name of the runtime, which may be no longer defined.
	Runtime Name `json:"runtime"`
	// What happens to the objects there after the service has converged on its new runtime: keep leaves them and reports them as
	// orphaned; remove deletes them.
	Then MovedThen `json:"then,omitempty" jsonschema:"default=keep"`
}

// MovedThen is keep or remove.
type MovedThen string

// Values lists the allowed values.
func (MovedThen) Values() []string { return []string{"keep", "remove"} }

// Precondition is one condition for entering a channel. Exactly one field is set.
type Precondition struct {
	// Passes after the release has succeeded in other channels.
	ReleaseChannelStable *ReleaseChannelStable `json:"releaseChannelStable,omitempty"`
	// Passes after people have approved the release in this channel.
	ManualApproval *ManualApproval `json:"manualApproval,omitempty"`
	// Passes after people have approved the release, in all channels with the same approval.
	SharedManualApproval *SharedManualApproval `json:"sharedManualApproval,omitempty"`
	// Passes while another service is stable.
	ServiceStable *OtherService `json:"serviceStable,omitempty"`
	// Passes while the version of another service is at least the one to be released.
	VersionOrder *OtherService `json:"versionOrder,omitempty"`
	// Passes when another service has no pending release of this configuration or an earlier one in the channel.
	StaticOrder *OtherService `json:"staticOrder,omitempty"`
}

// ReleaseChannelStable passes after the release has succeeded in a channel, or in all channels that match a selector. Exactly one of the
// two is set. A success remains valid for that release.
type ReleaseChannelStable struct {
	// The name of the channel.
	ReleaseChannel Name `json:"releaseChannel,omitempty"`
	// Labels that a channel must have.
	Selector map[string]string `json:"selector,omitempty"`
	// The minimum time since the release succeeded there. Later releases of that channel do not stop the time.
	For Duration `json:"for,omitempty"`
	// Whether the success there is sufficient, independent of later events. With false the channel must also be healthy now, at any
	// version.
	Sticky *bool `json:"sticky,omitempty" jsonschema:"default=true"`
}

// OtherService names a service that the other services of a channel depend on. It does not depend on itself.
type OtherService struct {
	// The name of the service; for another application's service orders/api.
	Service ServiceName `json:"service"`
	// The channel of the service; the same channel by default.
	ReleaseChannel Name `json:"releaseChannel,omitempty"`
}

// PreconditionNames are the fields of a precondition; exactly one is set.
var PreconditionNames = []string{"releaseChannelStable", "manualApproval", "sharedManualApproval", "serviceStable", "versionOrder", "staticOrder"}

// Given lists the fields that are set; exactly one is valid.
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
