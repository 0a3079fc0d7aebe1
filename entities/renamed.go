package entities

import (
	"cmp"
	"slices"
	"strings"
)

// This file tells what is called otherwise from what is another thing: a channel is the same as long as its identity is.

// Title is what people call the service.
func (s *Spec) Title() string { return cmp.Or(s.Name, s.Service) }

// Identity is what runtimes and commands know the channel by: the name that it had first.
func (c *ChannelSpec) Identity() string { return cmp.Or(c.Key, c.Name) }

// Keys are the channels that have another name than first, with that; nil: none has.
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

// Renamed says which channels of a spec another one calls otherwise: the new names by the old ones.
func Renamed(before, after *Spec) map[string]string {
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

// Called is the spec with other names for some channels, by the ones that they have: wherever it speaks of them.
func (s *Spec) Called(names map[string]string) *Spec {
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
			c.Conditions[i] = c.Conditions[i].called(names, own)
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

// called renames the channels that a condition of a channel waits for, and the topic that is the channel's own.
func (c Condition) called(names map[string]string, channel string) Condition {
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

// ConditionIn is the id that a condition of a channel (by its old name) has under other names.
func ConditionIn(names map[string]string, channel, id string) string {
	if of, found := strings.CutPrefix(id, string(ChannelStable)+"/"); found {
		return string(ChannelStable) + "/" + NameIn(names, of)
	}
	if id == string(ManualApproval)+"/"+channel {
		return string(ManualApproval) + "/" + NameIn(names, channel)
	}
	return id
}

// NameIn is what something is called by other names, by the ones before; its own where they have none for it.
func NameIn(names map[string]string, name string) string { return cmp.Or(names[name], name) }

// OthersRenamed says which services that a spec's checks wait for another spec calls otherwise: the new names by the old ones.
func OthersRenamed(before, after *Spec) map[string]string {
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

// IDIn is the id that a check has once other services are called otherwise: it names the one that is waited for.
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
