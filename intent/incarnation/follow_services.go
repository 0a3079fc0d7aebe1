package incarnation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Identity is what workflows, the store and runtimes know the service by: the name that it had first.
func (s *Service) Identity() string { return cmp.Or(s.Key, s.Name) }

// FollowServices gives the services of an incarnation the identities that they have in the one before it, nil: there is none,
// or it cannot be read; and of what that does not know those that the application remembers. A service keeps its own for
// good; one that is renamed from another has that one's. It is an error that a service bears a name that was another one's
// first.
func FollowServices(before, inc *Incarnation, known protocol.ServiceNames) (*Incarnation, error) {
	doc := inc.doc
	doc.Services = slices.Clone(doc.Services)
	changed := false
	for n := range doc.Services {
		s := &doc.Services[n]
		if err := before.checkRenamed(inc, s); err != nil {
			return nil, err
		}
		key := before.serviceKey(s.Name, s.RenamedFrom, known)
		if key == s.Name {
			key = ""
		}
		changed = changed || s.Key != key
		s.Key = key
	}
	if err := checkKeys(doc.Services, known); err != nil || !changed {
		return inc, err
	}
	return New(doc)
}

// serviceKey is the identity of a service of the next incarnation: what it has here by its name, or else by the one that it had;
// likewise of what was declared before this one.
func (i *Incarnation) serviceKey(name, from string, known protocol.ServiceNames) string {
	for _, called := range []string{name, from} {
		if s, ok := i.called(called); ok {
			return s.Identity()
		}
	}
	for _, called := range []string{name, from} {
		if key := known.Key(called); called != "" && key != called {
			return key
		}
	}
	return name
}

// checkRenamed refuses what would drop a service that is declared here under the name that another one of the next incarnation says to have
// had: that one has been another service all along.
func (i *Incarnation) checkRenamed(next *Incarnation, s *Service) error {
	own, there := i.called(s.Name)
	old, was := i.called(s.RenamedFrom)
	if _, still := next.called(s.RenamedFrom); !there || !was || still || own.Identity() == old.Identity() {
		return nil
	}
	return fmt.Errorf("service %s is not what was called %s, since there are both so far; to have it take that place, remove %s first",
		s.Name, s.RenamedFrom, s.Name)
}

// called is the service that people call so here.
func (i *Incarnation) called(name string) (*Service, bool) {
	if i == nil {
		return nil, false
	}
	if s := i.services[name]; s != nil && s.Name == name {
		return s, true
	}
	return nil, false
}

// checkKeys refuses that two services are one, and that one bears a name that was another one's first, whether that is declared
// or not: whoever means the one would meet the other.
func checkKeys(services []Service, known protocol.ServiceNames) error {
	first := map[string]string{}
	for _, key := range entities.SortedKeys(known) {
		first[key] = known[key]
	}
	by := map[string]string{}
	for n := range services {
		s := &services[n]
		if other, taken := by[s.Identity()]; taken {
			return fmt.Errorf("services %s and %s would be the same, since one of them was called %s first; choose another name for the new one",
				other, s.Name, s.Identity())
		}
		by[s.Identity()], first[s.Identity()] = s.Name, s.Name
	}
	for _, name := range strict.Map(services, func(s Service) string { return s.Name }) {
		if title, taken := first[name]; taken && title != name {
			return fmt.Errorf("service %s cannot be called so: that is what %s was called first, and what it is still known by; choose another name",
				name, title)
		}
	}
	return nil
}

// others are, by name, what the services were called first that are called otherwise by now, for a service that waits for others:
// each of those may wait for any.
func (i *Incarnation) others(s *Service) map[string]string {
	waits := slices.ContainsFunc(s.Channels, func(in Instance) bool {
		return slices.ContainsFunc(in.Checks, func(c entities.Check) bool { return c.Kind.OnOthers() })
	})
	if !waits {
		return nil
	}
	var keys map[string]string
	for n := range i.doc.Services {
		if o := &i.doc.Services[n]; o.Key != "" {
			keys = with(keys, o.Name, o.Key)
		}
	}
	return keys
}

// Unfollowed are the names that services say to have had, and by which nothing was known.
func (i *Incarnation) Unfollowed() (names []string) {
	for n := range i.doc.Services {
		if s := &i.doc.Services[n]; s.RenamedFrom != "" && s.Key == "" {
			names = append(names, s.RenamedFrom)
		}
	}
	return names
}
