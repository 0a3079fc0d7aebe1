package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// Rules are the rules of the installation in the store (F4). With Number 0 there are none: then every caller that can send a signal may do
// everything.
type Rules struct {
	Number int64 `json:"number"`
	entities.Rules
	At time.Time    `json:"at"`
	By entities.Who `json:"by"`
}

// BaselineRequest makes all services check which rules apply to them (G2), or only those that could not be notified before.
type BaselineRequest struct {
	Rules int64    `json:"rules"` // number
	Only  []string `json:"only,omitempty"`
}

// RulesRequest requests the rules of the installation (local activity).
type RulesRequest struct{}

// ConfigureRequest is the payload of an Installation's configure: the complete new rules.
type ConfigureRequest struct {
	RequestMeta
	entities.Rules
}

// PauseAllRequest is the payload of an Installation's pause. Services of the applications in Except are not paused.
type PauseAllRequest struct {
	RequestMeta
	Except []string `json:"except,omitempty"`
}
