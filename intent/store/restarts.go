package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// keptRestarts is how many restarts of a workflow are kept.
const keptRestarts = 10

// Restarts returns the last few times at which a missing workflow was started again, oldest first.
func (s *Store) Restarts(ctx context.Context, id string) ([]time.Time, error) {
	keys, err := s.blobs.list(ctx, restartPrefix(id))
	var all []time.Time
	for _, key := range keys {
		if n, err := strconv.ParseInt(strings.TrimPrefix(key, restartPrefix(id)), 10, 64); err == nil {
			all = append(all, time.Unix(0, n).UTC())
		}
	}
	return all, err
}

// PutRestart records that a workflow is started again.
func (s *Store) PutRestart(ctx context.Context, id string, at time.Time) error {
	if _, err := s.blobs.create(ctx, restartKey(id, at), []byte(at.UTC().Format(time.RFC3339Nano))); err != nil {
		return err
	}
	all, err := s.Restarts(ctx, id)
	for ; len(all) > keptRestarts && err == nil; all = all[1:] {
		err = s.blobs.remove(ctx, restartKey(id, all[0]))
	}
	return err
}

func restartPrefix(id string) string { return "restarts/" + id + "/" }

func restartKey(id string, at time.Time) string {
	return fmt.Sprintf("%s%019d", restartPrefix(id), at.UnixNano())
}
