package entities

import (
	"cmp"
	"slices"
	"strings"
)

// This file distinguishes renamed channels and services from new ones: a channel is the same as long as its identity is the same.

// Title returns the current name of the service.
func (s *Spec) Title() string { return cmp.Or(s.Name, s.Service) }

// Identity returns the first name of the channel. Runtimes and commands use it.
func (c *ChannelSpec) Identity() string { return cmp.Or(c.Key, c.Name) }

// Keys returns the first names of the renamed channels, by current name; nil if there are none.
func (s *Spec) Keys() map[string]string {
	var keys map[string]string
	for n := range s.Channels {
		if c := &s.Channels[n]; c.Key != "" {
			if keys == nil {
				keys = map[string]string{}
			}
			keys[c.Name] = c.Key
		}
	}
	return keys
}

// RenamedChannels returns the channels that have another name in the second spec: the new names by the old ones.
func RenamedChannels(before, after *Spec) map[string]string {
	names := map[string]string{}
	if before == nil || after == nil {
		return names
	}
	for n := range after.Channels {
		now := &after.Channels[n]
		if _, known := before.Channel(now.Name); known {
			continue
		}
		at := slices.IndexFunc(before.Channels, func(o ChannelSpec) bool { return o.Identity() == now.Identity() })
		if at < 0 {
			continue
		}
		if _, still := after.Channel(before.Channels[at].Name); !still {
			names[before.Channels[at].Name] = now.Name
		}
	}
	return names
}

// WithChannelNames returns the spec with new names for some channels, by their current names. All references to the channels change too.
func (s *Spec) WithChannelNames(names map[string]string) *Spec {
	if s == nil || len(names) == 0 {
		return s
	}
	out := *s
	out.Channels = slices.Clone(s.Channels)
	for n := range out.Channels {
		c := &out.Channels[n]
		own := c.Name
		c.Key, c.Name = c.Identity(), NameIn(names, own)
		if c.Key == c.Name {
			c.Key = ""
		}
		c.Conditions = slices.Clone(c.Conditions)
		for i := range c.Conditions {
			c.Conditions[i] = c.Conditions[i].withChannelNames(names, own)
		}
	}
	out.Grants = slices.Clone(s.Grants)
	for n := range out.Grants {
		g := &out.Grants[n]
		g.Channels = slices.Clone(g.Channels)
		for i, channel := range g.Channels {
			g.Channels[i] = NameIn(names, channel)
		}
	}
	return &out
}

// withChannelNames renames the channels that a condition of a channel waits for, and the topic if it is the channel's own.
func (c Condition) withChannelNames(names map[string]string, channel string) Condition {
	c.ID = ConditionIn(names, channel, c.ID)
	c.Channels = slices.Clone(c.Channels)
	for n, name := range c.Channels {
		c.Channels[n] = NameIn(names, name)
	}
	if c.Topic == channel {
		c.Topic = NameIn(names, channel)
	}
	return c
}

// ConditionIn returns the id of a condition under new names. channel is the old name of its channel.
func ConditionIn(names map[string]string, channel, id string) string {
	if of, found := strings.CutPrefix(id, string(ChannelStable)+"/"); found {
		return string(ChannelStable) + "/" + NameIn(names, of)
	}
	if id == string(ManualApproval)+"/"+channel {
		return string(ManualApproval) + "/" + NameIn(names, channel)
	}
	return id
}

// NameIn returns the new name of something, or its old name if it was not renamed.
func NameIn(names map[string]string, name string) string { return cmp.Or(names[name], name) }

// RenamedServices returns the services in the checks of a spec that have another name in the second spec: the new names by the old ones.
func RenamedServices(before, after *Spec) map[string]string {
	names := map[string]string{}
	for _, name := range SortedKeys(before.Others) {
		names[name] = before.Others[name]
	}
	for _, name := range SortedKeys(after.Others) {
		key, old := after.Others[name], after.Others[name]
		for _, o := range SortedKeys(before.Others) {
			if before.Others[o] == key {
				old = o
			}
		}
		names[old] = name
	}
	return names
}

// IDIn returns the id of a check under new names of other services. The id contains the name of the service that it waits for.
func (c *Check) IDIn(names map[string]string) string {
	kind, on, named := strings.Cut(c.ID, "/")
	if !named || !c.Kind.OnOthers() {
		return c.ID
	}
	service, channel, elsewhere := strings.Cut(on, "@")
	id := kind + "/" + NameIn(names, service)
	if elsewhere {
		id += "@" + channel
	}
	return id
}
