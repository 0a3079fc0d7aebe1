package config

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Identity is how callers prove who they are: by an OIDC ID token that comes with what they ask.
type Identity struct {
	Issued
	// Verbs that are refused without proof, or "*" for all that change something.
	Required Verbs `json:"required,omitempty"`
}

// Issued says whose tokens are believed, and what they say.
type Issued struct {
	// Who issues the tokens, as their iss claim says it.
	Issuer string `json:"issuer"`
	// Whom the tokens are for, as their aud claim says it.
	Audience string `json:"audience"`
	// The address of the issuer's keys, where workers cannot reach its discovery document.
	KeysURL string `json:"keysUrl,omitempty"`
	// The claim that names the caller; email, or else sub, when not given.
	UserClaim string `json:"userClaim,omitempty"`
	// The claim that lists the caller's groups.
	GroupsClaim string `json:"groupsClaim,omitempty" jsonschema:"default=groups"`
	// How long ago a token may have been issued, whatever it says itself; at most 24h.
	MaxAge Duration `json:"maxAge,omitempty" jsonschema:"default=1h"`
}

// Authorization grants verbs to people and groups. A verb that no grant names may be used by anybody.
type Authorization struct {
	// The verbs, or "*" for all that change something.
	Verbs Verbs `json:"verbs"`
	// The channels in which it holds; all when neither this nor selector is given.
	ReleaseChannels []Name `json:"releaseChannels,omitempty"`
	// Or all channels that have all of these labels.
	Selector map[string]string `json:"selector,omitempty"`
	// Names of people, and of groups as group:NAME.
	To []string `json:"to"`
}

// Notification sends what happens to an address.
type Notification struct {
	// Its name, unique in the application.
	Name Name `json:"name"`
	// The address, or {workerEnv: NAME} where that is a secret.
	URL EnvValue `json:"url"`
	// The form: as Converge's own JSON, or as a message to Slack.
	Format NotificationFormat `json:"format,omitempty" jsonschema:"default=json"`
	// What is sent, or "*" for everything.
	Events Events `json:"events"`
}

// NotificationFormat is json or slack.
type NotificationFormat string

// Values lists what may stand in the file.
func (NotificationFormat) Values() []string { return []string{"json", "slack"} }

// ManualApproval passes once people have approved the release in this channel.
type ManualApproval struct {
	// How many people it takes.
	MinApprovers *int `json:"minApprovers,omitempty" jsonschema:"default=1,minimum=1"`
	// Who may: names of people, and of groups as group:NAME; anybody when not given.
	Approvers []string `json:"approvers,omitempty"`
	// Whether somebody else has to approve than who released it.
	NotReleaser bool `json:"notReleaser,omitempty" jsonschema:"default=false"`
}

// SharedManualApproval passes once people have approved the release, in all channels that name the same
// approval.
type SharedManualApproval struct {
	// The name of the approval.
	Name Name `json:"name"`
	ManualApproval
}

// Everything stands for all verbs, or all events.
const Everything = "*"

// Verbs are names of verbs, or "*".
type Verbs []string

// Events are names of events, or "*".
type Events []string

// Choices lists the names that may stand in the file.
func (Verbs) Choices() []string {
	return []string{
		protocol.Release, protocol.Approve, protocol.Reject, protocol.Bypass, protocol.Pause, protocol.Resume, protocol.Pin, protocol.Unpin,
		protocol.Rollback, protocol.Cancel, protocol.Retry, protocol.Refresh, protocol.RestartService, protocol.Promote, protocol.Abort, protocol.Delete,
		protocol.Unmanage, protocol.Manage, protocol.Publish, protocol.TakeOver,
	}
}

// Wanted words what may stand in the file.
func (Verbs) Wanted() string { return `a list of verbs, or "*"` }

// DecodeStrict reads a list, or "*".
func (v *Verbs) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	*v = decodeChoices(d, path, node, listing{v.Choices(), v.Wanted()})
}

// Choices lists the names that may stand in the file.
func (Events) Choices() []string { return entities.EventKinds() }

// Wanted words what may stand in the file.
func (Events) Wanted() string { return `a list of events, or "*"` }

// DecodeStrict reads a list, or "*".
func (e *Events) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	*e = decodeChoices(d, path, node, listing{e.Choices(), e.Wanted()})
}

// listing is what a list may hold, and how that is worded.
type listing struct {
	choices []string
	wanted  string
}

func decodeChoices(d *strict.Decoder, path string, node *yaml.Node, of listing) []string {
	if node.Kind == yaml.ScalarNode {
		if text, ok := strict.Scalar(node); ok && text == Everything {
			return []string{Everything}
		}
		d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: of.wanted})
		return nil
	}
	var all []string
	d.Value(path, node, &all)
	seen := map[string]bool{}
	for i, name := range all {
		at := strict.Index(path, i)
		switch known := name == Everything || slices.Contains(of.choices, name); {
		case d.Faulty(at):
		case !known:
			d.Report(at, strict.Unknown("bad-value", fmt.Sprintf("%q is not possible here", strict.Clip(name)), name, of.choices))
		case seen[name]:
			d.Report(at, Fault{Code: "duplicate-name", Message: fmt.Sprintf("%q is listed twice", name)})
		}
		seen[name] = true
	}
	if len(all) == 0 && !d.Faulty(path) {
		d.Report(path, Fault{Code: "missing-field", Message: "the list is empty", Expected: of.wanted})
	}
	return all
}
