package protocol

import "github.com/converge-engine/converge/entities"

// ConfirmRequest requests the content of a publication in the store (local activity). A publication is refused if content is missing, or if
// it belongs to another application (G1).
type ConfirmRequest struct {
	Application string `json:"application"`
	Hash        string `json:"hash"`     // of the incarnation
	Manifest    string `json:"manifest"` // digest
}

// ConfirmAnswer is the content of the incarnation itself: permissions, and the number of services.
type ConfirmAnswer struct {
	Identity *entities.Identity `json:"identity,omitempty"`
	Grants   []entities.Grant   `json:"grants,omitempty"`
	Services int                `json:"services"`
	// HighestIncarnation is the highest number of the application in the store.
	HighestIncarnation int64 `json:"floor,omitempty"`
	// Notifications receive user actions on the whole application.
	Notifications []entities.Notification `json:"notifications,omitempty"`
	// Names are the renamed services.
	Names ServiceNames `json:"names,omitempty"`
	// Keys are the first names of all services.
	Keys []string `json:"keys,omitempty"`
}
