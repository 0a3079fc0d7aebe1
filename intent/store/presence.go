package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Presence is what a worker says of itself again and again as long as it lives.
type Presence struct {
	At time.Time `json:"at"`
	// Kept: all checkpoints that it was handed before that are in the store.
	Kept time.Time `json:"kept"`
}

// PutPresence keeps what a worker says of itself now, in place of what it said before.
func (s *Store) PutPresence(ctx context.Context, worker string, p Presence) error {
	data, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("write the presence of worker %s: %w", worker, err)
	}
	return s.blobs.write(ctx, presences+worker, data)
}

// Presences are the workers that said something of themselves and did not leave, by what they call themselves. One that cannot
// be read is passed over.
func (s *Store) Presences(ctx context.Context) (map[string]Presence, error) {
	keys, err := s.blobs.list(ctx, presences)
	if err != nil {
		return nil, err
	}
	all := map[string]Presence{}
	for _, key := range keys {
		data, err := s.blobs.read(ctx, key)
		if err != nil && !IsNotFound(err) { // it left just now
			return nil, err
		}
		var p Presence
		if json.Unmarshal(data, &p) == nil {
			all[strings.TrimPrefix(key, presences)] = p
		}
	}
	return all, nil
}

// RemovePresence forgets a worker: it left, or what it left behind was seen to.
func (s *Store) RemovePresence(ctx context.Context, worker string) error {
	return s.blobs.remove(ctx, presences+worker)
}

const presences = "workers/"
