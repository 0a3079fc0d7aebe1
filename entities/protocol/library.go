package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// LibraryName identifies a library by name, version and content.
type LibraryName struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
	Digest  string `json:"content"` // SHA-256 of its content in the store, in hex
}

// LibraryRequest is the payload of an Installation's publish-library. The content must already be in the store.
type LibraryRequest struct {
	RequestMeta
	LibraryName
}

// Library is the permanent content of a name and a version of a library, and who published it (G2).
type Library struct {
	LibraryName
	At time.Time    `json:"at"`
	By entities.Who `json:"by"`
}
