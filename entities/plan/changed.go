package plan

import (
	"encoding/json"
	"slices"
)

// Changed lists the services that differ between two works: in themselves, in their commands, or in their fragments. It omits services that
// are only in the other work, because nothing is left to do for them.
func (w *Work) Changed(before *Work) (names []string) {
	previous := map[string]string{}
	for n := range before.Services {
		previous[before.Services[n].key()] = before.contentOf(&before.Services[n])
	}
	for n := range w.Services {
		if s := &w.Services[n]; previous[s.key()] != w.contentOf(s) {
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

// contentOf returns everything that the work contains about a service.
func (w *Work) contentOf(s *Service) string {
	matches := func(name string) bool { return name == s.Name }
	content := struct {
		Service   Service
		Commands  []Command
		Fragments []Fragment
	}{Service: *s}
	for _, c := range w.Commands {
		if matches(c.Service) {
			content.Commands = append(content.Commands, c)
		}
	}
	for _, f := range w.Fragments {
		if matches(f.Service) {
			content.Fragments = append(content.Fragments, f)
		}
	}
	text, _ := json.Marshal(content) // cannot fail: every field can be marshalled
	return string(text)
}

// ServiceByKey finds a service by the name that workflows and the store use.
func (w *Work) ServiceByKey(key string) (name string, found bool) {
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
