package entities

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// This file holds who may do what. A verb that no grant names is free; from the first grant that
// names it, it takes one for every channel concerned.

// Who is a caller: proven by a token, or stated and shown as such.
type Who struct {
	Name   string   `json:"name"`
	Groups []string `json:"groups,omitempty"`
	Proven bool     `json:"proven,omitempty"`
	// Subject is the issuer and its own name of the caller, which never becomes another's.
	Subject string `json:"subject,omitempty"`
	// MoreGroups is how many groups of the token are too many, so that they do not count.
	MoreGroups int `json:"moreGroups,omitempty"`
}

// Uncounted says of which groups a refusal took no notice, at the end of a sentence, or nothing.
func (w Who) Uncounted() string {
	if w.MoreGroups == 0 {
		return ""
	}
	return fmt.Sprintf("; the token names %d groups more than the %d that count", w.MoreGroups, len(w.Groups))
}

// Same tells whether two are one person, as far as can be told: by subject, whatever they are called by now, or by name.
func (w Who) Same(other Who) bool {
	return w.Name == other.Name || w.Subject != "" && w.Subject == other.Subject
}

// Grant says who may do what (authorization of the application). Verbs and channels that are not
// named are not granted. Who nobody granted anything about a verb may do it: a verb is guarded from
// the first grant that names it.
type Grant struct {
	Verbs    []string `json:"verbs"`              // "release", "approve"… or "*"
	Channels []string `json:"channels,omitempty"` // empty: all
	To       []string `json:"to"`                 // "alice@shop.dev", "group:sre"
}

// Rules are who callers are and what they may do with what belongs to no application: runtimes, and everything (F4).
type Rules struct {
	Identity *Identity `json:"identity,omitempty"`
	// Grants name scopes ("runtime/eu", "application/shop-*") where those of an application name channels.
	Grants []Grant `json:"grants,omitempty"`
	// Baseline is what every application gets.
	Baseline *Baseline `json:"baseline,omitempty"`
}

// Identity is how callers prove who they are: an OIDC ID token in the payload.
type Identity struct {
	Issuer   string `json:"issuer"`
	Audience string `json:"audience"`
	// KeysURL: where the keys are, when the issuer's discovery document cannot be reached from workers.
	KeysURL     string `json:"keysUrl,omitempty"`
	UserClaim   string `json:"userClaim,omitempty"`   // default "email", then "sub"
	GroupsClaim string `json:"groupsClaim,omitempty"` // default "groups"
	// MaxAge is how long ago a token may have been issued; zero: an hour.
	MaxAge time.Duration `json:"maxAge,omitempty"`
	// Required: verbs that are refused without proof; "*" is every verb that changes something.
	Required []string `json:"required,omitempty"`
}

// MaxTokenAge bounds how long a token is believed, whatever rules say: for so long it is known which request it served (G3).
const MaxTokenAge = 24 * time.Hour

// Age is how long ago a token may have been issued.
func (i *Identity) Age() time.Duration { return min(cmp.Or(i.MaxAge, time.Hour), MaxTokenAge) }

// Authorize says why a caller may not do something in all of the channels given, or nil. No channels: it
// concerns the whole of what the grants are of, and takes a grant for all channels.
func Authorize(grants []Grant, verb string, channels []string, who Who) error {
	if !slices.ContainsFunc(grants, func(g Grant) bool { return g.names(verb) }) {
		return nil
	}
	if len(channels) == 0 {
		channels = []string{""} // only a grant for all channels will do
	}
	for _, c := range channels {
		var may []string
		granted := false
		for _, g := range grants {
			if !g.names(verb) || !g.covers(c) {
				continue
			}
			granted = granted || who.Among(g.To)
			may = append(may, g.To...)
		}
		if !granted {
			return fmt.Errorf("%s may not %s%s; allowed: %s%s", cmp.Or(who.Name, "somebody without a name"), verb, In(c), Everybody(may), who.Uncounted())
		}
	}
	return nil
}

// covers tells whether a grant holds in a channel, or where a scope says. Libraries may be named by patterns.
func (g Grant) covers(channel string) bool {
	return len(g.Channels) == 0 || slices.ContainsFunc(g.Channels, func(scope string) bool {
		pattern, libraries := strings.CutPrefix(scope, ScopeLibraries)
		name, library := strings.CutPrefix(channel, ScopeLibraries)
		matched, err := path.Match(pattern, name)
		return scope == channel || libraries && library && matched && err == nil
	})
}

// ScopeLibraries begins the scope of a grant for libraries: "library/org-*", by a pattern of names.
const ScopeLibraries = "library/"

func (g Grant) names(verb string) bool {
	return slices.Contains(g.Verbs, verb) || slices.Contains(g.Verbs, "*")
}

// Among tells whether somebody is in a list of names and groups ("alice", "group:sre").
func (w Who) Among(list []string) bool {
	for _, entry := range list {
		if group, ok := strings.CutPrefix(entry, "group:"); ok {
			if slices.Contains(w.Groups, group) {
				return true
			}
		} else if entry == w.Name {
			return true
		}
	}
	return false
}

// Demands tells whether a verb takes proof of who calls. "*" is every verb that changes something,
// so all but refresh. Without an Identity nothing does.
func (i *Identity) Demands(verb string) bool {
	return i != nil && (slices.Contains(i.Required, verb) || verb != "refresh" && slices.Contains(i.Required, "*"))
}

// Restricts tells whether a verb takes proof since grants say who may use it: without, anybody could state a name of theirs.
func (i *Identity) Restricts(grants []Grant, verb string) bool {
	return i != nil && slices.ContainsFunc(grants, func(g Grant) bool { return g.names(verb) })
}

// In says where something is, at the end of a sentence, or nothing.
func In(channel string) string {
	if channel == "" {
		return ""
	}
	return " in " + channel
}

// Everybody lists names without repeats, as they stand in the configuration.
func Everybody(names []string) string {
	var out []string
	for _, n := range names {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	if len(out) == 0 {
		return "nobody"
	}
	return strings.Join(out, ", ")
}
