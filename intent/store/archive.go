package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/intent/internal/canonical"
	"github.com/converge-engine/converge/intent/internal/seal"
)

// MaxArchived bounds one entry of an archive, in bytes. No store writes larger entries.
const MaxArchived = 64 << 20

// folders lists all folders of a store and how an archive treats each.
var folders = map[string]archiveMode{
	"incarnations/": byDigest, "specs/": byDigest, "manifests/": byDigest, "payloads/": byDigest,
	"states/": byDigest, commits: byDigest, "bundles/": byDigest, "checks/": byDigest, "extensions/": byDigest,
	"keys/": verbatim, "numbers/": verbatim, "runtimes/": verbatim, "versions/": verbatim, trails: verbatim, "logs/": verbatim, "holds/": verbatim, endedPauses: verbatim, rules: verbatim, notices: verbatim, directories: verbatim, tokens: verbatim,
	libraries: verbatim, libraryContents: byDigest, joints: verbatim, plans: verbatim, plansRunning: verbatim, captures: verbatim, reports: verbatim,
	"fence/":    verbatim,
	checkpoints: selected, missedMessages: selected,
	installations: excluded, "leases/": excluded, "workers/": excluded, watched: excluded, heartbeats: excluded,
	unreferenced: excluded, // except content under its own key there
}

type archiveMode int

const (
	excluded archiveMode = iota // it belongs to the running workers or to the source installation
	verbatim
	byDigest // as it is; its digest must match its key
	selected // a selection
)

// Each passes everything that an archive of a store contains to take. It first passes the newest intact checkpoint of each workflow, and
// then everything else. This order includes everything that a checkpoint refers to, even if the store is being written to. It returns
// the workflows that are omitted because they have no intact checkpoint: workflow id → error.
func (s *Store) Each(ctx context.Context, take func(key string, data []byte) error) (damaged map[string]error, err error) {
	ids, err := s.Checkpointed(ctx, "")
	if err != nil {
		return nil, err
	}
	damaged = map[string]error{}
	for _, id := range ids {
		c, err := s.Checkpoint(ctx, id)
		if IsDamaged(err) {
			damaged[id] = err
			continue
		}
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(c)
		if err != nil {
			return nil, err
		}
		if err := take(checkpointKey(c), data); err != nil {
			return nil, err
		}
	}
	taken := map[string]bool{}
	visit := func(key string, data []byte) error {
		if isContent(key) {
			taken[key] = true
		}
		return take(key, data)
	}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		if kind := folders[folder]; kind != verbatim && kind != byDigest {
			continue
		}
		if err := s.eachIn(ctx, folder, visit); err != nil {
			return nil, err
		}
	}
	return damaged, s.eachSetAside(ctx, taken, take)
}

// eachSetAside passes content that is set aside, or that was set aside during the export. A checkpoint that was read earlier may refer to
// it.
func (s *Store) eachSetAside(ctx context.Context, taken map[string]bool, take func(string, []byte) error) error {
	return s.eachIn(ctx, unreferenced, func(key string, data []byte) error {
		if key = strings.TrimPrefix(key, unreferenced); taken[key] || !isContent(key) {
			return nil
		}
		return take(key, data)
	})
}

// archiveConcurrency is the number of entries that are read from the store, or written to it, concurrently.
const archiveConcurrency = 16

// eachIn passes the entries of a folder. It skips entries that are removed during the export (old logs, claims, pauses) and files that a
// crashed writer left.
func (s *Store) eachIn(ctx context.Context, folder string, take func(string, []byte) error) error {
	keys, err := s.blobs.list(ctx, folder)
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(path.Base(key), ".") })
	for chunk := range slices.Chunk(keys, archiveConcurrency) {
		read := make([][]byte, len(chunk))
		g, ctx := errgroup.WithContext(ctx)
		for n, key := range chunk {
			g.Go(func() (err error) {
				read[n], err = s.blobs.read(ctx, key)
				if IsNotFound(err) {
					return nil
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		for n, key := range chunk {
			if read[n] == nil {
				continue
			}
			if err := take(key, read[n]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Restore writes an entry of an archive under its key. It does not overwrite an existing entry, which is newer. An unknown key, or
// content that does not match its key, is an error.
func (s *Store) Restore(ctx context.Context, key string, data []byte) error {
	if err := archivable(key, data); err != nil {
		return fmt.Errorf("%q: %w", key, err)
	}
	_, err := s.blobs.create(ctx, key, data)
	return err
}

func archivable(key string, data []byte) error {
	if key != path.Clean(key) || strings.HasPrefix(path.Base(key), ".") || strings.ContainsAny(key, "\\\x00") {
		return errors.New("not a key of a store")
	}
	folder, rest, _ := strings.Cut(key, "/")
	folder += "/"
	kind, known := folders[folder]
	switch {
	case !known:
		return errors.New("unknown folder")
	case kind == excluded:
		return errors.New("not part of an archive")
	case folder == "bundles/" && seal.Is(data): // opening it checks the content
	case kind == byDigest && canonical.Hash(data) != rest:
		return errors.New("its content has another digest")
	case folder == checkpoints:
		c, err := parseCheckpoint(key, data)
		if err == nil && key != checkpointKey(c) {
			err = errors.New("it is the checkpoint of another workflow or time")
		}
		return err
	}
	return nil
}

// Empty reports whether a store has nothing that an archive would contain.
func (s *Store) Empty(ctx context.Context) (bool, error) {
	for folder, kind := range folders {
		if kind == excluded {
			continue
		}
		keys, err := s.blobs.list(ctx, folder)
		if err != nil || len(keys) > 0 {
			return false, err
		}
	}
	return true, nil
}

// Importing returns the archive whose import into this store is in progress or was interrupted; empty: none.
func (s *Store) Importing(ctx context.Context) (string, error) {
	data, err := s.blobs.read(ctx, importing)
	if IsNotFound(err) {
		return "", nil
	}
	return string(data), err
}

// BeginImport records that an archive is being imported into this store. No worker starts on it until EndImport. It returns the recorded
// archive, which is a different one if an import of that one was interrupted.
func (s *Store) BeginImport(ctx context.Context, archive string) (string, error) {
	if _, err := s.blobs.create(ctx, importing, []byte(archive)); err != nil {
		return "", err
	}
	return s.Importing(ctx)
}

// EndImport records that an archive is completely imported.
func (s *Store) EndImport(ctx context.Context) error { return s.blobs.remove(ctx, importing) }

const importing = installations + "importing"
