package main

import (
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/entities/protocol"
)

// noteRename prints the current name of a service that the user addressed by its first name.
func (f *Factory) noteRename(n connection.ServiceName, s protocol.Status) {
	if s.Key != "" && s.Key == n.Service {
		f.note("%s was renamed to %s/%s", n, s.Application, s.Service)
	}
}
