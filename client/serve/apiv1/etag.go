package apiv1

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
)

// WithETags gives each answer to a GET a tag of its content, and answers 304 to a client that has that content (RFC 9110, 13.1.2). It keeps
// an answer in memory until it is complete, so it is for answers of bounded size.
func WithETags(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		held := &heldAnswer{header: w.Header()}
		next.ServeHTTP(held, r)
		if held.status != 0 && held.status != http.StatusOK {
			w.WriteHeader(held.status)
			_, _ = w.Write(held.body.Bytes()) // the client is gone
			return
		}
		sum := sha256.Sum256(held.body.Bytes())
		tag := `"` + hex.EncodeToString(sum[:16]) + `"`
		w.Header().Set("ETag", tag)
		w.Header().Set("Cache-Control", "private, no-cache")
		if matches(r.Header.Get("If-None-Match"), tag) {
			w.Header().Del("Content-Type")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(held.body.Bytes())
	})
}

// matches reports whether a list of tags has a tag. Weak tags match too.
func matches(list, tag string) bool {
	for candidate := range strings.SplitSeq(list, ",") {
		if candidate = strings.TrimSpace(candidate); candidate == "*" || strings.TrimPrefix(candidate, "W/") == tag {
			return true
		}
	}
	return false
}

// heldAnswer keeps an answer instead of sending it.
type heldAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (h *heldAnswer) Header() http.Header             { return h.header }
func (h *heldAnswer) WriteHeader(status int)          { h.status = status }
func (h *heldAnswer) Write(chunk []byte) (int, error) { return h.body.Write(chunk) }
