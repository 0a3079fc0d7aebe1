package state

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/maestro"
)

// MissingConfig names the configuration that has not reached a channel, and why (I4): "configuration 5 is not here, because v9 was
// cancelled by bob". It is "" if the channel has the newest one, if a release will bring it, and if the channel is empty.
func (s *State) MissingConfig(channel string) string {
	spec, _ := s.Spec.Channel(channel)
	for _, declared := range spec.Instances {
		i := s.Instances[spec.ID(declared)]
		if i == nil || i.Delivery.Target == nil {
			continue
		}
		if r := s.missingRelease(i.ID, declared.Template); r != nil {
			why := r.FullVersion + " was " + string(r.Phases[channel].Phase)
			if r.Phases[channel].Phase == maestro.Failed {
				why = r.FullVersion + " failed"
			}
			if reason := r.Phases[channel].Reason; reason != "" {
				why += ": " + reason
			}
			return fmt.Sprintf("configuration %d was not deployed here, because %s", r.Incarnation, why)
		}
	}
	return ""
}

// missingRelease is the newest release that was to bring the declared configuration of an instance, if none did and none will; else nil.
func (s *State) missingRelease(id entities.InstanceID, template string) (newest *Release) {
	for _, r := range slices.Backward(s.Releases) {
		p := r.phaseState(id.Channel)
		if p == nil || r.Return || r.Templates[id] != template {
			continue
		}
		if p.Phase == maestro.Pending || p.Phase == maestro.InProgress || p.Phase == maestro.Succeeded {
			return nil
		}
		if newest == nil {
			newest = r
		}
	}
	return newest
}
