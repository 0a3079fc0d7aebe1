package protocol

import "time"

// TokenUse is the one request that a token has served in an installation.
type TokenUse struct {
	RequestID string    `json:"requestId"`
	Of        string    `json:"of"` // digest of what was asked, and where
	At        time.Time `json:"at"`
}

// Serves tells whether a request is the one that the token has served.
func (u TokenUse) Serves(requestID, of string) bool { return u.RequestID == requestID && u.Of == of }
