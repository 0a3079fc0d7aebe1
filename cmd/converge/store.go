package main

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/client/read"
)

// stores says which store a command opens: that of a flag or of CONVERGE_STORE, or one that a workflow reports.
func (f *Factory) stores(flag string) read.Store {
	return read.Store{Configured: first(flag, f.Env("CONVERGE_STORE"))}
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
	for _, name := range slices.Concat([]string{application}, read.Applications(others)[:min(1, len(others))]) {
		if name == "" {
			continue
		}
		status, err := publish.Status(ctx, c, name)
		if err != nil {
			return "", err
		}
		if status.Store != "" {
			return f.stores("").Trusted(status.Store)
		}
	}
	return storeIn(dir), nil
}

// storeIn returns the store next to a configuration.
func storeIn(dir string) string { return filepath.Join(dir, ".converge", "store") }
