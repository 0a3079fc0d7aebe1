package config

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Identity configures authentication: by an OIDC ID token in each request.
type Identity struct {
	Issued
	// Verbs that are rejected without authentication, or "*" for all that change something.
	Required Verbs `json:"required,omitempty"`
	// Verbs that need proof by a token that was issued for that one act, as the board and --sign request it, or "*" for all that change something.
	Bound Verbs `json:"bound,omitempty"`
	// Names of people, and of groups as group:NAME, to which bound does not apply, such as CI.
	BoundExcept []string `json:"boundExcept,omitempty"`
}

// Issued configures the issuer and the claims of accepted tokens.
type Issued struct {
	// The issuer of the tokens, as in their iss claim.
	Issuer string `json:"issuer"`
	// The audience of the tokens, as in their aud claim.
	Audience string `json:"audience"`
	// The URL of the issuer's keys, if workers cannot reach its discovery document.
	KeysURL string `json:"keysUrl,omitempty"`
	// The claim with the caller's name; by default email, or else sub.
	UserClaim string `json:"userClaim,omitempty"`
	// The claim with the caller's groups.
	GroupsClaim string `json:"groupsClaim,omitempty" jsonschema:"default=groups"`
	// The maximum age of a token, independent of its own expiry; at most 24h.
	MaxAge Duration `json:"maxAge,omitempty" jsonschema:"default=1h"`
}

// Authorization grants verbs to people and groups. Everybody may use a verb that no grant names.
type Authorization struct {
	// The verbs, or "*" for all that change something, or read.
	Verbs GrantVerbs `json:"verbs"`
	// The channels to which it applies; all if neither this nor selector is set.
	ReleaseChannels []Name `json:"releaseChannels,omitempty"`
	// Or all channels with all of these labels.
	Selector map[string]string `json:"selector,omitempty"`
	// Names of people, and of groups as group:NAME.
	To []string `json:"to"`
}

// Notification sends events to an address.
type Notification struct {
	// Its name, unique in the application.
	Name Name `json:"name"`
	// The address, or {workerEnv: NAME} if it is a secret.
	URL EnvValue `json:"url"`
	// The format: Converge's own JSON, or a Slack message.
	Format NotificationFormat `json:"format,omitempty" jsonschema:"default=json"`
	// The events to send, or "*" for all.
	Events Events `json:"events"`
}

// NotificationFormat is json or slack.
type NotificationFormat string

// Values lists the allowed values.
func (NotificationFormat) Values() []string { return []string{"json", "slack"} }

// ManualApproval passes after people have approved the release in this channel.
type ManualApproval struct {
	// The required number of approvers.
	MinApprovers *int `json:"minApprovers,omitempty" jsonschema:"default=1,minimum=1"`
	// Who may approve: names of people, and of groups as group:NAME; by default everybody.
	Approvers []string `json:"approvers,omitempty"`
	// Whether the approver must be a different person than the releaser.
	NotReleaser bool `json:"notReleaser,omitempty" jsonschema:"default=false"`
}

// SharedManualApproval passes after people have approved the release, in all channels with the same approval.
type SharedManualApproval struct {
	// The name of the approval.
	Name Name `json:"name"`
	ManualApproval
}

// Everything means all verbs, or all events.
const Everything = "*"

// Verbs are names of verbs, or "*".
type Verbs []string

// Events are names of events, or "*".
type Events []string

// Choices lists the allowed names.
func (Verbs) Choices() []string {
	return []string{
		protocol.Release, protocol.Approve, protocol.Reject, protocol.Bypass, protocol.Pause, protocol.Resume, protocol.Pin, protocol.Unpin,
		protocol.Rollback, protocol.Cancel, protocol.Retry, protocol.Refresh, protocol.RestartService, protocol.Adopt, protocol.Return, protocol.Promote, protocol.Abort, protocol.Delete,
		protocol.Unmanage, protocol.Manage, protocol.Publish, protocol.TakeOver, protocol.PinApplication,
	}
}

// Wanted describes the allowed values.
func (Verbs) Wanted() string { return `a list of verbs, or "*"` }

// DecodeStrict decodes a list, or "*".
func (v *Verbs) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	*v = decodeChoices(d, path, node, allowedList{v.Choices(), v.Wanted()})
}

// GrantVerbs are names of verbs, or "*", or read.
type GrantVerbs []string

// Choices lists the allowed names.
func (GrantVerbs) Choices() []string { return append(Verbs(nil).Choices(), entities.VerbRead) }

// Wanted describes the allowed values.
func (GrantVerbs) Wanted() string { return Verbs(nil).Wanted() }

// DecodeStrict decodes a list, or "*".
func (v *GrantVerbs) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	*v = decodeChoices(d, path, node, allowedList{v.Choices(), v.Wanted()})
}

// Choices lists the allowed names.
func (Events) Choices() []string { return entities.EventKinds() }

// Wanted describes the allowed values.
func (Events) Wanted() string { return `a list of events, or "*"` }

// DecodeStrict decodes a list, or "*".
func (e *Events) DecodeStrict(d *strict.Decoder, path string, node *yaml.Node) {
	*e = decodeChoices(d, path, node, allowedList{e.Choices(), e.Wanted()})
}

// allowedList is the allowed content of a list, and its description.
type allowedList struct {
	choices     []string
	description string
}

func decodeChoices(d *strict.Decoder, path string, node *yaml.Node, allowed allowedList) []string {
	if node.Kind == yaml.ScalarNode {
		if text, ok := strict.Scalar(node); ok && text == Everything {
			return []string{Everything}
		}
		d.Fail(path, node, Fault{Code: "wrong-type", Message: "this is " + strict.Describe(node), Expected: allowed.description})
		return nil
	}
	var all []string
	d.Value(path, node, &all)
	seen := map[string]bool{}
	for i, name := range all {
		at := strict.Index(path, i)
		switch known := name == Everything || slices.Contains(allowed.choices, name); {
		case d.Faulty(at):
		case !known:
			d.Report(at, strict.Unknown("bad-value", fmt.Sprintf("%q is not possible here", strict.Clip(name)), name, allowed.choices))
		case seen[name]:
			d.Report(at, Fault{Code: "duplicate-name", Message: fmt.Sprintf("%q is listed twice", name)})
		}
		seen[name] = true
	}
	if len(all) == 0 && !d.Faulty(path) {
		d.Report(path, Fault{Code: "missing-field", Message: "the list is empty", Expected: allowed.description})
	}
	return all
}
