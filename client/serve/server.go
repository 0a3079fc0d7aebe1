// Package serve is the front door of an installation: an HTTP server with the API (package apiv1). It holds no state of its own, so several
// may run at the same time.
package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Options are those of a server.
type Options struct {
	Listen  string // host:port; port 0 takes a free one
	TLSCert string // PEM file; empty: plain HTTP
	TLSKey  string
	BaseURL string // how browsers and programs reach the server; empty: the address that it listens on
	// AllowAnonymous lets the server listen beyond loopback although callers do not prove who they are.
	AllowAnonymous bool
	// Identifies: the handler lets in only those who prove who they are. Their proofs are not sent over plain HTTP beyond loopback.
	Identifies bool
	// Mount adds the routes, and returns the handler. It is called once the base URL is known. stopping is closed when the server begins to stop:
	// handlers that wait end.
	Mount func(mux *http.ServeMux, base *url.URL, stopping <-chan struct{}) http.Handler
	// Ready returns why the server cannot do its work now; nil: it can.
	Ready func(ctx context.Context) error
	Log   *slog.Logger
}

// The limits on a request. A body is the payload of a verb at most (entities/verb.MaxPayload), with room for its encoding.
const (
	maxHeaderBytes = 32 << 10
	maxBodyBytes   = 128 << 10
	headerTimeout  = 10 * time.Second
	bodyTimeout    = 30 * time.Second
	answerTimeout  = 2 * time.Minute // a handler that takes longer extends it (http.ResponseController)
	idleTimeout    = 2 * time.Minute
	stopTimeout    = 40 * time.Second // longer than an act takes (apiv1)
	readyTimeout   = 5 * time.Second
)

// Server is a listening server.
type Server struct {
	listener net.Listener
	server   *http.Server
	base     *url.URL
	tls      bool
}

// Listen begins to listen; Serve answers.
func Listen(ctx context.Context, o Options) (*Server, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return nil, err
	}
	s := &Server{listener: listener, tls: o.TLSCert != ""}
	if s.base, err = o.baseURL(listener.Addr().String()); err == nil {
		s.server, err = o.httpServer(s.base)
	}
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return s, nil
}

// check returns why the server does not listen with these options.
func (o Options) check() error {
	host, _, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("listen address %q: expected HOST:PORT", o.Listen)
	}
	if !isLoopback(host) && !o.AllowAnonymous && !o.Identifies {
		return fmt.Errorf("listen address %s: callers do not prove who they are, so the server listens on loopback only; expected 127.0.0.1:PORT, --issuer or an identity in the rules of the installation, or --insecure-anonymous", o.Listen)
	}
	if o.BaseURL == "" && IsUnspecified(o.Listen) {
		return fmt.Errorf("listen address %s: callers use another name; expected --base-url https://HOST, or a board in the rules of the installation", o.Listen)
	}
	if (o.TLSCert == "") != (o.TLSKey == "") {
		return errors.New("--tls-cert and --tls-key are required together")
	}
	return nil
}

// URL is the address of the server for its users.
func (s *Server) URL() string { return s.base.String() }

// Serve answers until ctx ends, and then finishes what it has begun.
func (s *Server) Serve(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		if s.tls {
			ended <- s.server.ServeTLS(s.listener, "", "")
		} else {
			ended <- s.server.Serve(s.listener)
		}
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if s.server.Shutdown(stopping) != nil {
		return s.server.Close()
	}
	return nil
}

// baseURL is the configured one, or that of the listener.
func (o Options) baseURL(address string) (*url.URL, error) {
	scheme := "http"
	if o.TLSCert != "" {
		scheme = "https"
	}
	o.BaseURL = cmp.Or(o.BaseURL, scheme+"://"+address)
	base, err := url.Parse(o.BaseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.Path != "" && base.Path != "/" || base.RawQuery != "" || base.Fragment != "" || base.User != nil {
		return nil, fmt.Errorf("--base-url %q: expected https://HOST", o.BaseURL)
	}
	if base.Path = ""; o.Identifies && base.Scheme != "https" && !isLoopback(base.Hostname()) {
		return nil, fmt.Errorf("--base-url %s: people sign in, and plain HTTP shows others their session; expected https://HOST", base)
	}
	return base, nil
}

func (o Options) httpServer(base *url.URL) (*http.Server, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", o.readyz)
	stopping := make(chan struct{})
	handler := o.Mount(mux, base, stopping)
	server := &http.Server{
		Handler:           o.guard(base, handler),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	server.RegisterOnShutdown(sync.OnceFunc(func() { close(stopping) }))
	if o.TLSCert != "" {
		certificate, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert %s: %w", o.TLSCert, err)
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	}
	return server, nil
}

func (o Options) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	if err := o.Ready(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}
