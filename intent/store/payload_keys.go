package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// payloadKeys are the keys that payloads in Temporal were encrypted with, by id. What is kept of each says nothing about it.
const payloadKeys = "keys/payloads/"

// PayloadKey is when a worker last began to encrypt payloads with a key.
type PayloadKey struct {
	At time.Time `json:"at"`
}

// PutPayloadKey keeps that payloads are encrypted with a key from now on, by its id.
func (s *Store) PutPayloadKey(ctx context.Context, id string, now time.Time) error {
	data, err := json.Marshal(PayloadKey{At: now.UTC()})
	if err != nil {
		return fmt.Errorf("note the key %s: %w", id, err)
	}
	return s.blobs.write(ctx, payloadKeys+id, data)
}

// PayloadKeys are the ids of all keys that payloads were ever encrypted with, and the one that was used last; empty: none
// was. One whose record cannot be read was used before all others.
func (s *Store) PayloadKeys(ctx context.Context) (known map[string]bool, last string, err error) {
	keys, err := s.blobs.list(ctx, payloadKeys)
	if err != nil {
		return nil, "", err
	}
	known = map[string]bool{}
	var at time.Time
	for _, key := range keys {
		raw, err := s.blobs.read(ctx, key)
		if err != nil && !IsNotFound(err) {
			return nil, "", err
		}
		var k PayloadKey
		_ = json.Unmarshal(raw, &k)
		id := strings.TrimPrefix(key, payloadKeys)
		known[id] = true
		if last == "" || k.At.After(at) {
			last, at = id, k.At
		}
	}
	return known, last, nil
}
