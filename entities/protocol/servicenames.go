package protocol

import (
	"cmp"

	"github.com/converge-engine/converge/entities"
)

// ServiceNames are the current or last declared names of renamed services, by first name. Workflows, the store and runtimes use the first
// name of a service.
type ServiceNames map[string]string

// Key returns the first name of the service with this name.
func (n ServiceNames) Key(name string) string {
	for _, key := range entities.SortedKeys(n) {
		if n[key] == name {
			return key
		}
	}
	return name
}

// Title returns the current name of the service with this first name.
func (n ServiceNames) Title(key string) string { return cmp.Or(n[key], key) }
