package plan

import (
	"encoding/json"
	"slices"
)

// Changed lists the services of which this work says something else than another one does: of themselves, of what runs for them, or of
// what is collected from them. Those that are only in the other one are not listed: nothing is left to be done for them.
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

// key is what workflows and the store know a service by.
func (s *Service) key() string {
	if s.Key != "" {
		return s.Key
	}
	return s.Name
}

// said is all that the work says of a service.
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
	text, _ := json.Marshal(about) // it has no field that could not be written
	return string(text)
}

// Called finds a service by what workflows and the store know it by.
func (w *Work) Called(key string) (name string, found bool) {
	n := slices.IndexFunc(w.Services, func(s Service) bool { return s.key() == key })
	if n < 0 {
		return "", false
	}
	return w.Services[n].Name, true
}

// KeyOf is what workflows and the store know a service by.
func (w *Work) KeyOf(name string) string {
	if n := slices.IndexFunc(w.Services, func(s Service) bool { return s.Name == name }); n >= 0 {
		return w.Services[n].key()
	}
	return name
}
