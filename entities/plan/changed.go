package plan

import (
	"encoding/json"
	"slices"
)

// Changed lists the services that differ between two works: in themselves, in their commands, or in their fragments. It omits services that
// are only in the other work, because nothing is left to do for them.
func (w *Work) Changed(before *Work) (names []string) {
	was := map[string]string{}
	for n := range before.Services {
		was[before.Services[n].key()] = before.said(&before.Services[n])
	}
	for n := range w.Services {
		if s := &w.Services[n]; was[s.key()] != w.said(s) {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// key returns the name by which workflows and the store know a service.
func (s *Service) key() string {
	if s.Key != "" {
		return s.Key
	}
	return s.Name
}

// said returns everything that the work contains about a service.
func (w *Work) said(s *Service) string {
	of := func(name string) bool { return name == s.Name }
	about := struct {
		Service   Service
		Commands  []Command
		Fragments []Fragment
	}{Service: *s}
	for _, c := range w.Commands {
		if of(c.Service) {
			about.Commands = append(about.Commands, c)
		}
	}
	for _, f := range w.Fragments {
		if of(f.Service) {
			about.Fragments = append(about.Fragments, f)
		}
	}
	text, _ := json.Marshal(about) // cannot fail: every field can be marshalled
	return string(text)
}

// Called finds a service by the name that workflows and the store use.
func (w *Work) Called(key string) (name string, found bool) {
	n := slices.IndexFunc(w.Services, func(s Service) bool { return s.key() == key })
	if n < 0 {
		return "", false
	}
	return w.Services[n].Name, true
}

// KeyOf returns the name by which workflows and the store know a service.
func (w *Work) KeyOf(name string) string {
	if n := slices.IndexFunc(w.Services, func(s Service) bool { return s.Name == name }); n >= 0 {
		return w.Services[n].key()
	}
	return name
}
