package view

import (
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/decide"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// Placed reports where a service runs, and the facts that a drain needs to move it off a runtime and back.
func Placed(s *state.State, d *decide.Decision) protocol.Placed {
	out := protocol.Placed{Service: protocol.ServiceID(s.Application, s.Service), Instances: []protocol.PlacedInstance{}}
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
		needs := needs(s.Application, c)
		for _, spec := range c.Instances {
			one := placed(s, c, decided(d, c.ID(spec)))
			one.Needs = needs
			out.Instances = append(out.Instances, one)
		}
	}
	return out
}

func placed(s *state.State, c *entities.ChannelSpec, now decide.InstanceDecision) protocol.PlacedInstance {
	name, rt := s.Runtime(now.ID)
	out := protocol.PlacedInstance{Name: s.Shown(now.ID), Channel: c.Name, Runtime: name, Stable: true, Says: now.Drained}
	i := s.Instances[now.ID]
	if i == nil || i.Delivery.Target == nil {
		return out
	}
	out.There = !i.Down || i.Delivery.Apply.Running
	out.Stable = !i.Drained && i.Delivery.Converged && now.Current.Stable
	switch {
	case c.Report != "":
		out.Stays = "its channel only reports"
	case !rt.CanRemove:
		out.Stays = "the runtime cannot remove objects"
	}
	return out
}

// needs returns the services that a channel waits for, by workflow id, sorted.
func needs(application string, c *entities.ChannelSpec) (out []string) {
	for n := range c.Checks {
		if on := c.Checks[n].Needs(); on != "" {
			out = append(out, protocol.ServiceID(entities.ServiceIn(application, on)))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// decided returns the decision about an instance.
func decided(d *decide.Decision, id entities.InstanceID) decide.InstanceDecision {
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
