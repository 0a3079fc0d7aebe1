package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// Installation returns the installation record of the highest epoch, or a *NotFoundError if the store belongs to no installation yet.
func (s *Store) Installation(ctx context.Context) (protocol.Installation, error) {
	keys, err := s.blobs.list(ctx, installations)
	if err != nil {
		return protocol.Installation{}, err
	}
	for n := len(keys) - 1; n >= 0; n-- {
		if _, err := strconv.ParseInt(strings.TrimPrefix(keys[n], installations), 10, 64); err == nil {
			return readRecord(ctx, s, keys[n], isInstallation)
		}
	}
	return protocol.Installation{}, &NotFoundError{installations}
}

// CreateInstallation writes the record of an epoch unless one exists. It returns the stored record.
func (s *Store) CreateInstallation(ctx context.Context, i protocol.Installation) (protocol.Installation, error) {
	stored, _, err := createRecord(ctx, s, fmt.Sprintf("%s%09d", installations, i.Epoch), i, isInstallation)
	return stored, err
}

func isInstallation(i protocol.Installation) bool { return i.ID != "" }

const installations = "installation/"

// Lease returns the number and the holder of the newest lease of a scope; zero: there was none.
func (s *Store) Lease(ctx context.Context, scope string) (n int64, holder string, err error) {
	prefix := leasePrefix(scope)
	keys, err := s.blobs.list(ctx, prefix)
	if err != nil || len(keys) == 0 {
		return 0, "", err
	}
	for at := len(keys) - 1; at >= 0; at-- {
		number, err := strconv.ParseInt(strings.TrimPrefix(keys[at], prefix), 10, 64)
		if err != nil {
			continue // a crashed writer left it
		}
		data, err := s.blobs.read(ctx, keys[at])
		if IsNotFound(err) { // renewed in the meantime
			return s.Lease(ctx, scope)
		}
		return number, string(data), err
	}
	return 0, "", nil
}

// TakeLease takes or renews a lease of a scope under a number. It returns true if no other holder has taken that number. It removes the
// previous lease. The callers decide who may take a lease and when: the store does not check expiry.
func (s *Store) TakeLease(ctx context.Context, scope string, n int64, holder string) (bool, error) {
	taken, err := s.blobs.create(ctx, leaseKey(scope, n), []byte(holder))
	if taken && err == nil && n > 1 {
		err = s.blobs.remove(ctx, leaseKey(scope, n-1))
	}
	return taken, err
}

func leasePrefix(scope string) string { return "leases/" + scope + "/" }

func leaseKey(scope string, n int64) string { return fmt.Sprintf("%s%019d", leasePrefix(scope), n) }
