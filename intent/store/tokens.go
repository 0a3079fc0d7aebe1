package store

import (
	"context"
	"strings"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/internal/canonical"
)

const tokens = "tokens/"

// UseToken records that a token serves a request, unless it served one before, and returns the one that stands. The token
// is named by what it says. Records go a day after the token expired.
func (s *Store) UseToken(ctx context.Context, token []byte, expires time.Time, use protocol.TokenUse) (protocol.TokenUse, error) {
	key := tokens + expires.UTC().Format(time.DateOnly) + "/" + canonical.Hash(token)
	stands, _, err := writeRecord(ctx, s, key, use, func(u protocol.TokenUse) bool { return u.RequestID != "" })
	if err == nil {
		s.forgetTokens(ctx, use.At)
	}
	return stands, err
}

// forgetTokens removes, once a day, the records of tokens that nobody believes any more. What goes wrong is tried tomorrow.
func (s *Store) forgetTokens(ctx context.Context, now time.Time) {
	today := now.UTC().Format(time.DateOnly)
	if before, _ := s.forgotten.Swap(today).(string); before == today {
		return
	}
	keys, err := s.blobs.list(ctx, tokens)
	yesterday := tokens + now.UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	for _, key := range keys {
		if err != nil || strings.Compare(key, yesterday) >= 0 {
			return
		}
		err = s.blobs.remove(ctx, key)
	}
}
