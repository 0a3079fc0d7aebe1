package store

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/entities/protocol"
)

const rules = "rules/"

// CreateRules writes rules of the installation under their number. If that number exists, nothing changes. It returns the stored rules.
func (s *Store) CreateRules(ctx context.Context, r protocol.Rules) (protocol.Rules, error) {
	key := fmt.Sprintf("%s%012d", rules, r.Number)
	if _, created, err := writeRecord(ctx, s, key, r, isRules); created || err != nil {
		return r, err
	}
	return fetchRecord(ctx, s, key, isRules)
}

// Rules returns the rules with the highest number; number 0 if none were ever set. Damaged rules are a *CorruptError, because older
// rules may have allowed more. It bypasses the cache: an administrator may have removed the newest rules to regain access.
func (s *Store) Rules(ctx context.Context) (protocol.Rules, error) {
	keys, err := s.blobs.list(ctx, rules)
	for n := len(keys) - 1; n >= 0; n-- {
		var number int64
		if _, err := fmt.Sscanf(keys[n], rules+"%d", &number); err == nil {
			return fetchRecord(ctx, s, keys[n], isRules)
		}
	}
	return protocol.Rules{}, err
}

func isRules(r protocol.Rules) bool { return r.Number > 0 }
