package store

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/blob/s3blob"

	"github.com/converge-engine/converge/intent/internal/strict"
)

const memoryURL = "mem://"

// Open opens a store: a directory, which is created, or file:///dir, mem:// (empty, and gone with
// the process) or s3://bucket/prefix?region=eu-west-1 (credentials as the AWS tools find them).
func Open(ctx context.Context, location string) (*Store, error) {
	scheme, _, isURL := strings.Cut(location, "://")
	switch {
	case location == "":
		return nil, fmt.Errorf("open store: no location given; expected a directory or a URL")
	case !isURL:
		return openDirectory(location)
	case location == memoryURL:
		return newStore(location, "", &bucket{memblob.OpenBucket(nil)}), nil
	}
	u, err := url.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("open store: %q is no URL", location)
	}
	switch scheme {
	case "file":
		return openDirectory(filepath.FromSlash(u.Path))
	case "s3":
		return openS3(ctx, u)
	}
	return nil, fmt.Errorf("open store: %s:// is not supported; expected a directory, file://, mem:// or s3://", scheme)
}

func newStore(location, dir string, b blobs) *Store {
	return &Store{url: location, dir: dir, blobs: b, cache: newCache()}
}

// openDirectory keeps temporary files beside their targets, so that a rename never crosses devices,
// and no attribute files.
func openDirectory(dir string) (*Store, error) {
	absolute, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(absolute, 0o777)
	}
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, strict.Reason(err))
	}
	b, err := fileblob.OpenBucket(absolute, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	return newStore(absolute, absolute, &directory{bucket{b}, absolute}), nil
}

func openS3(ctx context.Context, u *url.URL) (*Store, error) {
	location := u.String()
	if u.Host == "" {
		return nil, fmt.Errorf("open store %s: no bucket named; expected s3://bucket", location)
	}
	prefix := strings.Trim(u.Path, "/")
	plain := *u
	plain.Path = ""
	mux := new(blob.URLMux)
	mux.RegisterBucket(s3blob.Scheme, new(s3blob.URLOpener))
	b, err := mux.OpenBucketURL(ctx, &plain)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", location, err)
	}
	if prefix != "" {
		b = blob.PrefixedBucket(b, prefix+"/")
	}
	return newStore(location, "", &bucket{b}), nil
}
