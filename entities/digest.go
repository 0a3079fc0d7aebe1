package entities

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// This file names content by its digest.

// shortDigest is how many hex digits of a digest are kept where no content is named by it.
const shortDigest = 16

// DigestOf is the content hash (SHA-256 over the JSON of the parts, in hex) by which specs, payloads, definitions and the
// like are named. Maps are hashed in key order.
func DigestOf(parts ...any) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, p := range parts {
		if err := enc.Encode(p); err != nil {
			panic("entities: value cannot be digested: " + err.Error()) // a programming error: only our own types come here
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ShortDigestOf is the beginning of DigestOf: it tells apart what one side read twice, such as readings, and nothing is found
// by it or trusted because of it. Versions that work together write it alike.
func ShortDigestOf(parts ...any) string { return DigestOf(parts...)[:shortDigest] }
