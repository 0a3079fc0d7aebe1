package apiv1

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/client/api"
	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/overview"
	"github.com/converge-engine/converge/client/serve/access"
	"github.com/converge-engine/converge/client/serve/session"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// listed is an installation of which only the list is known.
type listed struct {
	mu       sync.Mutex
	services []connection.ListedService
	lists    int
}

func (l *listed) set(service, status string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := connection.ServiceName{Application: "shop", Service: service}
	row := connection.ListedService{ServiceName: n, WorkflowID: n.ID(), Status: status, Changed: time.Now()}
	for k := range l.services {
		if l.services[k].ServiceName == n {
			l.services[k] = row
			return
		}
	}
	l.services = append(l.services, row)
}

func (l *listed) ListServices(context.Context, connection.ServiceFilter, int, []byte) ([]connection.ListedService, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists++
	return append([]connection.ListedService{}, l.services...), nil, nil
}

func (l *listed) Query(_ context.Context, id, _ string, _ any) error {
	return fmt.Errorf("%s: %w", id, connection.ErrNotFound)
}

// event is one event of a stream.
type event struct{ name, id, data string }

// client reads the events of a stream.
type client struct {
	response *http.Response
	lines    *bufio.Scanner
}

func connect(t *testing.T, url, lastID string) *client {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	return &client{response, bufio.NewScanner(response.Body)}
}

func (c *client) next(t *testing.T) (e event) {
	t.Helper()
	for c.lines.Scan() {
		field, value, _ := strings.Cut(c.lines.Text(), ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		case "":
			if e.name != "" {
				return e
			}
		}
	}
	require.NoError(t, c.lines.Err())
	require.Fail(t, "the stream ended")
	return e
}

// A stream says what changes; a client that was away gets what it missed, and one of another process has to read everything again.
func TestEvents(t *testing.T) {
	installation := &listed{}
	installation.set("web", "CONVERGED")
	known := overview.New(installation, time.Now)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go known.Run(ctx)
	stopping := make(chan struct{})
	stop := sync.OnceFunc(func() { close(stopping) })
	server := httptest.NewServer(mounted(t, Options{Overview: known, Stopping: stopping}))
	defer server.Close()
	defer stop() // Close waits for streams
	url := server.URL + prefix + "/events?service=shop/web"

	c := connect(t, url, "")
	require.Equal(t, "no", c.response.Header.Get("X-Accel-Buffering"), "proxies pass events on at once")
	require.Equal(t, "reset", c.next(t).name)
	first := c.next(t)
	require.Equal(t, "changed", first.name, "the list has come")
	installation.set("web", "FAILED")
	var changed api.Changed
	for changed.Services == nil || changed.Services[0].Status != "FAILED" {
		e := c.next(t)
		require.NoError(t, json.Unmarshal([]byte(e.data), &changed))
		first.id = e.id
	}
	require.Equal(t, "shop", changed.Services[0].Application)
	require.NoError(t, c.response.Body.Close())

	installation.set("web", "CONVERGED")
	installation.set("api", "CONVERGED")
	back := connect(t, url, first.id)
	seen := map[string]string{}
	for len(seen) < 2 {
		e := back.next(t)
		require.Equal(t, "changed", e.name, "it continues where it was")
		require.NoError(t, json.Unmarshal([]byte(e.data), &changed))
		for _, s := range changed.Services {
			seen[s.Service] = s.Status
		}
	}
	require.Equal(t, map[string]string{"web": "CONVERGED", "api": "CONVERGED"}, seen)
	require.Equal(t, "reset", connect(t, url, "0123456789abcdef-7").next(t).name)
	require.Equal(t, "reset", connect(t, url, "nonsense").next(t).name)

	stop()
	for back.lines.Scan() { // until the server ends it
	}
	require.NoError(t, back.lines.Err(), "a stop ends streams")

	for _, bad := range []string{"?service=web", "?service=shop/Web", "?service=" + strings.Repeat("x", 200), "?" + strings.Repeat("service=shop/web&", maxWatched+1)} {
		w := send(t, mounted(t, Options{Overview: known}), http.MethodGet, prefix+"/events"+bad, "")
		require.Equal(t, http.StatusUnprocessableEntity, w.Code, bad)
	}
}

// The stream of a person ends after a while, so that it is noticed when they have signed out.
func TestStreamOfAPersonEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := overview.New(&listed{}, time.Now)
		handler := mounted(t, Options{Overview: known, Stopping: make(chan struct{})})
		r := httptest.NewRequestWithContext(session.With(t.Context(), entities.Who{Name: "alice"}), http.MethodGet, prefix+"/events", nil)
		w, begun := httptest.NewRecorder(), time.Now()
		handler.ServeHTTP(w, r)
		require.Equal(t, session.StreamTime, time.Since(begun))
		require.Contains(t, w.Body.String(), "event: end\n")
	})
}

// who is an installation whose application says who may read it.
type who struct {
	listed
	connection.API
	readers []string
}

func (w *who) ListServices(ctx context.Context, f connection.ServiceFilter, size int, token []byte) ([]connection.ListedService, []byte, error) {
	return w.listed.ListServices(ctx, f, size, token)
}

func (w *who) Query(ctx context.Context, id, query string, into any) error {
	if s, ok := into.(*protocol.ApplicationStatus); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		s.Readers = w.readers
		return nil
	}
	return w.listed.Query(ctx, id, query, into)
}

// A person who loses a grant learns of no later change within a minute, though the stream of a while ago is open.
func TestStreamEndsWithTheGrant_G2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &who{readers: []string{"alice"}}
		w.set("web", "CONVERGED")
		known := overview.New(w, time.Now)
		ctx, cancel := context.WithCancel(session.With(t.Context(), entities.Who{Name: "alice"}))
		defer cancel()
		go known.Run(ctx)
		handler := mounted(t, Options{Calls: w, Overview: known, Stopping: make(chan struct{}), Readers: access.New(w, time.Now)})
		open := func() *httptest.ResponseRecorder {
			out := httptest.NewRecorder()
			go handler.ServeHTTP(out, httptest.NewRequestWithContext(ctx, http.MethodGet, prefix+"/events", nil))
			return out
		}
		before := open()
		time.Sleep(2 * time.Second)
		w.set("web", "FAILED")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Contains(t, before.Body.String(), "FAILED")

		w.mu.Lock()
		w.readers = []string{"carol"}
		w.mu.Unlock()
		time.Sleep(46 * time.Second)
		w.set("web", "PAUSED")
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.NotContains(t, before.Body.String(), "PAUSED")
		later := open()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.NotContains(t, later.Body.String(), "web")
		require.Contains(t, later.Body.String(), `"services":0`)
	})
}
