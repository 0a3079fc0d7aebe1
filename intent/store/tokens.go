package store

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/canonical"
)

const tokens = "tokens/"

// UseToken records that a token serves a request, unless it already served one. It returns the stored record. The digest of the token's
// content is its name. Records are removed a day after the token expires.
func (s *Store) UseToken(ctx context.Context, token []byte, expires time.Time, use protocol.TokenUse) (protocol.TokenUse, error) {
	key := tokens + expires.UTC().Format(time.DateOnly) + "/" + canonical.Hash(token)
	stored, _, err := writeRecord(ctx, s, key, use, func(u protocol.TokenUse) bool { return u.RequestID != "" })
	if err == nil {
		s.removeExpiredTokens(ctx, use.At)
	}
	return stored, err
}

// The deadline and the concurrency of the removal of old token records.
const (
	tokenRemovalTimeout     = time.Minute
	tokenRemovalConcurrency = 16
)

// removeExpiredTokens removes the records of expired tokens once a day. It runs concurrently with the first request of the day, because a
// workflow task waits for that. Errors are retried the next day.
func (s *Store) removeExpiredTokens(ctx context.Context, now time.Time) {
	today := now.UTC().Format(time.DateOnly)
	if before, _ := s.tokensRemovedOn.Swap(today).(string); before == today {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tokenRemovalTimeout)
	go func() {
		defer cancel()
		_ = s.removeTokensBefore(ctx, now.UTC().AddDate(0, 0, -1))
	}()
}

// removeTokensBefore removes the records of tokens that expired before a day.
func (s *Store) removeTokensBefore(ctx context.Context, day time.Time) error {
	keys, err := s.blobs.list(ctx, tokens)
	if err != nil {
		return err
	}
	first, _ := slices.BinarySearch(keys, tokens+day.Format(time.DateOnly))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(tokenRemovalConcurrency)
	for _, key := range keys[:first] {
		g.Go(func() error { return s.blobs.remove(ctx, key) })
	}
	return g.Wait()
}
