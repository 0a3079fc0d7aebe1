package limit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities"
)

// A sender in a loop has to wait, others are served; without a sign-in there is no limit.
func TestLimits(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	l := New(func() time.Time { return now })
	h := l.Wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	send := func(who entities.Who, path string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if who.Name != "" {
			r = r.WithContext(session.With(r.Context(), who))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	alice := entities.Who{Name: "alice", Subject: "https://id.shop.dev alice"}
	for range Burst {
		require.Equal(t, http.StatusNoContent, send(alice, "/").Code)
	}
	refused := send(alice, "/services")
	require.Equal(t, http.StatusTooManyRequests, refused.Code)
	require.Equal(t, "1", refused.Header().Get("Retry-After"))
	require.Contains(t, refused.Body.String(), "expected 20 a second at most")
	refused = send(entities.Who{Name: "alice with another name", Subject: alice.Subject}, "/api/v1/services")
	require.Equal(t, http.StatusTooManyRequests, refused.Code)
	require.Equal(t, "application/problem+json", refused.Header().Get("Content-Type"))
	require.Contains(t, refused.Body.String(), `"code":"too-many-requests"`)
	require.Equal(t, http.StatusNoContent, send(entities.Who{Name: "bob"}, "/").Code)
	for range 2 * Burst {
		require.Equal(t, http.StatusNoContent, send(entities.Who{}, "/").Code)
	}
	now = now.Add(time.Second)
	for range Rate {
		require.Equal(t, http.StatusNoContent, send(alice, "/").Code)
	}
	require.Equal(t, http.StatusTooManyRequests, send(alice, "/").Code)
}

// Senders who come and go are forgotten, those who are limited only if there are too many others at once.
func TestLimitsAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	l := New(func() time.Time { return now })
	for n := range 3 * maxSenders {
		now = now.Add(10 * time.Millisecond)
		require.True(t, l.allows(entities.Who{Name: fmt.Sprint("sender ", n)}))
		require.LessOrEqual(t, len(l.all), maxSenders)
	}
	require.Contains(t, l.all, fmt.Sprint("sender ", 3*maxSenders-1))
}
