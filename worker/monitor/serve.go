package monitor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// readyTimeout is the timeout of one readiness check. A caller, usually every ten seconds, waits that long for all checks together.
	readyTimeout = 3 * time.Second
	// readyCacheDuration is how long a result is cached for other callers.
	readyCacheDuration = 2 * time.Second
)

// readiness is the named dependencies of a worker, in the order in which they were added.
type readiness struct {
	mu         sync.Mutex
	names      []string
	checks     []func(context.Context) error
	cachedText string
	cachedAll  bool
	cachedAt   time.Time
}

func (r *readiness) add(name string, check func(context.Context) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cachedAt = time.Time{}
	if n := slices.Index(r.names, name); n >= 0 {
		r.checks[n] = check
		return
	}
	r.names, r.checks = append(r.names, name), append(r.checks, check)
}

// AddCheck adds a check that must pass for the worker to be ready, or replaces the one of that name. It must return when its context ends.
func (m *Monitor) AddCheck(name string, check func(context.Context) error) { m.ready.add(name, check) }

// SetOnlyCheck replaces all checks by one: the program is no worker, and does not poll.
func (m *Monitor) SetOnlyCheck(name string, check func(context.Context) error) {
	m.ready.mu.Lock()
	defer m.ready.mu.Unlock()
	m.ready.names, m.ready.checks, m.ready.cachedAt = []string{name}, []func(context.Context) error{check}, time.Time{}
}

// Ready runs all checks and returns one line per check, and whether all passed.
func (m *Monitor) Ready(ctx context.Context) (text string, all bool) {
	r := &m.ready
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.cachedAt.IsZero() && time.Since(r.cachedAt) < readyCacheDuration {
		return r.cachedText, r.cachedAll
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout) // other callers wait for the result too
	defer cancel()
	found := make([]error, len(r.checks))
	var asked sync.WaitGroup
	for n, check := range r.checks {
		asked.Go(func() { found[n] = check(ctx) })
	}
	asked.Wait()
	r.cachedText, r.cachedAll = "", true
	for n, err := range found {
		state := "ok"
		if err != nil {
			state, r.cachedAll = err.Error(), false
		}
		r.cachedText += r.names[n] + ": " + strings.Join(strings.Fields(state), " ") + "\n"
	}
	r.cachedAt = time.Now()
	return r.cachedText, r.cachedAll
}

// Address is the listen address: HOST:PORT, or a port alone, which means the loopback address.
func Address(text string) (string, error) {
	if !strings.Contains(text, ":") {
		text = ":" + text
	}
	host, port, err := net.SplitHostPort(text)
	if n, bad := strconv.Atoi(port); err != nil || bad != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("%q: expected PORT or HOST:PORT, such as 9464 or 0.0.0.0:9464", strings.TrimPrefix(text, ":"))
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// Serve serves at an address until it is stopped: /metrics, /healthz for liveness, and /readyz.
func (m *Monitor) Serve(ctx context.Context, address string) (at string, stop func(), err error) {
	address, err = Address(address)
	if err != nil {
		return "", nil, err
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", address)
	if err != nil {
		return "", nil, fmt.Errorf("serve metrics: %w", err)
	}
	server := &http.Server{Handler: m.newHandler(), ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("metrics are no longer served", "error", err)
		}
	}()
	return l.Addr().String(), func() { _ = server.Close() }, nil // a shutdown does not wait for readers of metrics
}

func (m *Monitor) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 10}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		text, all := m.Ready(r.Context())
		code := http.StatusOK
		if !all {
			code = http.StatusServiceUnavailable
		}
		answer(w, code, text)
	})
	return mux
}

func answer(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) // the client may have gone
}
