package entities

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// This file names content by its digest.

// shortDigest is the number of hex digits of a digest that names no content.
const shortDigest = 16

// DigestOf returns the content hash (SHA-256 over the JSON of the parts, in hex) that names specs, payloads, definitions and similar
// content. Maps are hashed in key order.
func DigestOf(parts ...any) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, p := range parts {
		if err := enc.Encode(p); err != nil {
			panic("entities: value cannot be digested: " + err.Error()) // a programming error: only our own types are passed
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// ShortDigestOf returns the beginning of DigestOf. It detects changes between two values of one component, such as readings. It is not used
// to find or trust content. Versions that work together compute it the same way.
func ShortDigestOf(parts ...any) string { return DigestOf(parts...)[:shortDigest] }
