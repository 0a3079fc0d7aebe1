package charts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// DigestError reports a chart with an unexpected digest.
type DigestError struct{ Got, Want string }

// Error names both digests.
func (d *DigestError) Error() string {
	return fmt.Sprintf("its digest is %s; expected %s", d.Got, d.Want)
}

// Check verifies bytes against a digest; the empty digest matches everything.
func Check(data []byte, digest string) error {
	if got := Digest(data); digest != "" && got != digest {
		return &DigestError{got, digest}
	}
	return nil
}

// fetchCached returns the content of a digest from the user's cache directory, or fetches and caches it. It verifies cached content each
// time.
func fetchCached(ctx context.Context, digest string, fetch func(context.Context) ([]byte, error)) ([]byte, error) {
	cacheFile := cachePath(digest)
	if data, err := os.ReadFile(cacheFile); err == nil && Check(data, digest) == nil {
		return data, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	data, err := fetch(ctx)
	if err != nil {
		return nil, err
	}
	if err := Check(data, digest); err != nil {
		return nil, err
	}
	writeCache(cacheFile, data)
	return data, nil
}

func cachePath(digest string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "converge", "charts", strings.TrimPrefix(digest, "sha256:")+".tgz")
}

// writeCache writes a file atomically. If that fails, the next compilation downloads it again.
func writeCache(name string, data []byte) {
	if name == "" || os.MkdirAll(filepath.Dir(name), 0o755) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*.tmp")
	if err != nil {
		return
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if errors.Join(err, f.Close()) == nil {
		_ = os.Rename(f.Name(), name)
	}
}
