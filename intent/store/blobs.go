package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/blob/s3blob"
	"gocloud.dev/gcerrors"

	"github.com/converge-engine/converge/intent/internal/seal"
	"github.com/converge-engine/converge/intent/internal/strict"
)

// bucket implements blobs in any bucket.
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
	found, err := b.entries(ctx, prefix)
	return keysOf(found), err
}

func keysOf(found []entry) []string {
	return strict.Map(found, func(e entry) string { return e.key })
}

func (b *bucket) entries(ctx context.Context, prefix string) ([]entry, error) {
	var found []entry
	items := b.List(&blob.ListOptions{Prefix: prefix})
	for {
		item, err := items.Next(ctx)
		if errors.Is(err, io.EOF) {
			slices.SortFunc(found, func(a, b entry) int { return strings.Compare(a.key, b.key) })
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list %s in the store: %w", prefix, err)
		}
		found = append(found, entry{item.Key, item.Size, item.ModTime})
	}
}

func (b *bucket) exists(ctx context.Context, key string) (bool, error) {
	exists, err := b.Exists(ctx, key)
	if err != nil {
		return false, fmt.Errorf("check for %s in the store: %w", key, err)
	}
	return exists, nil
}

// move reads and writes. Not all buckets support copies, and a copy may keep the age of its source.
func (b *bucket) move(ctx context.Context, from, to string) error {
	data, err := b.read(ctx, from)
	if err == nil {
		err = b.write(ctx, to, data)
	}
	if err == nil {
		err = b.remove(ctx, from)
	}
	return err
}

func (b *bucket) remove(ctx context.Context, key string) error {
	if err := b.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("delete %s from the store: %w", key, err)
	}
	return nil
}

func (b *bucket) close() error { return b.Close() }

const memoryURL = "mem://"

// Open opens a store: a directory, which is created, or file:///dir, mem:// (empty, and gone with
// the process) or s3://bucket/prefix?region=eu-west-1 (credentials as the AWS tools find them).
//
// Content that holds secrets is encrypted with the keys that CONVERGE_STORE_KEY refers to.
func Open(ctx context.Context, location string) (*Store, error) {
	return OpenWith(ctx, location, os.Getenv("CONVERGE_STORE_KEY"))
}

// OpenWith is Open with keys by reference: file:/path or env:NAME, the newest first, with commas between them.
func OpenWith(ctx context.Context, location, keys string) (*Store, error) {
	ring, err := seal.Load(keys)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s, err := open(ctx, location)
	if err == nil {
		s.keys = ring
	}
	return s, err
}

func open(ctx context.Context, location string) (*Store, error) {
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
		return nil, fmt.Errorf("open store: invalid URL %q", location)
	}
	query, err := url.ParseQuery(u.RawQuery) // whoever reads u.Query() would not see what cannot be parsed
	switch {
	case err != nil:
		return nil, fmt.Errorf("open store %s: invalid parameters; expected NAME=VALUE&NAME=VALUE after the ?", location)
	case scheme == "file" && len(query) > 0:
		return nil, fmt.Errorf("open store %s: a directory has no parameters", location)
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

// openBucket opens the bucket of a URL. The SDK of AWS logs nothing: it would write lines of its own into the output of the program.
func openBucket(ctx context.Context, u *url.URL) (*blob.Bucket, error) {
	var opener s3blob.URLOpener
	b, err := opener.OpenBucketURL(ctx, u)
	if err != nil {
		return nil, err
	}
	var client *s3.Client
	if !b.As(&client) {
		return b, nil
	}
	defer b.Close() // it holds nothing but the client
	quiet := s3.New(client.Options(), func(o *s3.Options) { o.Logger = logging.Nop{} })
	return s3blob.OpenBucket(ctx, quiet, u.Host, &opener.Options)
}

func openS3(ctx context.Context, u *url.URL) (*Store, error) {
	location := u.String()
	if u.Host == "" {
		return nil, fmt.Errorf("open store %s: no bucket named; expected s3://bucket", location)
	}
	prefix := strings.Trim(u.Path, "/")
	plain := *u
	plain.Path = ""
	b, err := openBucket(ctx, &plain)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", location, err)
	}
	if prefix != "" {
		b = blob.PrefixedBucket(b, prefix+"/")
	}
	return newStore(location, "", &bucket{b}), nil
}
