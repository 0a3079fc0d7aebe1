package config

import (
	"io/fs"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Installation contains the rules for runtimes and for the whole installation, which belong to no application, and its requirements for
// every application. It is in its own file, separate from applications.
type Installation struct {
	// The version of the format.
	APIVersion FormatVersion `json:"apiVersion"`
	// The kind of document.
	Kind string `json:"kind"`
	// The address of the board (converge serve), for links to it: https://HOST.
	Board string `json:"board,omitempty"`
	// How callers authenticate.
	Identity *InstallationIdentity `json:"identity,omitempty"`
	// The permissions. Everybody may use a verb that is not listed here.
	Authorization []InstallationAuthorization `json:"authorization,omitempty"`
	// Rules that apply to every application, and that no application can weaken.
	Baseline *Baseline `json:"baseline,omitempty"`
}

// Baseline contains the rules that apply to every application, and that no application can weaken.
type Baseline struct {
	// Protections of release channels, like those of an application. Their names are baseline/NAME.
	Protections []BaselineProtectionUse `json:"protections,omitempty"`
	// Approvals that releases need. People approve them as baseline/NAME.
	Approvals []BaselineApproval `json:"approvals,omitempty"`
	// Who may bypass these: names of people, and of groups as group:NAME. By default the people whom the application permits to bypass.
	Bypass []string `json:"bypass,omitempty"`
	// Verbs that every application rejects without authentication, or "*" for all that change something.
	Required Verbs `json:"required,omitempty"`
	// Limits of an application, checked when it is published.
	Limits *BaselineLimits `json:"limits,omitempty"`
}

// BaselineProtectionUse is a protection of every selected channel, of the kind allowedTimes, deniedVersions, prometheus, alertmanager,
// http or always.
type BaselineProtectionUse struct {
	// The name that explain shows and bypass accepts, after baseline/.
	Name Name `json:"name"`
	ProtectionKind
	// The stages of a release at which it is evaluated, as for a protection of an application.
	Lifecycle []ProtectionStage `json:"lifecycle,omitempty"`
	// Whether repairs of drift also evaluate it. By default only freezes (allowedTimes with nothing but freezes) do.
	Repairs *bool `json:"repairs,omitempty"`
	// The time between evaluations while a release waits for it: 30s; 5m for allowedTimes, deniedVersions and always.
	Interval Duration `json:"interval,omitempty"`
	// The channels to which it applies; by default all.
	Where *BaselineWhere `json:"where,omitempty"`
}

// BaselineApproval is an approval in every selected channel: one approval counts in all of them.
type BaselineApproval struct {
	// The name of the approval, after baseline/.
	Name Name `json:"name"`
	ManualApproval
	// The channels to which it applies; by default all.
	Where *BaselineWhere `json:"where,omitempty"`
}

// BaselineWhere selects channels by names or patterns such as prod-*. If several fields are set, all must match.
type BaselineWhere struct {
	// Applications.
	Applications []string `json:"applications,omitempty"`
	// Release channels.
	ReleaseChannels []string `json:"releaseChannels,omitempty"`
	// Runtimes of the service in the channel.
	Runtimes []string `json:"runtimes,omitempty"`
}

// BaselineLimits bound an application when it is published.
type BaselineLimits struct {
	// The maximum number of services.
	Services *int `json:"services,omitempty" jsonschema:"minimum=1"`
	// The maximum number of release channels.
	ReleaseChannels *int `json:"releaseChannels,omitempty" jsonschema:"minimum=1"`
	// The applications whose runtimes it may use; by default those of all.
	RuntimesOf []Name `json:"runtimesOf,omitempty"`
}

// InstallationIdentity configures authentication: by an OIDC ID token in each request.
type InstallationIdentity struct {
	Issued
	// Verbs that are rejected without authentication, or "*" for all.
	Required InstallationVerbs `json:"required,omitempty"`
	// Verbs that need proof by a token that was issued for that one act, as --sign requests it, or "*" for all.
	Bound InstallationVerbs `json:"bound,omitempty"`
	// Names of people, and of groups as group:NAME, to which bound does not apply, such as CI.
	BoundExcept []string `json:"boundExcept,omitempty"`
}

// InstallationAuthorization grants verbs to people and groups.
type InstallationAuthorization struct {
	// The verbs, or "*" for all. Everybody may publish a new application unless some grant names publish.
	Verbs InstallationVerbs `json:"verbs"`
	// The runtimes to which it applies. By default all runtimes and the whole installation.
	Runtimes []Name `json:"runtimes,omitempty"`
	// Allowed names of applications that are published for the first time, or patterns such as shop-*. By default any.
	Applications []string `json:"applications,omitempty"`
	// Allowed names of published libraries, or patterns such as org-*. By default any.
	Libraries []string `json:"libraries,omitempty"`
	// Names of people, and of groups as group:NAME.
	To []string `json:"to"`
}

// InstallationVerbs are names of verbs of runtimes and of the installation, or "*", or read.
type InstallationVerbs []string

// Choices lists the allowed names.
func (InstallationVerbs) Choices() []string {
	return []string{protocol.Pause, protocol.Resume, protocol.Drain, protocol.Restore, protocol.SignalGive, protocol.Grant, protocol.Configure, protocol.Publish, protocol.PublishLibrary, entities.VerbRead}
}

// Wanted describes the allowed values.
func (InstallationVerbs) Wanted() string { return `a list of verbs, or "*"` }

// DecodeStrict decodes a list, or "*".
func (v *InstallationVerbs) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	*v = decodeChoices(d, path, node, allowedList{v.Choices(), v.Wanted()})
}

// installation is the kind of a document that belongs to no application.
const installation = "Installation"

// ReadInstallation reads a file with one document.
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
