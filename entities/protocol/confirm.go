package protocol

import "github.com/converge-engine/converge/entities"

// ConfirmRequest asks what the store has of a publication (local activity). One of which it lacks something, or that is of
// another application, is refused (G1).
type ConfirmRequest struct {
	Application string `json:"application"`
	Hash        string `json:"hash"`     // of the incarnation
	Manifest    string `json:"manifest"` // digest
}

// ConfirmAnswer is what the incarnation itself says: who may do what, and how many services it has.
type ConfirmAnswer struct {
	Identity *entities.Identity `json:"identity,omitempty"`
	Grants   []entities.Grant   `json:"grants,omitempty"`
	Services int                `json:"services"`
	// Floor is the highest number that the store has of the application.
	Floor int64 `json:"floor,omitempty"`
	// Notifications are sent what people do to the whole application.
	Notifications []entities.Notification `json:"notifications,omitempty"`
	// Names are the services that are called otherwise than first.
	Names ServiceNames `json:"names,omitempty"`
	// Keys are what all services were called first.
	Keys []string `json:"keys,omitempty"`
}
