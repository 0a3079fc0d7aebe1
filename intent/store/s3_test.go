package store

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/buckettest"
	"github.com/converge-engine/converge/tests/intenttest"
)

// openS3Store opens a store under a prefix of a bucket on loopback.
func openS3Store(t *testing.T) (*Store, *buckettest.Bucket) {
	t.Helper()
	b := buckettest.New()
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	s, err := Open(t.Context(), buckettest.URL(server.URL))
	require.NoError(t, err)
	return s, b
}

func TestStoreInABucketOnS3(t *testing.T) {
	s, b := openS3Store(t)
	require.False(t, s.Local())
	compiled := intenttest.Dir(t, "../compile/testdata/shop")
	hash, err := s.PutIncarnation(t.Context(), compiled.Incarnation)
	require.NoError(t, err)
	require.Equal(t, []string{"team/store/incarnations/" + hash}, b.Keys())
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
	require.False(t, won, "the condition is part of the request")

	for i := range 12 {
		require.NoError(t, s.PutLog(t.Context(), "shop", "web", "staging", LogEntry{Kind: LogApply, Attempt: i}))
	}
	logs, err := s.Logs(t.Context(), "shop", "web", "staging")
	require.NoError(t, err)
	require.Len(t, logs, keptLogs)
	_, err = s.Version(t.Context(), "shop", "web", "v9")
	require.True(t, IsNotFound(err), "%v", err)
}

// The SDK of AWS writes no lines of its own: a reading of a store that sends no checksums would be one.
func TestS3IsSilent(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer file.Close()
	stderr := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = stderr }()
	s, _ := openS3Store(t)
	require.NoError(t, s.blobs.write(t.Context(), "key", []byte("value")))
	data, err := s.blobs.read(t.Context(), "key")
	require.NoError(t, err)
	require.Equal(t, "value", string(data))
	printed, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	require.Empty(t, string(printed))
}
