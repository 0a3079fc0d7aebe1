package incarnation

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
)

// InheritInstanceNames keeps the names of instances from the previous incarnation (nil: there is none). An instance keeps its identity on
// its runtime when its channel becomes a fleet, or is no longer a fleet. Its workload continues to run with its labels.
func InheritInstanceNames(before, inc *Incarnation) (*Incarnation, error) {
	if before == nil {
		return inc, nil
	}
	doc, changed := inc.doc, false
	doc.Services = slices.Clone(doc.Services)
	for n := range doc.Services {
		s := &doc.Services[n]
		oldService, ok := before.byKey(s.Identity())
		if !ok {
			continue
		}
		s.Channels = slices.Clone(s.Channels)
		for c := range s.Channels {
			channel := &s.Channels[c]
			oldChannel, ok := oldService.instance(before.channelName(inc.channel(channel.Channel).Identity()))
			if !ok {
				continue
			}
			channel.Fleet = slices.Clone(channel.Fleet)
			renamed, err := channel.inheritNames(oldChannel)
			if err != nil {
				return nil, fmt.Errorf("service %s in release channel %s: %w", s.Name, channel.Channel, err)
			}
			changed = changed || renamed
		}
	}
	if !changed {
		return inc, nil
	}
	return New(doc)
}

// inheritNames keeps the names of instances from the previous channel. It reports whether an instance's name differs from its default.
func (i *InstanceDoc) inheritNames(old *InstanceDoc) (renamed bool, err error) {
	names := map[string]string{}
	for _, m := range old.members() {
		names[m.Runtime] = old.id(m).Name
	}
	alone := len(old.Fleet)+len(i.Fleet) == 0 // it is the same instance on any runtime
	runtimeByName := map[string]string{}
	for _, m := range i.members() {
		oldName, known := names[m.Runtime]
		if alone {
			oldName, known = old.id(&old.Member).Name, true
		}
		if m.Name = ""; known && oldName != i.id(m).Name {
			m.Name, renamed = oldName, true
		}
		name := i.id(m).Name
		if other, duplicate := runtimeByName[name]; duplicate {
			return false, fmt.Errorf("the instances on runtimes %s and %s would both be %s, the name that one of them had before the fleet", other, m.Runtime, entities.InstanceID{Channel: i.Channel, Name: name}.Key())
		}
		runtimeByName[name] = m.Runtime
	}
	return renamed, nil
}
