package entities

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// This file holds authorization. A verb that no grant names is free for all. Once a grant names it, each channel concerned requires a
// grant.

// Who is a caller. The identity is proven by a token, or only stated and marked as such.
type Who struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups,omitempty"`
	Proven bool     `json:"proven,omitempty"`
	// Subject is the token's issuer and subject. It never changes to another person.
	Subject string `json:"subject,omitempty"`
	// MoreGroups is how many groups of the token exceed the limit, so that they do not count.
	MoreGroups int `json:"moreGroups,omitempty"`
}

// UncountedGroups says, at the end of a refusal, how many groups did not count, or returns "".
func (w Who) UncountedGroups() string {
	if w.MoreGroups == 0 {
		return ""
	}
	return fmt.Sprintf("; the token has %d more groups than the %d that count", w.MoreGroups, len(w.Groups))
}

// Same reports whether two callers are the same person, as far as known: by subject, even after a rename, or by name.
func (w Who) Same(other Who) bool {
	return w.Name == other.Name || w.Subject != "" && w.Subject == other.Subject
}

// Grant says who may do what (authorization of the application). It does not cover verbs and channels that it does not name. A verb that no
// grant names is free for all; the first grant that names it protects it.
type Grant struct {
	Verbs    []string `json:"verbs"`              // "release", "approve"… or "*"
	Channels []string `json:"channels,omitempty"` // empty: all
	To       []string `json:"to"`                 // "alice@shop.dev", "group:sre"
}

// Rules define the identity and the permissions of callers for everything outside of applications: runtimes, and the installation (F4).
type Rules struct {
	// Board is the address of the board, for links to it: https://HOST. Empty: there is none.
	Board    string    `json:"board,omitempty"`
	Identity *Identity `json:"identity,omitempty"`
	// Grants name scopes ("runtime/eu", "application/shop-*") in the place of channels.
	Grants []Grant `json:"grants,omitempty"`
	// Baseline applies to every application.
	Baseline *Baseline `json:"baseline,omitempty"`
}

var boardRE = regexp.MustCompile(`^https?://[A-Za-z0-9.:\[\]-]+/?$`)

// CheckBoard rejects a text other than the address of a board. An empty one is none.
func CheckBoard(text string) error {
	if text == "" {
		return nil
	}
	if u, err := url.Parse(text); err != nil || u.Hostname() == "" || !boardRE.MatchString(text) {
		return fmt.Errorf("invalid address of the board %q; expected https://HOST", Clip(text, 100))
	}
	return nil
}

// BoardPage returns the address of a page on a board, or "" without a board.
func BoardPage(board string, path ...string) string {
	if board == "" {
		return ""
	}
	page := strings.TrimSuffix(board, "/")
	for _, part := range path {
		page += "/" + url.PathEscape(part)
	}
	return page
}

// BoardMarkdown is a link to a page on a board for the Temporal UI, as a paragraph of its own after a text; "" without a board.
func BoardMarkdown(page string) string {
	if page == "" {
		return ""
	}
	return "\n\n[Its page on the board](" + page + ")"
}

// BoardLink returns the address of a service's page on a board, or "" without a board.
func BoardLink(board, application, service string) string {
	return BoardPage(board, "services", application, service)
}

// Identity defines how callers prove their identity: an OIDC ID token in the payload.
type Identity struct {
	Issuer   string `json:"issuer"`
	Audience string `json:"audience"`
	// KeysURL is the location of the keys, if workers cannot reach the issuer's discovery document.
	KeysURL     string `json:"keysUrl,omitempty"`
	UserClaim   string `json:"userClaim,omitempty"`   // default "email", then "sub"
	GroupsClaim string `json:"groupsClaim,omitempty"` // default "groups"
	// MaxAge is the maximum time since a token was issued; zero: an hour.
	MaxAge time.Duration `json:"maxAge,omitempty"`
	// Required lists verbs that are refused without proof; "*" is every verb that changes something.
	Required []string `json:"required,omitempty"`
	// Bound lists verbs whose tokens have to be issued for that one act (protocol.Act); "*" is every verb that changes something. BoundExcept
	// are names and groups ("group:ci") to which that does not apply, such as CI whose issuer takes no nonce.
	Bound       []string `json:"bound,omitempty"`
	BoundExcept []string `json:"boundExcept,omitempty"`
}

// MaxTokenAge limits how long a token is valid, in spite of any rules. For this time the store records which request a token served (G3).
const MaxTokenAge = 24 * time.Hour

// Age returns the maximum time since a token was issued.
func (i *Identity) Age() time.Duration { return min(cmp.Or(i.MaxAge, time.Hour), MaxTokenAge) }

// Authorize returns why a caller may not use a verb in all of the given channels, or nil. Without channels the request concerns the whole
// scope of the grants, and requires a grant for all channels.
func Authorize(grants []Grant, verb string, channels []string, who Who) error {
	if !slices.ContainsFunc(grants, func(g Grant) bool { return g.coversVerb(verb) }) {
		return nil
	}
	if len(channels) == 0 {
		channels = []string{""} // only a grant for all channels is sufficient
	}
	for _, c := range channels {
		var may []string
		granted := false
		for _, g := range grants {
			if !g.coversVerb(verb) || !g.coversScope(c) {
				continue
			}
			granted = granted || who.IsOneOf(g.To)
			may = append(may, g.To...)
		}
		if !granted {
			return fmt.Errorf("%s may not %s%s; allowed: %s%s", cmp.Or(who.Name, "a caller without a name"), verb, InChannel(c), JoinNames(may), who.UncountedGroups())
		}
	}
	return nil
}

// GrantedTo returns the names and groups that grants let use a verb in a channel. none: grants name the verb, and none of them for the channel.
// Without either, everybody may.
func GrantedTo(grants []Grant, verb, channel string) (names []string, none bool) {
	for _, g := range grants {
		none = none || g.coversVerb(verb)
		if g.coversVerb(verb) && g.coversScope(channel) {
			names = append(names, g.To...)
		}
	}
	return names, none && len(names) == 0
}

// VerbRead is what a grant names to say who may read an application, or the installation, through a server (converge serve). No "*" stands for it.
const VerbRead = "read"

// Readers returns who may read, as names of people and groups; none: everybody. Once a grant names VerbRead, those whom it names may, and those
// who may do anything else.
func Readers(grants []Grant) (names []string) {
	if !slices.ContainsFunc(grants, func(g Grant) bool { return slices.Contains(g.Verbs, VerbRead) }) {
		return nil
	}
	for _, g := range grants {
		names = append(names, g.To...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// coversScope reports whether a grant applies to a channel or a scope. Libraries may be named by patterns.
func (g Grant) coversScope(channel string) bool {
	return len(g.Channels) == 0 || slices.ContainsFunc(g.Channels, func(scope string) bool {
		pattern, libraries := strings.CutPrefix(scope, ScopeLibraries)
		name, library := strings.CutPrefix(channel, ScopeLibraries)
		matched, err := path.Match(pattern, name)
		return scope == channel || libraries && library && matched && err == nil
	})
}

// ScopeLibraries is the prefix of the scope of a grant for libraries: "library/org-*", a pattern of names.
const ScopeLibraries = "library/"

func (g Grant) coversVerb(verb string) bool {
	return slices.Contains(g.Verbs, verb) || slices.Contains(g.Verbs, "*")
}

// PrefixGroup is the prefix of a group in a list of people: "group:sre".
const PrefixGroup = "group:"

// IsOneOf reports whether a caller is in a list of names and groups ("alice", "group:sre").
func (w Who) IsOneOf(list []string) bool {
	for _, entry := range list {
		if group, ok := strings.CutPrefix(entry, PrefixGroup); ok {
			if slices.Contains(w.Groups, group) {
				return true
			}
		} else if entry == w.Name {
			return true
		}
	}
	return false
}

// Eligible says who may do something: people who are in each of the lists that are not empty, and are not excepted.
type Eligible struct {
	Named   []string `json:"named,omitempty"`   // names and groups ("group:sre") of the condition
	Granted []string `json:"granted,omitempty"` // those of the grants
	Except  []string `json:"except,omitempty"`  // names
	None    bool     `json:"none,omitempty"`    // no one may: no grant covers it
}

// Includes reports whether a person may, as far as names and groups tell.
func (e *Eligible) Includes(who Who) bool {
	return e == nil || isNamed(e.Named, who) && e.Grants(who) && !slices.Contains(e.Except, who.Name)
}

// Grants reports whether the grants let a person, as far as names and groups tell.
func (e *Eligible) Grants(who Who) bool { return e == nil || !e.None && isNamed(e.Granted, who) }

// isNamed reports whether a list names a person, or may do so by a group that is not known.
func isNamed(list []string, who Who) bool {
	return len(list) == 0 || who.IsOneOf(list) || who.MoreGroups > 0
}

// RequiresProof reports whether a verb requires proof of identity. "*" is every verb that changes something: all but refresh. So does a
// verb that requires a token for the one act. Without an Identity nothing requires proof.
func (i *Identity) RequiresProof(verb string) bool {
	return i != nil && (slices.Contains(i.Required, verb) || verb != "refresh" && slices.Contains(i.Required, "*")) || i.RequiresBound(verb)
}

// RequiresBound reports whether the token for a verb has to be issued for the one act, except for those in BoundExcept.
func (i *Identity) RequiresBound(verb string) bool {
	return i != nil && (slices.Contains(i.Bound, verb) || verb != "refresh" && slices.Contains(i.Bound, "*"))
}

// RestrictedByGrant reports whether a verb requires proof because a grant names it. Without proof, callers could state any name in the
// grant.
func (i *Identity) RestrictedByGrant(grants []Grant, verb string) bool {
	return i != nil && slices.ContainsFunc(grants, func(g Grant) bool { return g.coversVerb(verb) })
}

// InChannel says where something is, at the end of a sentence, or returns "".
func InChannel(channel string) string {
	if channel == "" {
		return ""
	}
	return " in " + channel
}

// JoinNames lists names without repeats, in the order of the configuration.
func JoinNames(names []string) string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return "no one"
	}
	return strings.Join(out, ", ")
}
