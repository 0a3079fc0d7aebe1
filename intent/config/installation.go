package config

import (
	"io/fs"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Installation has the rules of what belongs to no application: runtimes, and everything together; and what it demands of every
// application. It stands in a file of its own, apart from applications.
type Installation struct {
	// The version of the format.
	APIVersion FormatVersion `json:"apiVersion"`
	// The kind of document.
	Kind string `json:"kind"`
	// How callers prove who they are.
	Identity *InstallationIdentity `json:"identity,omitempty"`
	// Who may do what. A verb that nothing here names may be used by anybody.
	Authorization []InstallationAuthorization `json:"authorization,omitempty"`
	// What every application gets, and none can loosen.
	Baseline *Baseline `json:"baseline,omitempty"`
}

// Baseline is what every application gets, and none can loosen.
type Baseline struct {
	// Protections of release channels, as those of an application. They are called baseline/NAME.
	Protections []BaselineProtectionUse `json:"protections,omitempty"`
	// Approvals that releases need; people approve them as baseline/NAME.
	Approvals []BaselineApproval `json:"approvals,omitempty"`
	// Who may bypass these: names of people, and of groups as group:NAME. When not given, whoever an application lets bypass.
	Bypass []string `json:"bypass,omitempty"`
	// Verbs that every application refuses without proof, or "*" for all that change something.
	Required Verbs `json:"required,omitempty"`
	// What an application may have, when it is published.
	Limits *BaselineLimits `json:"limits,omitempty"`
}

// BaselineProtectionUse is a protection of every channel that it is for, evaluated by allowedTimes, deniedVersions, prometheus,
// alertmanager, http or always.
type BaselineProtectionUse struct {
	// What explain shows and bypass names, after baseline/.
	Name Name `json:"name"`
	ProtectionKind
	// When in the life of a release it is asked, as of a protection of an application.
	Lifecycle []ProtectionStage `json:"lifecycle,omitempty"`
	// Whether repairs of drift ask it too: freezes (allowedTimes with nothing but freezes) do unless this says otherwise.
	Repairs *bool `json:"repairs,omitempty"`
	// The time between readings while a release waits for it: 30s; 5m for allowedTimes, deniedVersions and always.
	Interval Duration `json:"interval,omitempty"`
	// The channels that it is for; all when not given.
	Where *BaselineWhere `json:"where,omitempty"`
}

// BaselineApproval is an approval in every channel that it is for: one word counts in all of them.
type BaselineApproval struct {
	// The name of the approval, after baseline/.
	Name Name `json:"name"`
	ManualApproval
	// The channels that it is for; all when not given.
	Where *BaselineWhere `json:"where,omitempty"`
}

// BaselineWhere selects channels by names, or patterns of them such as prod-*. Of several fields all have to match.
type BaselineWhere struct {
	// Applications.
	Applications []string `json:"applications,omitempty"`
	// Release channels.
	ReleaseChannels []string `json:"releaseChannels,omitempty"`
	// Runtimes that the service is on in the channel.
	Runtimes []string `json:"runtimes,omitempty"`
}

// BaselineLimits bound an application when it is published.
type BaselineLimits struct {
	// How many services it may have.
	Services *int `json:"services,omitempty" jsonschema:"minimum=1"`
	// How many release channels it may have.
	ReleaseChannels *int `json:"releaseChannels,omitempty" jsonschema:"minimum=1"`
	// The applications whose runtimes it may use; those of all when not given.
	RuntimesOf []Name `json:"runtimesOf,omitempty"`
}

// InstallationIdentity is how callers prove who they are: by an OIDC ID token that comes with what they ask.
type InstallationIdentity struct {
	Issued
	// Verbs that are refused without proof, or "*" for all.
	Required InstallationVerbs `json:"required,omitempty"`
}

// InstallationAuthorization grants verbs to people and groups.
type InstallationAuthorization struct {
	// The verbs, or "*" for all. Publishing a new application is free unless some grant names publish.
	Verbs InstallationVerbs `json:"verbs"`
	// The runtimes on which it holds. When not given it holds on all, and for what concerns everything.
	Runtimes []Name `json:"runtimes,omitempty"`
	// The names, or patterns of them such as shop-*, that an application may have which is published for the first time. When
	// not given, any.
	Applications []string `json:"applications,omitempty"`
	// The names, or patterns of them such as org-*, of libraries that may be published. When not given, any.
	Libraries []string `json:"libraries,omitempty"`
	// Names of people, and of groups as group:NAME.
	To []string `json:"to"`
}

// InstallationVerbs are names of verbs of runtimes and of the installation, or "*".
type InstallationVerbs []string

// Choices lists the names that may stand in the file.
func (InstallationVerbs) Choices() []string {
	return []string{protocol.Pause, protocol.Resume, protocol.Drain, protocol.TurnUp, protocol.SignalGive, protocol.Grant, protocol.Configure, protocol.Publish, protocol.PublishLibrary}
}

// Wanted words what may stand in the file.
func (InstallationVerbs) Wanted() string { return `a list of verbs, or "*"` }

// DecodeStrict reads a list, or "*".
func (v *InstallationVerbs) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	*v = decodeChoices(d, path, node, listing{v.Choices(), v.Wanted()})
}

// installation is the kind of a document that is part of no application.
const installation = "Installation"

// ReadInstallation reads the one document of a file.
func ReadInstallation(fsys fs.FS, name string) (*Document[Installation], *Reader) {
	l := &Reader{FS: fsys, kinds: []string{installation}, Config: &Config{}}
	l.source(name)
	all := l.Config.Installations
	switch {
	case len(all) == 1 && len(l.Decoders) == 1:
		return all[0], l
	case len(l.Problems()) == 0:
		l.fail(name, 1, 1, Fault{Code: "one-document", Message: "this is not one document of kind Installation", Expected: "nothing else in this file"})
	}
	return nil, l
}
