package charts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Differs reports a chart with an unexpected digest.
type Differs struct{ Has, Want string }

// Error names both digests.
func (d *Differs) Error() string {
	return fmt.Sprintf("its digest is %s; expected %s", d.Has, d.Want)
}

// Check verifies bytes against a digest; the empty digest matches everything.
func Check(data []byte, digest string) error {
	if has := Digest(data); digest != "" && has != digest {
		return &Differs{has, digest}
	}
	return nil
}

// cached returns the content of a digest from the user's cache directory, or fetches and caches it. It verifies cached content each
// time.
func cached(ctx context.Context, digest string, bring func(context.Context) ([]byte, error)) ([]byte, error) {
	kept := cachePath(digest)
	if data, err := os.ReadFile(kept); err == nil && Check(data, digest) == nil {
		return data, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	data, err := bring(ctx)
	if err != nil {
		return nil, err
	}
	if err := Check(data, digest); err != nil {
		return nil, err
	}
	keep(kept, data)
	return data, nil
}

func cachePath(digest string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "converge", "charts", strings.TrimPrefix(digest, "sha256:")+".tgz")
}

// keep writes a file atomically. If that fails, the next compilation downloads it again.
func keep(name string, data []byte) {
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
