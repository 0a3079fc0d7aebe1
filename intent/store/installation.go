package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// Installation returns the record of the installation that a store belongs to, of the highest epoch; a *NotFoundError when
// it belongs to none yet.
func (s *Store) Installation(ctx context.Context) (protocol.Installation, error) {
	keys, err := s.blobs.list(ctx, installations)
	if err != nil {
		return protocol.Installation{}, err
	}
	for n := len(keys) - 1; n >= 0; n-- {
		if _, err := strconv.ParseInt(strings.TrimPrefix(keys[n], installations), 10, 64); err == nil {
			return readRecord(ctx, s, keys[n], installed)
		}
	}
	return protocol.Installation{}, &NotFoundError{installations}
}

// CreateInstallation writes the record of an epoch unless there is one, and returns the one that stands.
func (s *Store) CreateInstallation(ctx context.Context, i protocol.Installation) (protocol.Installation, error) {
	stands, _, err := createRecord(ctx, s, fmt.Sprintf("%s%09d", installations, i.Epoch), i, installed)
	return stands, err
}

func installed(i protocol.Installation) bool { return i.ID != "" }

const installations = "installation/"

// Lease returns the newest lease of a scope: its number and its holder; zero when there was none.
func (s *Store) Lease(ctx context.Context, scope string) (n int64, holder string, err error) {
	prefix := leasePrefix(scope)
	keys, err := s.blobs.list(ctx, prefix)
	if err != nil || len(keys) == 0 {
		return 0, "", err
	}
	for at := len(keys) - 1; at >= 0; at-- {
		number, err := strconv.ParseInt(strings.TrimPrefix(keys[at], prefix), 10, 64)
		if err != nil {
			continue // what a writer that died left behind
		}
		data, err := s.blobs.read(ctx, keys[at])
		if IsNotFound(err) { // renewed just now
			return s.Lease(ctx, scope)
		}
		return number, string(data), err
	}
	return 0, "", nil
}

// TakeLease takes a lease of a scope, or renews it, under a number: true when nobody else has taken that number. It removes
// the one before. Who may take it, and when, is the callers' business: a lease knows no clock.
func (s *Store) TakeLease(ctx context.Context, scope string, n int64, holder string) (bool, error) {
	taken, err := s.blobs.create(ctx, leaseKey(scope, n), []byte(holder))
	if taken && err == nil && n > 1 {
		err = s.blobs.remove(ctx, leaseKey(scope, n-1))
	}
	return taken, err
}

func leasePrefix(scope string) string { return "leases/" + scope + "/" }

func leaseKey(scope string, n int64) string { return fmt.Sprintf("%s%019d", leasePrefix(scope), n) }
