package config

import "github.com/converge-engine/converge/intent/internal/strict"

// PlanRules configure plans, which the services' settings about each other define.
type PlanRules struct {
	// The channels in which plans deploy and connect services; by default all.
	ReleaseChannels []Name `json:"releaseChannels,omitempty"`
	// The maximum number of concurrent nodes; by default unlimited.
	MaxParallelism *int `json:"maxParallelism,omitempty" jsonschema:"minimum=1"`
	// Whether a service's reconcilers wait only for it and for its requirements, and not for the aggregators.
	EagerReconcile bool `json:"eagerReconcile,omitempty" jsonschema:"default=false"`
	// Commands before everything else, in sequence. A failure ends the plan.
	Before []FirstStepUse `json:"before,omitempty"`
	// Commands after everything else, in sequence.
	After []StepUse `json:"after,omitempty"`
	// The recipients of captured secrets: age recipients, including that of the workers.
	AgeRecipients []string `json:"ageRecipients,omitempty"`
	// The command that makes the services' DNS names resolve to their addresses.
	DNS *CommandUse `json:"dns,omitempty"`
}

// CommandUse is the command of a plan node: inline, or by reference.
type CommandUse struct {
	// The name of an Extension.
	Ref Name `json:"ref,omitempty"`
	// Values for the parameters of the referenced Extension.
	Parameters map[ParameterName]Literal `json:"parameters,omitempty"`
	CommandRun
}

// CallbackUse is a command that captures secrets from the setup of a service.
type CallbackUse struct {
	// The names of the secrets in its output.
	Captures []ParameterName `json:"captures,omitempty"`
	CommandUse
}

// FirstStepUse is a command before everything else, whose outputs the rest of the plan may use.
type FirstStepUse struct {
	// The names of its outputs, which later commands of the plan may use as ${{ outputs.STEP.NAME }}.
	Outputs []ParameterName `json:"outputs,omitempty"`
	// The runtimes whose addresses it reports. They must not declare an address.
	Addresses []Name `json:"addresses,omitempty"`
	StepUse
}

// StepUse is a command before or after everything else.
type StepUse struct {
	// Its name, unique among the before or the after commands.
	Name Name `json:"name"`
	CommandUse
}

// ReconcilerUse is a command that connects a service with others.
type ReconcilerUse struct {
	// Its name, unique in the service.
	Name Name `json:"name"`
	// Services whose reconcilers, if any, run before those of this one.
	Requires []Name `json:"requires,omitempty"`
	CommandUse
}

// Aggregator configures how a service receives the feeds of others.
type Aggregator struct {
	// How the feeds reach it.
	Sync SyncUse `json:"sync"`
}

// SyncUse is the command that delivers collected feeds to an aggregator.
type SyncUse struct {
	// Whether the aggregator reads the feeds in place (dir), or needs a deployment of its own (redeploy).
	Strategy SyncStrategy `json:"strategy"`
	CommandUse
}

// SyncStrategy is dir or redeploy.
type SyncStrategy string

// Values lists the allowed values.
func (SyncStrategy) Values() []string { return []string{"dir", "redeploy"} }

// Feed is the input of a service for an aggregator. Either file or content is set, or neither: then the aggregator discovers it.
type Feed struct {
	// The service that collects the feed.
	Aggregator Name `json:"aggregator"`
	// A file with the feed: a path relative to this file, at or below its directory.
	File string `json:"file,omitempty"`
	// The text itself.
	Content string `json:"content,omitempty"`
}

// DNSName is a DNS name of a service.
type DNSName struct {
	// The name: sonarr.${{ constants.domain }}
	Name string `json:"name"`
}

var dnsRE = strict.Pattern(`^(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`)

// CheckDNSName rejects names that are invalid in DNS.
func CheckDNSName(name string) *Fault {
	if dnsRE().MatchString(name) && len(name) <= 253 {
		return nil
	}
	return &Fault{Code: "bad-name", Message: "invalid DNS name", Expected: "a name such as web.example.org"}
}
