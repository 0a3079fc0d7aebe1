package protocol

import (
	"time"

	"github.com/converge-engine/converge/entities"
)

// LibraryName is a library by the content that it has under a name and a version.
type LibraryName struct {
	Name    string `json:"name"`
	Version int64  `json:"version"`
	Digest  string `json:"content"` // SHA-256 of its content in the store, in hex
}

// LibraryRequest is the payload of an Installation's publish-library. The content is in the store before.
type LibraryRequest struct {
	Act
	LibraryName
}

// Library says what a name and a version of a library mean, for ever, and who published it (G2).
type Library struct {
	LibraryName
	At time.Time    `json:"at"`
	By entities.Who `json:"by"`
}
