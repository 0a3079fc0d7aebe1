package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// Rules are those of the installation, as the store has them (F4). There are none while Number is 0: then all may do
// everything that can send a signal.
type Rules struct {
	Number int64 `json:"number"`
	entities.Rules
	At time.Time    `json:"at"`
	By entities.Who `json:"by"`
}

// BaselineRequest has all services look which rules they are to go by (G2), or those that could not be told before.
type BaselineRequest struct {
	Rules int64    `json:"rules"` // number
	Only  []string `json:"only,omitempty"`
}

// RulesRequest asks for the rules of the installation (local activity).
type RulesRequest struct{}

// ConfigureRequest is the payload of an Installation's configure: the rules that are to hold from now on, all of them.
type ConfigureRequest struct {
	Act
	entities.Rules
}

// PauseAllRequest is the payload of an Installation's pause. Services of the applications in Except are not paused.
type PauseAllRequest struct {
	Act
	Except []string `json:"except,omitempty"`
}
