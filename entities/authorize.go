package entities

import (
	"fmt"
	"slices"
	"strings"
)

// This file holds who may do what. A verb that no grant names is free; from the first grant that
// names it, it takes one for every channel concerned.

// Authorize says why a caller may not do something, or nil. No channels: it concerns all of them.
func (s *State) Authorize(verb string, channels []string, who Who) error {
	if s.Spec == nil || !guarded(s.Spec.Grants, verb) {
		return nil
	}
	if len(channels) == 0 {
		channels = s.Spec.channelNames()
	}
	if len(channels) == 0 {
		channels = []string{""} // only a grant for all channels will do
	}
	for _, c := range channels {
		var may []string
		granted := false
		for _, g := range s.Spec.Grants {
			if !g.names(verb) || len(g.Channels) > 0 && !slices.Contains(g.Channels, c) {
				continue
			}
			granted = granted || who.among(g.To)
			may = append(may, g.To...)
		}
		if !granted {
			return fmt.Errorf("%s may not %s%s; allowed: %s", who.shown(), verb, in(c), allowed(may))
		}
	}
	return nil
}

func guarded(grants []Grant, verb string) bool {
	for _, g := range grants {
		if g.names(verb) {
			return true
		}
	}
	return false
}

func (g Grant) names(verb string) bool {
	return slices.Contains(g.Verbs, verb) || slices.Contains(g.Verbs, "*")
}

// among tells whether somebody is in a list of names and groups ("alice", "group:sre").
func (w Who) among(list []string) bool {
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

func (w Who) shown() string {
	if w.Name == "" {
		return "somebody without a name"
	}
	return w.Name
}

// Demands tells whether a verb takes proof of who calls. "*" is every verb that changes something,
// so all but refresh. Without an Identity nothing does.
func (i *Identity) Demands(verb string) bool {
	if i == nil {
		return false
	}
	return slices.Contains(i.Required, verb) || verb != "refresh" && slices.Contains(i.Required, "*")
}

func in(channel string) string {
	if channel == "" {
		return ""
	}
	return " in " + channel
}

// allowed lists names without repeats, as they stand in the configuration.
func allowed(names []string) string {
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
