package sources

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const fetchTimeout = time.Minute

// Fetch returns a packed chart from an https:// address, checked against its digest (sha256: and hex
// digits) and kept under the user's cache directory by that digest, so that it is fetched once.
func Fetch(ctx context.Context, client *http.Client, address, digest string) ([]byte, error) {
	kept := cachePath(digest)
	if data, err := os.ReadFile(kept); err == nil && Check(data, digest) == nil {
		return data, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	data, err := download(ctx, client, address)
	if err != nil {
		return nil, err
	}
	if err := Check(data, digest); err != nil {
		return nil, err
	}
	keep(kept, data)
	return data, nil
}

// Check compares bytes with a digest; the empty digest is that of anything.
func Check(data []byte, digest string) error {
	sum := sha256.Sum256(data)
	if has := "sha256:" + hex.EncodeToString(sum[:]); digest != "" && has != digest {
		return fmt.Errorf("its digest is %s", has)
	}
	return nil
}

func download(ctx context.Context, client *http.Client, address string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the server answered %s", answer.Status)
	}
	data, err := io.ReadAll(io.LimitReader(answer.Body, MaxTree+1))
	if err == nil && len(data) > MaxTree {
		err = fmt.Errorf("it has more than %d bytes", MaxTree)
	}
	return data, err
}

func cachePath(digest string) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "converge", "charts", strings.TrimPrefix(digest, "sha256:")+".tgz")
}

// keep writes a file whole or not at all. Failing to costs the next compilation a download.
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
