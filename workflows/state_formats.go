package workflows

import (
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// StateFormat is the state that workflows of one type carry from run to run: an empty state, and the number of its format.
type StateFormat struct {
	Number int
	State  any
}

// StateFormats are the formats of the workflows that live forever, by type.
func StateFormats() map[string]StateFormat {
	return map[string]StateFormat{
		protocol.ServiceWorkflow:      {protocol.Version, state.State{}},
		protocol.ApplicationWorkflow:  {protocol.Version, applicationState{}},
		protocol.RuntimeWorkflow:      {protocol.Version, runtimeState{}},
		protocol.InstallationWorkflow: {protocol.Version, installationState{}},
	}
}
