package store

import (
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/tests/intenttest"
)

//nolint:gosec // what S3 calls an ETag

// bucketServer speaks as much of S3's protocol as a store needs: objects, conditional creation and
// listing. It holds the store to what it sends over the wire.
type bucketServer struct {
	mu      sync.Mutex
	objects map[string][]byte
}

func (b *bucketServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := strings.TrimPrefix(r.URL.Path, "/bucket/")
	data, there := b.objects[key]
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Has("list-type"):
		b.list(w, r.URL.Query().Get("prefix"))
	case r.Method == http.MethodPut && r.Header.Get("If-None-Match") == "*" && there:
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Header.Get("X-Amz-Decoded-Content-Length") != "" {
			fail(w, http.StatusNotImplemented, "NotImplemented")
			return
		}
		b.objects[key] = body
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodDelete:
		delete(b.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case !there:
		fail(w, http.StatusNotFound, "NoSuchKey")
	default:
		w.Header().Set("ETag", etag(data))
		w.Header().Set("Last-Modified", "Sat, 21 Nov 2026 10:00:00 GMT")
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(data)
		}
	}
}

func (b *bucketServer) list(w io.Writer, prefix string) {
	fmt.Fprint(w, `<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>`)
	for _, key := range slices.Sorted(slices.Values(strict.Keys(b.objects))) {
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

// openS3Store opens a store under a prefix of a bucket on loopback.
func openS3Store(t *testing.T) (*Store, *bucketServer) {
	t.Helper()
	b := &bucketServer{objects: map[string][]byte{}}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	s, err := Open(t.Context(), "s3://bucket/team/store?region=eu-west-1&use_path_style=true&endpoint="+url.QueryEscape(server.URL))
	require.NoError(t, err)
	return s, b
}

func TestStoreInABucketOnS3(t *testing.T) {
	s, b := openS3Store(t)
	require.False(t, s.Local())
	compiled := intenttest.Dir(t, "../compile/testdata/shop")
	hash, err := s.PutIncarnation(t.Context(), compiled.Incarnation)
	require.NoError(t, err)
	require.Equal(t, []string{"team/store/incarnations/" + hash}, strict.Keys(b.objects))
	s.cache = newCache()
	inc, err := s.Incarnation(t.Context(), hash)
	require.NoError(t, err)
	require.Equal(t, compiled.Incarnation, inc)

	first, created, err := s.CreateVersion(t.Context(), "shop", "web", VersionRecord{Version: "v1", FullVersion: "v1", Incarnation: 1})
	require.NoError(t, err)
	require.True(t, created)
	s.cache = newCache()
	again, created, err := s.CreateVersion(t.Context(), "shop", "web", VersionRecord{Version: "v1", FullVersion: "v1", Incarnation: 2})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, first, again)
	won, err := s.blobs.create(t.Context(), "versions/raced", nil)
	require.NoError(t, err)
	require.True(t, won)
	won, err = s.blobs.create(t.Context(), "versions/raced", nil)
	require.NoError(t, err)
	require.False(t, won, "the condition goes over the wire")

	for i := range 12 {
		require.NoError(t, s.PutLog(t.Context(), "shop", "web", "staging", LogEntry{Kind: LogApply, Attempt: i}))
	}
	logs, err := s.Logs(t.Context(), "shop", "web", "staging")
	require.NoError(t, err)
	require.Len(t, logs, keptLogs)
	_, err = s.Version(t.Context(), "shop", "web", "v9")
	require.True(t, IsNotFound(err), "%v", err)
}
