package store

import (
	"context"
	"fmt"

	"github.com/converge-engine/converge/entities/protocol"
)

const rules = "rules/"

// CreateRules writes rules of the installation under their number unless there are some, and returns those that stand.
func (s *Store) CreateRules(ctx context.Context, r protocol.Rules) (protocol.Rules, error) {
	stands, _, err := createRecord(ctx, s, fmt.Sprintf("%s%012d", rules, r.Number), r, numbered)
	return stands, err
}

// Rules are those of the highest number; of number 0 when nobody ever set any. Damaged ones are a *CorruptError: those
// before may have allowed more.
func (s *Store) Rules(ctx context.Context) (protocol.Rules, error) {
	keys, err := s.blobs.list(ctx, rules)
	for n := len(keys) - 1; n >= 0; n-- {
		var number int64
		if _, err := fmt.Sscanf(keys[n], rules+"%d", &number); err == nil {
			return readRecord(ctx, s, keys[n], numbered)
		}
	}
	return protocol.Rules{}, err
}

func numbered(r protocol.Rules) bool { return r.Number > 0 }
