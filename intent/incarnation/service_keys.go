package incarnation

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// Identity is the service's first name, by which workflows, the store and runtimes identify it.
func (s *Service) Identity() string { return cmp.Or(s.Key, s.Name) }

// InheritServiceKeys gives the services of an incarnation their identities from the previous one. If that is nil, unreadable or does not
// know a service, the identities that the application remembers count. A service keeps its identity permanently. A renamed service takes
// the identity of its former name. It is an error if a service has a name that was the first name of another service.
func InheritServiceKeys(before, inc *Incarnation, known protocol.ServiceNames) (*Incarnation, error) {
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

// serviceKey returns the identity of a service of the next incarnation: the identity here of its name, or else of its former name.
// Services that were declared earlier count, too.
func (i *Incarnation) serviceKey(name, from string, known protocol.ServiceNames) string {
	for _, called := range []string{name, from} {
		if s, ok := i.serviceNamed(called); ok {
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

// checkRenamed rejects a rename that would drop an existing service: the former name and the new name both exist here as different
// services.
func (i *Incarnation) checkRenamed(next *Incarnation, s *Service) error {
	own, exists := i.serviceNamed(s.Name)
	old, hadOld := i.serviceNamed(s.RenamedFrom)
	if _, stillDeclared := next.serviceNamed(s.RenamedFrom); !exists || !hadOld || stillDeclared || own.Identity() == old.Identity() {
		return nil
	}
	return fmt.Errorf("service %s cannot be renamed from %s, because both exist; remove %s first",
		s.Name, s.RenamedFrom, s.Name)
}

// serviceNamed returns the service with a current name.
func (i *Incarnation) serviceNamed(name string) (*Service, bool) {
	if i == nil {
		return nil, false
	}
	if s := i.services[name]; s != nil && s.Name == name {
		return s, true
	}
	return nil, false
}

// checkKeys rejects two services with the same identity, and a service whose name was the first name of another one, declared or not.
// Otherwise a reference to one could reach the other.
func checkKeys(services []Service, known protocol.ServiceNames) error {
	first := map[string]string{}
	for _, key := range entities.SortedKeys(known) {
		first[key] = known[key]
	}
	by := map[string]string{}
	for n := range services {
		s := &services[n]
		if other, duplicate := by[s.Identity()]; duplicate {
			return fmt.Errorf("services %s and %s would have the same identity, because one of them was first named %s; choose another name for the new one",
				other, s.Name, s.Identity())
		}
		by[s.Identity()], first[s.Identity()] = s.Name, s.Name
	}
	for _, name := range strict.Map(services, func(s Service) string { return s.Name }) {
		if title, duplicate := first[name]; duplicate && title != name {
			return fmt.Errorf("service %s cannot have this name: it is the first name of %s, and still its identity; choose another name",
				name, title)
		}
	}
	return nil
}

// renamedKeys maps the names of renamed services to their first names, for a service with conditions on other services. Each condition may
// refer to any of them.
func (i *Incarnation) renamedKeys(s *Service) map[string]string {
	hasConditions := slices.ContainsFunc(s.Channels, func(in InstanceDoc) bool {
		return slices.ContainsFunc(in.Checks, func(c entities.Check) bool { return c.Kind.OnOthers() })
	})
	if !hasConditions {
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

// UnknownFormerNames lists former names of services that match no known service.
func (i *Incarnation) UnknownFormerNames() (names []string) {
	for n := range i.doc.Services {
		if s := &i.doc.Services[n]; s.RenamedFrom != "" && s.Key == "" {
			names = append(names, s.RenamedFrom)
		}
	}
	return names
}
