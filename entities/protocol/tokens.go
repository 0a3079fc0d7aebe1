package protocol

import "time"

// TokenUse is the one request that a token has served in an installation.
type TokenUse struct {
	RequestID     string    `json:"requestId"`
	RequestDigest string    `json:"of"` // digest of the request and its receiver
	At            time.Time `json:"at"`
}

// Serves reports whether the token has served this request.
func (u TokenUse) Serves(requestID, digest string) bool {
	return u.RequestID == requestID && u.RequestDigest == digest
}
