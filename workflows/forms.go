package workflows

import (
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/state"
)

// Form is the state that workflows of one type carry from run to run: an empty one, and the number of its form.
type Form struct {
	Number int
	State  any
}

// Forms are those of the workflows that live for ever, by type.
func Forms() map[string]Form {
	return map[string]Form{
		protocol.ServiceWorkflow:      {state.Version, state.State{}},
		protocol.ApplicationWorkflow:  {applicationFirst, applicationState{}},
		protocol.RuntimeWorkflow:      {runtimeVersion, runtimeState{}},
		protocol.InstallationWorkflow: {installationVersion, installationState{}},
	}
}
