package config

import (
	"io/fs"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Installation has the rules of what belongs to no application: runtimes, and everything together. It stands in a file
// of its own, apart from applications.
type Installation struct {
	// The version of the format.
	APIVersion FormatVersion `json:"apiVersion"`
	// The kind of document.
	Kind string `json:"kind"`
	// How callers prove who they are.
	Identity *InstallationIdentity `json:"identity,omitempty"`
	// Who may do what. A verb that nothing here names may be used by anybody.
	Authorization []InstallationAuthorization `json:"authorization,omitempty"`
}

// InstallationIdentity is how callers prove who they are: by an OIDC ID token that comes with what they ask.
type InstallationIdentity struct {
	Issued
	// Verbs that are refused without proof, or "*" for all.
	Required InstallationVerbs `json:"required,omitempty"`
}

// InstallationAuthorization grants verbs to people and groups.
type InstallationAuthorization struct {
	// The verbs, or "*" for all.
	Verbs InstallationVerbs `json:"verbs"`
	// The runtimes on which it holds. When not given it holds on all, and for what concerns everything.
	Runtimes []Name `json:"runtimes,omitempty"`
	// Names of people, and of groups as group:NAME.
	To []string `json:"to"`
}

// InstallationVerbs are names of verbs of runtimes and of the installation, or "*".
type InstallationVerbs []string

// Choices lists the names that may stand in the file.
func (InstallationVerbs) Choices() []string {
	return []string{protocol.Pause, protocol.Resume, protocol.SignalGive, protocol.Grant, protocol.Configure}
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
