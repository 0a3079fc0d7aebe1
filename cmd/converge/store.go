package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/converge-engine/converge/client/publish"
)

// This file decides which store a command opens. A workflow states its store, but everyone with write access to the namespace can make
// it state another one. So the command opens a stated store only if no data leaves this machine (G6).

// trustedStore returns the store of a flag or of CONVERGE_STORE, otherwise the one that a workflow states, if that is a directory on this
// machine.
func (f *Factory) trustedStore(flag, reported string) (string, error) {
	if configured := first(flag, f.Env("CONVERGE_STORE")); configured != "" {
		return configured, nil
	}
	path, isURL := strings.CutPrefix(reported, "file://")
	if !isURL && strings.Contains(reported, "://") || strings.ContainsAny(path, "?#\n") {
		return "", fmt.Errorf("the workflow reports the store %q; confirm it with --store URL, or CONVERGE_STORE [stated-store]", reported)
	}
	return reported, nil
}

// readableStore is trustedStore for reading only. If a stated directory does not exist here, it belongs to another machine: opening it
// would create an empty store.
func (f *Factory) readableStore(flag, reported string) (string, error) {
	at, err := f.trustedStore(flag, reported)
	if err != nil || first(flag, f.Env("CONVERGE_STORE")) != "" || at == "" {
		return at, err
	}
	if info, err := os.Stat(filepath.FromSlash(strings.TrimPrefix(at, "file://"))); err != nil || !info.IsDir() {
		return "", fmt.Errorf("the workflow reports the store directory %q, which is not on this machine; name it with --store URL, or CONVERGE_STORE [store-elsewhere]", at)
	}
	return at, nil
}

// storeOf returns the store of an application's incarnations. It comes from a flag or CONVERGE_STORE, otherwise from the application.
// For a new application it comes from another application, because the workers read one store; otherwise it is next to the
// configuration.
func (f *Factory) storeOf(ctx context.Context, application, dir, flag string) (string, error) {
	if store := first(flag, f.Env("CONVERGE_STORE")); store != "" {
		return store, nil
	}
	api, err := f.client(ctx)
	if err != nil {
		return "", err
	}
	c, _ := api.Temporal()
	others, err := api.Services(ctx, "")
	if err != nil {
		return "", err
	}
	for _, name := range slices.Concat([]string{application}, applications(others)[:min(1, len(others))]) {
		if name == "" {
			continue
		}
		status, err := publish.Status(ctx, c, name)
		if err != nil {
			return "", err
		}
		if status.Store != "" {
			return f.trustedStore("", status.Store)
		}
	}
	return storeIn(dir), nil
}

// storeIn returns the store next to a configuration.
func storeIn(dir string) string { return filepath.Join(dir, ".converge", "store") }
