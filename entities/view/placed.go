package view

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// Placed reports where a service runs, and the facts that a drain needs to move it off a runtime and back.
func Placed(s *state.State, d *decide.Decision) protocol.Placement {
	out := protocol.Placement{Service: protocol.ServiceID(s.Application, s.Service), Instances: []protocol.InstancePlacement{}}
	for _, p := range s.Pauses {
		if p.Drain != nil {
			out.Drains = append(out.Drains, p)
		}
	}
	if s.Spec == nil {
		return out
	}
	for n := range s.Spec.Channels {
		c := &s.Spec.Channels[n]
		needs := requiredServices(s.Application, c)
		for _, spec := range c.Instances {
			entry := placedInstance(s, c, decisionOf(d, c.ID(spec)))
			entry.RequiredServices = needs
			out.Instances = append(out.Instances, entry)
		}
	}
	return out
}

func placedInstance(s *state.State, c *entities.ChannelSpec, decision decide.InstanceDecision) protocol.InstancePlacement {
	name, rt := s.Runtime(decision.ID)
	out := protocol.InstancePlacement{Name: s.DisplayName(decision.ID), Channel: c.Name, Runtime: name, Stable: true, Progress: decision.Drained}
	i := s.Instances[decision.ID]
	if i == nil || i.Delivery.Target == nil {
		return out
	}
	out.Running = !i.TakenDown || i.Delivery.Apply.Running
	out.Stable = !i.Drained && i.Delivery.Converged && decision.Current.Stable
	switch {
	case c.Report != "":
		out.KeepReason = "its channel is report-only"
	case !rt.CanRemove:
		out.KeepReason = "the runtime cannot remove objects"
	}
	return out
}

// requiredServices returns the services that a channel waits for, by workflow id, sorted.
func requiredServices(application string, c *entities.ChannelSpec) (out []string) {
	for n := range c.Checks {
		if on := c.Checks[n].RequiredService(); on != "" {
			out = append(out, protocol.ServiceID(entities.ResolveService(application, on)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// decisionOf returns the decision about an instance.
func decisionOf(d *decide.Decision, id entities.InstanceID) decide.InstanceDecision {
	for n := range d.Channels {
		c := &d.Channels[n]
		if c.Channel != id.Channel {
			continue
		}
		if at := slices.IndexFunc(c.Instances, func(i decide.InstanceDecision) bool { return i.ID == id }); at >= 0 {
			return c.Instances[at]
		}
		return decide.InstanceDecision{ID: id, Status: c.Status, Current: c.Current, Drained: c.Drained}
	}
	return decide.InstanceDecision{ID: id}
}
