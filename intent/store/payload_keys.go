package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// payloadKeys holds the ids of the keys that encrypted payloads in Temporal. The records do not reveal the keys.
const payloadKeys = "keys/payloads/"

// PayloadKey records when a worker last began to encrypt payloads with a key.
type PayloadKey struct {
	At time.Time `json:"at"`
}

// PutPayloadKey records that a key, given by its id, encrypts payloads from now on.
func (s *Store) PutPayloadKey(ctx context.Context, id string, now time.Time) error {
	data, err := json.Marshal(PayloadKey{At: now.UTC()})
	if err != nil {
		return fmt.Errorf("record the key %s: %w", id, err)
	}
	return s.blobs.write(ctx, payloadKeys+id, data)
}

// PayloadKeys returns the ids of all keys that ever encrypted payloads, and the last one that was used; empty: none. A key with an
// unreadable record counts as the oldest.
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
