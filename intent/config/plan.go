package config

import "regexp"

// PlanRules say how what services say of each other becomes one graph of work, and how that is done.
type PlanRules struct {
	// The channels in which services are deployed and fitted together by a plan; all when not given.
	ReleaseChannels []Name `json:"releaseChannels,omitempty"`
	// How many pieces of work run at once; no bound when not given.
	MaxParallelism *int `json:"maxParallelism,omitempty" jsonschema:"minimum=1"`
	// Whether a service's reconcilers wait only for it and for what they require, and not for the aggregators.
	EagerReconcile bool `json:"eagerReconcile,omitempty" jsonschema:"default=false"`
	// Commands before everything else, one after another. After one that failed nothing follows.
	Before []FirstStepUse `json:"before,omitempty"`
	// Commands after everything else, one after another.
	After []StepUse `json:"after,omitempty"`
	// For whom captured secrets are encrypted: age recipients, that of the workers among them.
	AgeRecipients []string `json:"ageRecipients,omitempty"`
	// The command that makes the names of services lead to where they are.
	DNS *CommandUse `json:"dns,omitempty"`
}

// CommandUse is what runs for a piece of work: written out, or by reference.
type CommandUse struct {
	// The name of an Extension.
	Ref Name `json:"ref,omitempty"`
	// Values for the parameters of what is referred to.
	Parameters map[ParameterName]Literal `json:"parameters,omitempty"`
	CommandRun
}

// CallbackUse is a command that captures what setting up a service produced.
type CallbackUse struct {
	// The names of the secrets that it prints.
	Captures []ParameterName `json:"captures,omitempty"`
	CommandUse
}

// FirstStepUse is a command before everything else, which may report what the rest uses.
type FirstStepUse struct {
	// The names of what it reports, which what comes after it in the plan may use as ${{ outputs.STEP.NAME }}.
	Outputs []ParameterName `json:"outputs,omitempty"`
	// The runtimes whose addresses it reports, which do not declare one.
	Addresses []Name `json:"addresses,omitempty"`
	StepUse
}

// StepUse is a command before or after everything else.
type StepUse struct {
	// Its name, unique among those before, or after.
	Name Name `json:"name"`
	CommandUse
}

// ReconcilerUse is a command that fits a service into others.
type ReconcilerUse struct {
	// Its name, unique in the service.
	Name Name `json:"name"`
	// Services whose reconcilers, where they have some, come before those of this one.
	Requires []Name `json:"requires,omitempty"`
	CommandUse
}

// Aggregator says how a service takes what others have for it.
type Aggregator struct {
	// How that gets there.
	Sync SyncUse `json:"sync"`
}

// SyncUse is how what was collected gets to where it is read.
type SyncUse struct {
	// Whether it is read where it lies (dir), or takes a deployment of its own (redeploy).
	Strategy SyncStrategy `json:"strategy"`
	CommandUse
}

// SyncStrategy is dir or redeploy.
type SyncStrategy string

// Values lists what may stand in the file.
func (SyncStrategy) Values() []string { return []string{"dir", "redeploy"} }

// Feed is what a service has for an aggregator. A file or content is given, or neither: the aggregator finds it by itself.
type Feed struct {
	// The service that collects it.
	Aggregator Name `json:"aggregator"`
	// A file with it: a path relative to this file, at or below its directory.
	File string `json:"file,omitempty"`
	// The text itself.
	Content string `json:"content,omitempty"`
}

// DNSName is a name of a service in the domain name system.
type DNSName struct {
	// The name: sonarr.${{ constants.domain }}
	Name string `json:"name"`
}

var dnsRE = regexp.MustCompile(`^(\*\.)?([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`)

// CheckDNSName refuses what the domain name system cannot hold.
func CheckDNSName(name string) *Fault {
	if dnsRE.MatchString(name) && len(name) <= 253 {
		return nil
	}
	return &Fault{Code: "bad-name", Message: "this is no name in the domain name system", Expected: "a name such as web.example.org"}
}
