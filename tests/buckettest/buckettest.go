// Package buckettest is a bucket that speaks as much of S3's protocol as a store needs: objects, conditional creation and
// listing. Only tests use it; it verifies no signature.
package buckettest

import (
	"crypto/md5" //nolint:gosec // what S3 calls an ETag
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Bucket serves the objects of a bucket called "bucket", by their path.
type Bucket struct {
	dir string // of files that outlive the process; empty: there are none

	mu       sync.Mutex
	objects  map[string][]byte
	readOnly bool
}

// SetReadOnly refuses every change from now on, as for somebody who may only read; false allows changes again.
func (b *Bucket) SetReadOnly(readOnly bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readOnly = readOnly
}

// New is an empty bucket in memory.
func New() *Bucket { return &Bucket{objects: map[string][]byte{}} }

// Open is a bucket that is kept in a directory, and finds there what it had when its process was killed.
func Open(dir string) (*Bucket, error) {
	b := New()
	b.dir = dir
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		key, err := url.PathUnescape(f.Name())
		if err != nil || strings.HasSuffix(f.Name(), unfinished) {
			continue
		}
		if b.objects[key], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// URL is the location of a store in a bucket that is served at an address such as "http://127.0.0.1:9000". The
// environment has to have some AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
func URL(address string) string {
	return "s3://bucket/team/store?region=eu-west-1&use_path_style=true&endpoint=" + url.QueryEscape(address)
}

func (b *Bucket) refuses(r *http.Request) bool {
	return b.readOnly && (r.Method == http.MethodPut || r.Method == http.MethodDelete)
}

// Keys are those of all objects, in order.
func (b *Bucket) Keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys()
}

func (b *Bucket) keys() []string {
	keys := make([]string, 0, len(b.objects))
	for key := range b.objects {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// ServeHTTP implements http.Handler.
func (b *Bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body) // before the lock: a client that hangs holds up itself alone
	b.mu.Lock()
	defer b.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/bucket/")
	data, there := b.objects[key]
	switch {
	case b.refuses(r):
		fail(w, http.StatusForbidden, "AccessDenied")
	case r.Method == http.MethodGet && r.URL.Query().Has("list-type"):
		b.list(w, r.URL.Query().Get("prefix"))
	case r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "*" && there:
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut:
		if err != nil || r.Header.Get("X-Amz-Decoded-Content-Length") != "" {
			fail(w, http.StatusNotImplemented, "NotImplemented")
			return
		}
		if err := b.keep(key, body); err != nil {
			fail(w, http.StatusInternalServerError, "InternalError")
			return
		}
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodDelete:
		delete(b.objects, key)
		if b.dir != "" {
			_ = os.Remove(b.file(key)) // it is there, or somebody tidied up
		}
		w.WriteHeader(http.StatusNoContent)
	case !there:
		fail(w, http.StatusNotFound, "NoSuchKey")
	default:
		get(w, r, data)
	}
}

func get(w http.ResponseWriter, r *http.Request, data []byte) {
	w.Header().Set("ETag", etag(data))
	w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")
	w.Header().Set("Content-Length", fmt.Sprint(len(data)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(data)
	}
}

const unfinished = "~" // ends the name of a file that is being written; no key has it

func (b *Bucket) file(key string) string { return filepath.Join(b.dir, url.PathEscape(key)) }

// keep is durable, where there is a directory, before it is answered.
func (b *Bucket) keep(key string, body []byte) error {
	if b.dir != "" {
		if err := os.WriteFile(b.file(key)+unfinished, body, 0o600); err != nil {
			return err
		}
		if err := os.Rename(b.file(key)+unfinished, b.file(key)); err != nil {
			return err
		}
	}
	b.objects[key] = body
	return nil
}

func (b *Bucket) list(w io.Writer, prefix string) {
	fmt.Fprint(w, `<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>`)
	for _, key := range b.keys() {
		if strings.HasPrefix(key, prefix) {
			fmt.Fprintf(w, `<Contents><Key>%s</Key><Size>%d</Size><LastModified>2026-11-21T10:00:00Z</LastModified></Contents>`, key, len(b.objects[key]))
		}
	}
	fmt.Fprint(w, `</ListBucketResult>`)
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>%s</Message></Error>`, code, code)
}

func etag(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // see above
	return `"` + hex.EncodeToString(sum[:]) + `"`
}
