package protocol

import "time"

// TokenUse is the one request that a token has served in an installation.
type TokenUse struct {
	RequestID string    `json:"requestId"`
	Of        string    `json:"of"` // digest of the request and its receiver
	At        time.Time `json:"at"`
}

// Serves reports whether the token has served this request.
func (u TokenUse) Serves(requestID, of string) bool { return u.RequestID == requestID && u.Of == of }
