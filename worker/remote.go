package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
)

// installationInterval is how often a remote worker reads the record of its installation.
const installationInterval = 15 * time.Second

// MovedError means that the installation has another epoch than a remote worker started with, so that its applies are refused: the
// installation was moved to another namespace, or started after the worker.
type MovedError struct{ Epoch, NewEpoch int64 }

// Error names both epochs.
func (e *MovedError) Error() string {
	return fmt.Sprintf("the installation has the epoch %d, and had %d when the worker started: it was moved, or started later [moved]", e.NewEpoch, e.Epoch)
}

// watchInstallation calls fatal once the installation of a store has another epoch, and then returns, as it does when ctx ends. A remote
// worker may not ask the namespace.
func watchInstallation(ctx context.Context, s *store.Store, before protocol.Installation, fatal func(error)) {
	ticker := time.NewTicker(installationInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, err := s.Installation(ctx)
		if err == nil && now.Epoch > before.Epoch {
			fatal(&MovedError{before.Epoch, now.Epoch})
			return
		}
	}
}
