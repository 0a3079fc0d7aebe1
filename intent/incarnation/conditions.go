package incarnation

import (
	"slices"

	"github.com/converge-engine/converge/entities"
)

// Upstream lists the channels that a channel waits for.
func Upstream(channel Channel) []string {
	var names []string
	for _, condition := range channel.Conditions {
		for _, name := range condition.Channels {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// conditionsAmong returns a channel's conditions for a service that goes to some channels only. A
// channel that it leaves out stands for those that that channel waits for, so that leaving one out
// never loosens the order of the others.
func conditionsAmong(channels []Channel, channel Channel, goesTo func(string) bool) []entities.Condition {
	var result []entities.Condition
	add := func(condition entities.Condition) {
		if len(condition.Channels) > 0 && !slices.ContainsFunc(result, func(o entities.Condition) bool { return o.ID == condition.ID }) {
			result = append(result, condition)
		}
	}
	for _, condition := range channel.Conditions {
		if condition.Kind != entities.ChannelStable {
			result = append(result, condition) // of this channel alone
			continue
		}
		names := present(channels, condition.Channels, goesTo)
		if condition.ID != "channel-stable/"+condition.Channels[0] || slices.Equal(names, condition.Channels) {
			condition.Channels = names
			add(condition)
			continue
		}
		for _, name := range names {
			add(entities.Condition{ID: "channel-stable/" + name, Kind: entities.ChannelStable, Channels: []string{name}})
		}
	}
	return result
}

// present replaces channels that a service leaves out by those that they wait for.
func present(channels []Channel, names []string, goesTo func(string) bool) []string {
	var result []string
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if goesTo(name) {
			result = append(result, name)
			return
		}
		at := slices.IndexFunc(channels, func(c Channel) bool { return c.Name == name })
		for _, further := range Upstream(channels[at]) {
			visit(further)
		}
	}
	for _, name := range names {
		visit(name)
	}
	return result
}
