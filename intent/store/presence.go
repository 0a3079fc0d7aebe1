package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Presence is the heartbeat record that a running worker repeats.
type Presence struct {
	At time.Time `json:"at"`
	// Kept: all checkpoints that it received before this time are in the store.
	Kept time.Time `json:"kept"`
}

// PutPresence replaces the presence record of a worker.
func (s *Store) PutPresence(ctx context.Context, worker string, p Presence) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write the presence of worker %s: %w", worker, err)
	}
	return s.blobs.write(ctx, presences+worker, data)
}

// Presences returns the presence records by worker name, without the workers that left. It skips unreadable records.
func (s *Store) Presences(ctx context.Context) (map[string]Presence, error) {
	keys, err := s.blobs.list(ctx, presences)
	if err != nil {
		return nil, err
	}
	all := map[string]Presence{}
	for _, key := range keys {
		data, err := s.blobs.read(ctx, key)
		if err != nil && !IsNotFound(err) { // it left in the meantime
			return nil, err
		}
		var p Presence
		if json.Unmarshal(data, &p) == nil {
			all[strings.TrimPrefix(key, presences)] = p
		}
	}
	return all, nil
}

// RemovePresence removes the record of a worker that left, or whose leftovers were handled.
func (s *Store) RemovePresence(ctx context.Context, worker string) error {
	return s.blobs.remove(ctx, presences+worker)
}

const presences = "workers/"
