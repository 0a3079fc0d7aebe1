package protocol

import (
	"cmp"

	"github.com/converge-engine/converge/entities"
)

// ServiceNames are what people call the services that are called otherwise than first, or were when they were declared last, by
// what they were called first. Workflows, the store and runtimes know a service by its first name.
type ServiceNames map[string]string

// Key is the first name of the service that people call so.
func (n ServiceNames) Key(name string) string {
	for _, key := range entities.SortedKeys(n) {
		if n[key] == name {
			return key
		}
	}
	return name
}

// Title is what people call the service of that first name.
func (n ServiceNames) Title(key string) string { return cmp.Or(n[key], key) }
