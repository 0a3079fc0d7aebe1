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

// This file says which store a command opens. A workflow says which one it is kept in, and whoever writes to the namespace
// can have it say another: that is opened only when nothing leaves this machine by that (G6).

// ownStore is the store that a flag or CONVERGE_STORE names, else the one that a workflow states, if that is a directory here.
func (f *Factory) ownStore(flag, stated string) (string, error) {
	if own := first(flag, f.Env("CONVERGE_STORE")); own != "" {
		return own, nil
	}
	path, isURL := strings.CutPrefix(stated, "file://")
	if !isURL && strings.Contains(stated, "://") || strings.ContainsAny(path, "?#\n") {
		return "", fmt.Errorf("the store is %q, as the workflow says; if that is yours, say so: --store URL, or CONVERGE_STORE [stated-store]", stated)
	}
	return stated, nil
}

// storeRead is ownStore for what is only read. A stated directory that is not here is one of another machine: opening it would
// make it, and find nothing there.
func (f *Factory) storeRead(flag, stated string) (string, error) {
	at, err := f.ownStore(flag, stated)
	if err != nil || first(flag, f.Env("CONVERGE_STORE")) != "" || at == "" {
		return at, err
	}
	if info, err := os.Stat(filepath.FromSlash(strings.TrimPrefix(at, "file://"))); err != nil || !info.IsDir() {
		return "", fmt.Errorf("the store is the directory %q, as the workflow says, which is not on this machine; say where it is to be had: --store URL, or CONVERGE_STORE [store-elsewhere]", at)
	}
	return at, nil
}

// storeOf is where an application's incarnations are: named by a flag or CONVERGE_STORE, else what
// the application says; for a new one, what another application says, since the workers read one
// store; else beside its configuration.
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
			return f.ownStore("", status.Store)
		}
	}
	return storeIn(dir), nil
}

// storeIn is the store beside a configuration.
func storeIn(dir string) string { return filepath.Join(dir, ".converge", "store") }
