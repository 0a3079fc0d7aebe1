package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/converge-engine/converge/client/publish"
)

// lookInterval is how often the directory is looked at for saved files. Looking is cheaper and
// surer than being told: editors that replace files, and network file systems, are all the same.
const lookInterval = 400 * time.Millisecond

// follower applies a directory whenever a file in it was saved.
type follower struct {
	client client.Client
	dir    string
	store  string
	out    io.Writer
	report *report
}

// follow applies the directory once and then after every change, until ctx ends.
func (f *follower) follow(ctx context.Context) error {
	applied := ""
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	for {
		now, err := snapshot(f.dir)
		if err != nil {
			return fmt.Errorf("follow %s: %w", f.dir, err)
		}
		if now != applied && f.settled(now) {
			f.apply(ctx)
			applied = now
		}
		f.report.tick(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// settled: nothing was saved while looking again, so that a file half written is not compiled.
func (f *follower) settled(before string) bool {
	again, err := snapshot(f.dir)
	return err == nil && again == before
}

// apply publishes the directory. A mistake is said and the next save is waited for: what runs goes
// on as it was.
func (f *follower) apply(ctx context.Context) {
	result, err := publish.Publish(ctx, publish.Options{
		Client: f.client, Dir: f.dir, StoreURL: f.store, By: "dev", Causes: []string{"saved in " + f.dir},
	})
	switch {
	case ctx.Err() != nil:
	case err != nil:
		fmt.Fprintf(f.out, "%s\n", err)
	default:
		f.report.published(result)
	}
}

// snapshot is the names, sizes and times of all files below dir, but for those in directories whose
// name begins with a dot. What cannot be read below dir is left out: a directory that is removed
// while it is walked, or one that belongs to somebody else, is no reason to stop.
func snapshot(dir string) (string, error) {
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && path == dir:
			return err
		case err != nil:
			return nil //nolint:nilerr // see above
		case path != dir && strings.HasPrefix(entry.Name(), "."):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil //nolint:nilerr // removed while walking: the next look sees it gone
		}
		fmt.Fprintf(&b, "%s %d %d\n", path, info.Size(), info.ModTime().UnixNano())
		return nil
	})
	return b.String(), err
}
