package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// server is one running service.
type server struct {
	health
	mu     sync.Mutex
	known  map[string]string // databases, or registered services
	routes map[string]string // pushed routes: a line "WORD: REST" each, by its word
	quit   context.CancelFunc
}

// serve answers on the socket of a service until a request to end.
func serve() error {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP)
	w, err := wished()
	if err != nil {
		return err
	}
	ctx, quit := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer quit()
	s := &server{health: health{wish: w, Started: time.Now().UTC()}, known: map[string]string{}, quit: quit}
	if err := s.ready(); err != nil {
		return err
	}
	socket := file(w.Service, ".sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	listeners := []net.Listener{listener}
	switch w.Kind {
	case "proxy":
		front, err := net.Listen("tcp", "127.0.0.1:"+w.Port)
		if err != nil {
			return err
		}
		listeners = append(listeners, front)
	case "nameserver":
		end, err := answerNames(w)
		if err != nil {
			return err
		}
		defer end()
	}
	web := &http.Server{Handler: s.pages(), ReadHeaderTimeout: 10 * time.Second}
	for _, l := range listeners {
		go func() { _ = web.Serve(l) }() // it ends with the process
	}
	<-ctx.Done()
	return web.Close()
}

// ready creates everything that a service needs before it starts.
func (s *server) ready() error {
	for _, database := range s.Needs {
		if _, err := ask(database, http.MethodPost, "/databases/"+s.Service, ""); err != nil {
			return fmt.Errorf("%s needs its database: %w", s.Service, err)
		}
	}
	if _, err := os.Stat(file(s.Service, ".key")); errors.Is(err, fs.ErrNotExist) && s.Kind != "database" { // its first boot
		if err := write(file(s.Service, ".key"), []byte(rand.Text())); err != nil {
			return err
		}
	}
	if b, err := os.ReadFile(file(s.Service, ".known")); err == nil {
		if err := json.Unmarshal(b, &s.known); err != nil {
			return err
		}
	}
	return s.reload()
}

// reload reads the pushed configuration.
func (s *server) reload() error {
	files, err := filepath.Glob(filepath.Join(file(s.Service, ".d"), "*"))
	if err != nil {
		return err
	}
	routes := map[string]string{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(b)) {
			if word, rest, is := strings.Cut(strings.TrimSpace(line), ": "); is {
				routes[word] = rest
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes = routes
	return nil
}

// learn stores a name and its value.
func (s *server) learn(name, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = value
	b, err := json.Marshal(s.known)
	if err != nil {
		return err
	}
	return write(file(s.Service, ".known"), b)
}

func (s *server) pages() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /-/health", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(s.health) }) // the client may be gone
	mux.HandleFunc("POST /-/quit", func(http.ResponseWriter, *http.Request) { time.AfterFunc(lookEvery, s.quit) })
	mux.HandleFunc("POST /-/reload", func(w http.ResponseWriter, _ *http.Request) { answer(w, s.reload()) })
	switch s.Kind {
	case "database":
		mux.HandleFunc("POST /databases/{name}", func(w http.ResponseWriter, r *http.Request) { answer(w, s.learn(r.PathValue("name"), "")) })
		mux.HandleFunc("GET /", s.list)
	case "indexer":
		mux.HandleFunc("POST /apps/{name}", s.takeApp)
		mux.HandleFunc("GET /search", s.search)
		mux.HandleFunc("GET /", s.list)
	case "proxy":
		mux.HandleFunc("/", s.proxy)
	case "collector":
		mux.HandleFunc("GET /", s.collected)
	default:
		mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, s.Service, s.Version) }) // the client may be gone
	}
	return mux
}

func answer(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// takeApp registers an application, which proves its identity with its key.
func (s *server) takeApp(w http.ResponseWriter, r *http.Request) {
	name := filepath.Base(r.PathValue("name"))
	theirs, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	key, missing := os.ReadFile(file(name, ".key"))
	if err != nil || missing != nil || string(theirs) != string(key) {
		http.Error(w, "this is not the key of "+name, http.StatusForbidden)
		return
	}
	answer(w, s.learn(name, time.Now().UTC().Format(time.RFC3339)))
}

// search answers only after the first registration.
func (s *server) search(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) == 0 {
		http.Error(w, "nobody is registered here", http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintf(w, "found for %d\n", len(s.known)) // the client may be gone
}

func (s *server) list(w http.ResponseWriter, _ *http.Request) { s.print(w, s.known) }

func (s *server) collected(w http.ResponseWriter, _ *http.Request) { s.print(w, s.routes) }

func (s *server) print(w http.ResponseWriter, all map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := make([]string, 0, len(all))
	for name, rest := range all {
		lines = append(lines, name+": "+rest+"\n")
	}
	slices.Sort(lines)
	_, _ = io.WriteString(w, strings.Join(lines, "")) // the client may be gone
}

// proxy forwards a request to the service with the requested name.
func (s *server) proxy(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	s.mu.Lock()
	to, known := s.routes[host]
	s.mu.Unlock()
	if !known {
		http.Error(w, "no route to "+host, http.StatusNotFound)
		return
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to})
	proxy.Transport = caller(to).Transport
	proxy.ServeHTTP(w, r)
}
