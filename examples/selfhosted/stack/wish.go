package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// folder contains the sockets of the servers, their logs, and their state.
const folder = ".converge/stack"

// wish is the desired state that Converge passes in a command's environment.
type wish struct {
	Service string `json:"service"`
	Version string `json:"version"`
	Kind    string `json:"kind"` // app, database, indexer, collector, proxy or nameserver
	// Needs are databases in which the service creates its own database before it starts.
	Needs []string `json:"needs,omitempty"`
	Port  string   `json:"port,omitempty"` // on loopback, in addition to the socket; for a proxy or a nameserver
	Zone  string   `json:"zone,omitempty"`
}

func wished() (wish, error) {
	w := wish{
		Service: os.Getenv("PVN_SERVICE"), Version: os.Getenv("PVN_SERVICE_VERSION"), Kind: os.Getenv("KIND"),
		Needs: strings.Fields(os.Getenv("NEEDS")), Port: os.Getenv("PORT"), Zone: os.Getenv("ZONE"),
	}
	if w.Service == "" {
		return w, errors.New("PVN_SERVICE is not set: this is run by Converge")
	}
	return w, nil
}

func (w wish) same(o wish) bool {
	a, _ := json.Marshal(w)
	b, _ := json.Marshal(o)
	return bytes.Equal(a, b)
}

func file(service, kind string) string { return filepath.Join(folder, service+kind) }

// caller returns a client that connects to a server's socket.
func caller(service string) *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", file(service, ".sock"))
		},
	}}
}

// ask sends a request to a server, and returns its answer or an error.
func ask(service, method, path, body string) (string, error) {
	request, err := http.NewRequest(method, "http://"+service+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := caller(service).Do(request)
	if err != nil {
		return "", tryLater{fmt.Errorf("%s does not answer: %w", service, err)}
	}
	defer func() { _ = response.Body.Close() }() // the body is fully read
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	text := strings.TrimSpace(string(answer))
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = tryLater{fmt.Errorf("%s answers %s: %s", service, response.Status, text)}
	}
	return text, err
}

// health is what a server reports about itself.
type health struct {
	wish
	Started time.Time `json:"started"`
}

func healthOf(service string) (h health, err error) {
	text, err := ask(service, http.MethodGet, "/-/health", "")
	if err == nil {
		err = json.Unmarshal([]byte(text), &h)
	}
	return h, err
}

// write replaces a file atomically.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	part := fmt.Sprintf("%s.%d.part", path, os.Getpid())
	if err := os.WriteFile(part, content, 0o600); err != nil {
		return err
	}
	return os.Rename(part, path)
}
