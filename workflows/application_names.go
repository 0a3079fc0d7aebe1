package workflows

import (
	"fmt"
	"slices"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// checkRenamed refuses a publication that uses the current name of a renamed service as the first name of a new one: there would be two
// services, and both would apply. The client that published it did not know about renames.
func (a *application) checkRenamed(c *protocol.ConfirmAnswer) error {
	if c == nil {
		return nil
	}
	for _, key := range entities.SortedKeys(a.state.Names) {
		if title := a.state.Names[key]; slices.Contains(c.Keys, title) {
			return asRefusal(fmt.Errorf("%s/%s is the current name of the service %s, and this publication declares it as a new one; publish it with: converge config publish DIR, of this version or later",
				a.name, title, key))
		}
	}
	return nil
}

// recordNames records the current names of services.
func (a *application) recordNames(c *protocol.ConfirmAnswer) {
	for _, key := range c.Keys {
		delete(a.state.Names, key)
	}
	for _, key := range entities.SortedKeys(c.Names) {
		if a.state.Names == nil {
			a.state.Names = protocol.ServiceNames{}
		}
		a.state.Names[key] = c.Names[key]
	}
}
