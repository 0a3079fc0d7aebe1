package view

import (
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/maestro"
	"github.com/converge-engine/converge/entities/state"
)

// headline is one line that says what a service does or waits for.
func headline(s *state.State, d *decide.Decision, worst entities.Status) string {
	newest := s.Newest()
	switch {
	case worst == entities.StatusDeleted:
		return "deleted; its objects are removed"
	case s.Deletion != nil:
		return fmt.Sprintf("is being deleted by %s", s.Deletion.Who.Name)
	case len(s.Spec.Channels) == 0:
		return "no longer declared; its objects were left in place"
	case newest == nil:
		return "nothing released yet"
	case worst == entities.StatusConverged:
		return convergedHeadline(s, newest)
	}
	for n := range d.Channels {
		if c := &d.Channels[n]; c.Status == worst {
			return channelHeadline(s, c)
		}
	}
	return string(worst)
}

// convergedHeadline says what runs where, as briefly as possible.
func convergedHeadline(s *state.State, newest *state.Release) string {
	channels, versions, exceptions := map[string][]string{}, []string{}, []string{}
	for n := range s.Spec.Channels {
		name := s.Spec.Channels[n].Name
		if down := s.TakedownOf(name); down != nil {
			exceptions = append(exceptions, name+" is "+down.Text())
			continue
		}
		version := convergedVersion(s, newest, name)
		if channels[version] = append(channels[version], name); len(channels[version]) == 1 {
			versions = append(versions, version)
		}
		if lacks := s.MissingConfig(name); lacks != "" {
			exceptions = append(exceptions, "in "+name+" "+lacks)
		}
	}
	parts := make([]string, len(versions))
	for n, version := range versions {
		parts[n] = version + " converged in " + strings.Join(channels[version], ", ")
	}
	if len(versions) == 1 && len(channels[versions[0]]) == len(s.Spec.Channels) {
		parts[0] = versions[0] + " converged in every channel"
	}
	if len(parts) > 0 {
		exceptions = append([]string{strings.Join(parts, ", ")}, exceptions...)
	}
	return strings.Join(exceptions, "; ")
}

// convergedVersion returns the version of a converged channel: the newest release if it succeeded there, with or without a change.
func convergedVersion(s *state.State, newest *state.Release, channel string) string {
	current := "nothing"
	for _, i := range s.InstancesIn(channel) {
		if t := i.Delivery.Target; t != nil {
			current = t.FullVersion
			break
		}
	}
	_, values := entities.SplitVersion(current)
	if p, ok := newest.PhaseIn(channel); ok && p == maestro.Succeeded && !newest.KeepsVersion(channel) && len(values) == 0 {
		return newest.FullVersion
	}
	return current
}

// channelHeadline describes the problem of the channel with the worst status.
func channelHeadline(s *state.State, c *decide.ChannelDecision) string {
	i := instanceIn(s, c)
	switch c.Status {
	case entities.StatusManualApproval:
		if gates := c.Approvals(); len(gates) > 0 {
			return approvalHeadline(c, i, gates)
		}
	case entities.StatusPaused:
		return pausedHeadline(c)
	case entities.StatusFailed:
		return fmt.Sprintf("%s FAILED in %s: %s", i.Delivery.Target.FullVersion, c.Channel, i.Delivery.Failure)
	case entities.StatusCancelled:
		return fmt.Sprintf("%s was cancelled in %s %s", i.Delivery.Target.FullVersion, c.Channel, i.Delivery.Cancelled)
	case entities.StatusRollingBack, entities.StatusRolledBack, entities.StatusFailedRollback:
		if i.Delivery.Rollback != nil && i.Delivery.Target != nil {
			return rollbackHeadline(c, i)
		}
	}
	version, reason := versionAndReason(s, c, i)
	return fmt.Sprintf("%s %s in %s", version, c.Status, c.Channel) + entities.Because(reason)
}

// versionAndReason returns the version that a status is about, and its first reason.
func versionAndReason(s *state.State, c *decide.ChannelDecision, i *state.Instance) (version, reason string) {
	version, reason = s.Newest().FullVersion, append(c.Texts(), "")[0]
	if i.Delivery.Target != nil {
		version = i.Delivery.Target.FullVersion
	}
	isGated := c.Status == entities.StatusPreconditions || c.Status == entities.StatusBlocked
	switch {
	case isGated && c.Held != nil:
		return c.Held.FullVersion, c.Step
	case c.Next != nil && (isGated || c.Status == entities.StatusManualApproval):
		version = c.Next.FullVersion
	}
	return version, reason
}

// instanceIn returns the first instance with the channel's status.
func instanceIn(s *state.State, c *decide.ChannelDecision) *state.Instance {
	for _, d := range c.Instances {
		if i := s.Instances[d.ID]; i != nil && d.Status == c.Status {
			return i
		}
	}
	if all := s.InstancesIn(c.Channel); len(all) > 0 {
		return all[0]
	}
	return &state.Instance{}
}

// approvalHeadline: "v8 waits for approval `go-live` (1 of 2)".
func approvalHeadline(c *decide.ChannelDecision, i *state.Instance, gates []decide.Judgement) string {
	version := ""
	if c.Next != nil {
		version = c.Next.FullVersion
	} else if i.Delivery.Target != nil {
		version = i.Delivery.Target.FullVersion
	}
	var names []string
	for _, g := range gates {
		name := "`" + g.Subject + "`"
		if g.Need > 0 {
			name += fmt.Sprintf(" (%d of %d)", len(g.Have), g.Need)
		}
		names = append(names, name)
	}
	return fmt.Sprintf("%s waits for approval %s", version, strings.Join(names, ", "))
}

func rollbackHeadline(c *decide.ChannelDecision, i *state.Instance) string {
	b, to, reason := i.Delivery.Rollback, i.Delivery.Target.FullVersion, entities.Because(i.Delivery.Rollback.Reason)
	switch c.Status {
	case entities.StatusFailedRollback:
		return fmt.Sprintf("the rollback from %s to %s FAILED in %s: %s", b.From, to, c.Channel, i.Delivery.Failure)
	case entities.StatusRollingBack:
		return fmt.Sprintf("rolling back from %s to %s in %s%s", b.From, to, c.Channel, reason)
	}
	return fmt.Sprintf("%s was rolled back to %s in %s%s", b.From, to, c.Channel, reason)
}

// pausedHeadline says who paused a channel and which release waits.
func pausedHeadline(c *decide.ChannelDecision) string {
	line := c.Channel + " is " + strings.Join(c.Texts(), "; ")
	if c.Next != nil {
		line += "; " + c.Next.FullVersion + " waits"
	}
	return line
}

// The server terminates a workflow with a search attribute of more than 2,048 bytes. The last entry says that the list is shortened.
const (
	maxWaitingFor  = 2000
	moreWaitingFor = "more"
)

// WaitingFor names the approvals that can be given now, so that a saved view lists them ("approval:go-live"), as many as fit.
func WaitingFor(d *decide.Decision) []string {
	out := []string{}
	for n := range d.Channels {
		for _, j := range d.Channels[n].Approvals() {
			if name := string(decide.KindApproval) + ":" + j.Subject; !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return firstFitting(out, maxWaitingFor-len(moreWaitingFor)-len(`,""`))
}

// firstFitting returns the first entries of a list that fit into a number of bytes of JSON.
func firstFitting(list []string, limit int) []string {
	size := len(`[]`)
	for n, entry := range list {
		if size += len(entry) + len(`"",`); size > limit {
			return append(list[:n:n], moreWaitingFor)
		}
	}
	return list
}
