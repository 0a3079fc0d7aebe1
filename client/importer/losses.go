package importer

import (
	"maps"
	"slices"
	"strings"
)

// This file leaves out the services of which Converge would adopt the objects without something that a tool does to them: the first
// apply would undo it.

// stop leaves a service out, in all its channels. The text says what would be lost, and what to do.
func (d *deployed) stop(service, text string) {
	service = NameOf(service)
	if d.stopped == nil {
		d.stopped = map[string][]string{}
	}
	if !slices.Contains(d.stopped[service], text) {
		d.stopped[service] = append(d.stopped[service], text)
	}
}

// dropStopped removes the services that are left out.
func (d *deployed) dropStopped() {
	for _, service := range slices.Sorted(maps.Keys(d.stopped)) {
		delete(d.services, service)
		d.omit("%s, because adopting it would undo what is not carried over: %s", service, strings.Join(d.stopped[service], "; "))
	}
	d.dropNeeds()
}

// dropNeeds removes the dependencies on services that are not imported.
func (d *deployed) dropNeeds() {
	for _, name := range slices.Sorted(maps.Keys(d.services)) {
		s := d.services[name]
		s.needs = slices.DeleteFunc(s.needs, func(other string) bool {
			if d.services[other] == nil {
				d.omit("%s depends on %s, which is not imported", name, other)
			}
			return d.services[other] == nil
		})
	}
}

// unknownFields returns the fields of a mapping that are not among the known ones, sorted.
func unknownFields(from any, known ...string) []string {
	fields, _ := from.(map[string]any)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(fields)), func(name string) bool { return slices.Contains(known, name) })
}
