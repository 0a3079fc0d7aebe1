package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/converge-engine/converge/intent/internal/strict"
)

// bucket is blobs in any bucket.
type bucket struct{ *blob.Bucket }

func (b *bucket) read(ctx context.Context, key string) ([]byte, error) {
	data, err := b.ReadAll(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, &NotFoundError{key}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s from the store: %w", key, err)
	}
	return data, nil
}

func (b *bucket) write(ctx context.Context, key string, data []byte) error {
	if err := b.WriteAll(ctx, key, data, nil); err != nil {
		return fmt.Errorf("write %s to the store: %w", key, err)
	}
	return nil
}

func (b *bucket) create(ctx context.Context, key string, data []byte) (bool, error) {
	err := b.WriteAll(ctx, key, data, &blob.WriterOptions{IfNotExist: true})
	if gcerrors.Code(err) == gcerrors.FailedPrecondition {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("write %s to the store: %w", key, err)
	}
	return true, nil
}

func (b *bucket) list(ctx context.Context, prefix string) ([]string, error) {
	var found []string
	items := b.List(&blob.ListOptions{Prefix: prefix})
	for {
		item, err := items.Next(ctx)
		if errors.Is(err, io.EOF) {
			slices.Sort(found)
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list %s in the store: %w", prefix, err)
		}
		found = append(found, item.Key)
	}
}

func (b *bucket) remove(ctx context.Context, key string) error {
	if err := b.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("delete %s from the store: %w", key, err)
	}
	return nil
}

func (b *bucket) close() error { return b.Close() }

// directory is a bucket of local files. The driver's own create-if-absent looks and then renames,
// so that two writers at once can both win; a hard link cannot.
type directory struct {
	bucket
	dir string
}

func (d *directory) create(_ context.Context, key string, data []byte) (bool, error) {
	target := filepath.Join(d.dir, filepath.FromSlash(key))
	created, err := linkNew(target, data)
	if err != nil {
		return false, fmt.Errorf("write %s to the store: %w", key, strict.Reason(err))
	}
	return created, nil
}

func linkNew(target string, data []byte) (bool, error) {
	if err := os.MkdirAll(filepath.Dir(target), 0o777); err != nil {
		return false, err
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".new-*.tmp")
	if err != nil {
		return false, err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return false, err
	}
	err = os.Link(f.Name(), target)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}
