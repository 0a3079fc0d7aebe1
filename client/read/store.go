package read

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/converge-engine/converge/intent/store"
)

// Store says which store is opened. A workflow reports its store, but everyone with write access to the namespace can make it report
// another one. So a reported store is only opened if no data leaves this machine (G6).
type Store struct {
	Configured string // by the user; a directory or a URL; empty: none
	kept       *keptStores
}

// Keep returns the same stores for a process that reads them again and again: they stay open for a while, with what they have read.
func (s Store) Keep() Store {
	s.kept = &keptStores{open: map[string]keptStore{}}
	return s
}

// keptStores are opened stores by location.
type keptStores struct {
	mu   sync.Mutex
	open map[string]keptStore
}

type keptStore struct {
	*store.Store
	since time.Time
}

const (
	maxKept = 8               // stores of one installation: there is one, and another one while it moves
	keptFor = 5 * time.Minute // then keys are read again, and content that was restored at the same place is seen
)

// Open opens the store that a workflow reports, for reading. It returns a *StoreError for one that is not readable here.
func (s Store) Open(ctx context.Context, reported string) (*store.Store, error) {
	location, err := s.Readable(reported)
	if err != nil {
		return nil, err
	}
	if s.kept == nil {
		return store.Open(ctx, location)
	}
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	for other, k := range s.kept.open {
		if time.Since(k.since) >= keptFor {
			delete(s.kept.open, other) // others may still read it
		}
	}
	if k, known := s.kept.open[location]; known {
		return k.Store, nil
	}
	at, err := store.Open(ctx, location)
	if err == nil && len(s.kept.open) < maxKept {
		at.KeepOpen()
		s.kept.open[location] = keptStore{at, time.Now()}
	}
	return at, err
}

// StoreError is a store that is not opened.
type StoreError struct{ text string }

func (e *StoreError) Error() string { return e.text }

// Trusted returns the configured store, otherwise the reported one, if that is a directory on this machine.
func (s Store) Trusted(reported string) (string, error) {
	if s.Configured != "" {
		return s.Configured, nil
	}
	path, isURL := strings.CutPrefix(reported, "file://")
	if !isURL && strings.Contains(reported, "://") || strings.ContainsAny(path, "?#\n") {
		return "", &StoreError{fmt.Sprintf("the workflow reports the store %q; confirm it with --store URL, or CONVERGE_STORE [stated-store]", reported)}
	}
	return reported, nil
}

// Readable is Trusted for reading only. If a reported directory does not exist here, it belongs to another machine: opening it would create
// an empty store.
func (s Store) Readable(reported string) (string, error) {
	at, err := s.Trusted(reported)
	if err != nil || s.Configured != "" || at == "" {
		return at, err
	}
	if info, err := os.Stat(filepath.FromSlash(strings.TrimPrefix(at, "file://"))); err != nil || !info.IsDir() {
		return "", &StoreError{fmt.Sprintf("the workflow reports the store directory %q, which is not on this machine; name it with --store URL, or CONVERGE_STORE [store-elsewhere]", at)}
	}
	return at, nil
}
