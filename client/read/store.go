package read

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Store says which store is opened. A workflow reports its store, but everyone with write access to the namespace can make it report
// another one. So a reported store is only opened if no data leaves this machine (G6).
type Store struct {
	Configured string // by the user; a directory or a URL; empty: none
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
