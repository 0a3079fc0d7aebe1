package incarnation

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
)

// FollowFleets keeps the names of instances from the previous incarnation (nil: there is none). An instance keeps its identity on its
// runtime when its channel becomes a fleet, or is no longer a fleet. Its workload continues to run with its labels.
func FollowFleets(before, inc *Incarnation) (*Incarnation, error) {
	if before == nil {
		return inc, nil
	}
	doc, changed := inc.doc, false
	doc.Services = slices.Clone(doc.Services)
	for n := range doc.Services {
		s := &doc.Services[n]
		was, ok := before.byKey(s.Identity())
		if !ok {
			continue
		}
		s.Channels = slices.Clone(s.Channels)
		for c := range s.Channels {
			now := &s.Channels[c]
			old, ok := was.instance(before.named(inc.channel(now.Channel).Identity()))
			if !ok {
				continue
			}
			now.Fleet = slices.Clone(now.Fleet)
			renamed, err := now.follow(old)
			if err != nil {
				return nil, fmt.Errorf("service %s in release channel %s: %w", s.Name, now.Channel, err)
			}
			changed = changed || renamed
		}
	}
	if !changed {
		return inc, nil
	}
	return New(doc)
}

// follow keeps the names of instances from the previous channel. It reports whether an instance's name differs from its default.
func (i *Instance) follow(old *Instance) (renamed bool, err error) {
	names := map[string]string{}
	for _, m := range old.members() {
		names[m.Runtime] = old.id(m).Name
	}
	alone := len(old.Fleet)+len(i.Fleet) == 0 // it is the same instance on any runtime
	on := map[string]string{}
	for _, m := range i.members() {
		was, known := names[m.Runtime]
		if alone {
			was, known = old.id(&old.Member).Name, true
		}
		if m.Name = ""; known && was != i.id(m).Name {
			m.Name, renamed = was, true
		}
		name := i.id(m).Name
		if other, taken := on[name]; taken {
			return false, fmt.Errorf("the instances on runtimes %s and %s would both be %s, the name that one of them had before the fleet", other, m.Runtime, entities.InstanceID{Channel: i.Channel, Name: name}.Key())
		}
		on[name] = m.Runtime
	}
	return renamed, nil
}
