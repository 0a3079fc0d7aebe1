package compile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// defineConditions resolves the preconditions of every channel to channels (A8).
func (c *compiler) defineConditions(app *config.Document[config.Application]) {
	for i, channel := range app.Spec.ReleaseChannels {
		at := slices.IndexFunc(c.channels, func(d incarnation.Channel) bool { return d.Name == string(channel.Name) })
		if at < 0 || app.At(strict.Index("releaseChannels", i)+".name").Line != c.lineOf(app, channel.Name) {
			continue // reported: a second channel of that name
		}
		for j, precondition := range channel.Preconditions {
			path := strict.Index(strict.Index("releaseChannels", i)+".preconditions", j)
			c.defineCondition(app, path, precondition, &c.channels[at])
		}
	}
}

// lineOf is where the first channel of a name is declared.
func (c *compiler) lineOf(app *config.Document[config.Application], name config.Name) int {
	i := slices.IndexFunc(app.Spec.ReleaseChannels, func(r config.ReleaseChannel) bool { return r.Name == name })
	return app.At(strict.Index("releaseChannels", i) + ".name").Line
}

func (c *compiler) defineCondition(app *config.Document[config.Application], path string, precondition config.Precondition, channel *incarnation.Channel) {
	switch given := precondition.Given(); {
	case app.Faulty(path):
	case len(given) == 0:
		c.report(app.Decoder, path, strict.Fault{Code: "missing-field", Message: "this precondition is empty", Expected: strict.OneOf(config.PreconditionNames)})
	case len(given) > 1:
		c.report(app.Decoder, path, strict.Fault{Code: "one-of", Message: fmt.Sprintf("%q and %q are both given", given[0], given[1]), Expected: "one of them, and the other as a precondition of its own"})
	}
	c.approvals(app, path, precondition, channel)
	c.channelDependency(app, path, precondition, channel)
	stable := precondition.ReleaseChannelStable
	if stable == nil {
		return
	}
	at := path + ".releaseChannelStable"
	condition := entities.Condition{
		ID: "channel-stable/" + string(stable.ReleaseChannel), Kind: entities.ChannelStable,
		Channels: c.choose(app.Decoder, at, choice{stable.ReleaseChannel, stable.Selector, c.channelNames()}),
	}
	if stable.Selector != nil {
		condition.ID = "channel-stable/" + selectorText(stable.Selector)
	}
	switch {
	case len(condition.Channels) == 0: // reported
	case stable.Selector != nil && slices.Contains(condition.Channels, channel.Name):
		c.report(app.Decoder, at+".selector", strict.Fault{
			Code: "cycle", Message: fmt.Sprintf("release channel %s would wait for itself: the selector matches it too", channel.Name),
			Expected: "labels that this channel does not have",
		})
	default:
		c.addCondition(app, path, condition, channel)
	}
}

func (c *compiler) addCondition(app *config.Document[config.Application], path string, condition entities.Condition, channel *incarnation.Channel) {
	if slices.ContainsFunc(channel.Conditions, func(o entities.Condition) bool { return o.ID == condition.ID }) {
		c.report(app.Decoder, path, strict.Fault{Code: "duplicate-name", Message: fmt.Sprintf("this channel has the precondition %q twice", condition.ID)})
		return
	}
	channel.Conditions = append(channel.Conditions, condition)
}

// approvals compiles the preconditions that people answer.
func (c *compiler) approvals(app *config.Document[config.Application], path string, p config.Precondition, channel *incarnation.Channel) {
	if p.ManualApproval != nil {
		c.addCondition(app, path, c.approval(app, path+".manualApproval", channel.Name, *p.ManualApproval), channel)
	}
	shared := p.SharedManualApproval
	switch {
	case shared == nil || shared.Name == "" || shared.Name.Check() != nil:
	case slices.Contains(c.channelNames(), string(shared.Name)):
		c.report(app.Decoder, path+".sharedManualApproval.name", strict.Fault{
			Code: "duplicate-name", Message: fmt.Sprintf("%q is a release channel, and so the name of its own approval", string(shared.Name)), Expected: "another name",
		})
	default:
		by := config.ManualApproval{MinApprovers: shared.MinApprovers, Approvers: shared.Approvers}
		c.addCondition(app, path, c.approval(app, path+".sharedManualApproval", string(shared.Name), by), channel)
	}
}

// order sorts the channels so that each comes after those it waits for, otherwise in file order. A
// cycle is refused and named (A1).
func (c *compiler) order(app *config.Document[config.Application]) []incarnation.Channel {
	var ordered []incarnation.Channel
	done := map[string]bool{}
	ready := func(channel incarnation.Channel) bool {
		return !done[channel.Name] && !slices.ContainsFunc(incarnation.Upstream(channel), func(name string) bool { return !done[name] })
	}
	for len(ordered) < len(c.channels) {
		next := slices.IndexFunc(c.channels, ready)
		if next < 0 {
			c.reportCycle(app, done)
			return nil
		}
		done[c.channels[next].Name] = true
		ordered = append(ordered, c.channels[next])
	}
	return ordered
}

// reportCycle walks upstream among the channels that could not be ordered until one comes again.
func (c *compiler) reportCycle(app *config.Document[config.Application], done map[string]bool) {
	byName := map[string]incarnation.Channel{}
	start := ""
	for _, channel := range c.channels {
		byName[channel.Name] = channel
		if start == "" && !done[channel.Name] {
			start = channel.Name
		}
	}
	path := []string{start}
	for {
		waits := incarnation.Upstream(byName[path[len(path)-1]])
		next := waits[slices.IndexFunc(waits, func(name string) bool { return !done[name] })]
		if i := slices.Index(path, next); i >= 0 {
			path = append(path[i:], next)
			break
		}
		path = append(path, next)
	}
	i := slices.IndexFunc(app.Spec.ReleaseChannels, func(r config.ReleaseChannel) bool { return string(r.Name) == path[0] })
	c.report(app.Decoder, strict.Index("releaseChannels", i)+".preconditions",
		strict.Fault{Code: "cycle", Message: "release channels wait for each other: " + strings.Join(path, " → ")})
}
