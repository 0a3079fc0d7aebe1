package store

import (
	"context"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// Only the latest claim of an instance counts. Older claims are removed in batches, so an apply does not wait for a removal each time.
const (
	keptClaims = 3
	maxClaims  = 12
)

// Claim claims an instance ("production/main") for a target before it is applied. It returns the conflicting claim: a later one, or one
// of the same sequence for another target. Nil: there is no conflict. It writes before it compares, so of two concurrent claims the
// earlier one yields (F2). A claim that was written before needs no second write, so a store that can only be read permits repairs (F5).
func (s *Store) Claim(ctx context.Context, application, service, instance string, claim protocol.Claim) (*protocol.Claim, error) {
	prefix := fencePrefix(application, service) + instance + "/"
	own := fmt.Sprintf("%s%06d-%019d", prefix, claim.Epoch, claim.Sequence)
	stored, _, err := writeRecord(ctx, s, own, claim, isClaim)
	if err != nil {
		var readErr error
		if stored, readErr = readRecord(ctx, s, own, isClaim); readErr != nil {
			return nil, err
		}
	}
	if stored.Target != claim.Target {
		return &stored, nil
	}
	keys, err := s.claims(ctx, prefix)
	if err != nil {
		return nil, err
	}
	if last := keys[len(keys)-1]; last > own {
		latest, err := readRecord(ctx, s, last, isClaim)
		return &latest, err
	}
	if len(keys) < maxClaims {
		return nil, nil
	}
	s.removeClaims(ctx, keys[:len(keys)-keptClaims])
	return nil, nil
}

// removeClaims removes old claims. Those that remain after an error are removed with a later claim.
func (s *Store) removeClaims(ctx context.Context, keys []string) {
	for _, old := range keys {
		if s.blobs.remove(ctx, old) != nil {
			return
		}
	}
}

func isClaim(c protocol.Claim) bool { return c.Sequence > 0 }

// HighestClaim returns the highest sequence that was claimed for any instance of a service in an epoch; 0: none.
func (s *Store) HighestClaim(ctx context.Context, application, service string, epoch int64) (highest int64, err error) {
	keys, err := s.claims(ctx, fencePrefix(application, service))
	for _, key := range keys {
		var of, sequence int64
		if _, err := fmt.Sscanf(key[strings.LastIndexByte(key, '/')+1:], "%d-%d", &of, &sequence); err == nil && of == epoch {
			highest = max(highest, sequence)
		}
	}
	return highest, err
}

func (s *Store) claims(ctx context.Context, prefix string) ([]string, error) {
	all, err := s.blobs.list(ctx, prefix)
	var keys []string
	for _, key := range all {
		var epoch, sequence int64
		if n, err := fmt.Sscanf(key[strings.LastIndexByte(key, '/')+1:], "%d-%d", &epoch, &sequence); err == nil && n == 2 {
			keys = append(keys, key)
		}
	}
	return keys, err
}

func fencePrefix(application, service string) string {
	return "fence/" + application + "/" + service + "/"
}
