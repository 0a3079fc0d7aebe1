package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	patience  = 10 * time.Second
	lookEvery = 20 * time.Millisecond
)

// apply makes the server of a service run as desired. It does nothing if the server already does, so that an apply is idempotent.
func apply() error {
	w, err := wished()
	if err != nil {
		return err
	}
	if now, err := healthOf(w.Service); err == nil && w.same(now.wish) {
		fmt.Printf("%s runs %s already\n", w.Service, w.Version)
		return nil
	}
	if err := end(w.Service); err != nil {
		return err
	}
	return start(w)
}

// start runs `serve` in its own session, so that neither a Ctrl-C in the terminal nor the end of this command reaches it.
func start(w wish) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(file(w.Service, ".log"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has its own copy
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := exec.Command(self, "serve")
	server.Env = append(os.Environ(), "PVN_SERVICE="+w.Service, "PVN_SERVICE_VERSION="+w.Version, "KIND="+w.Kind,
		"NEEDS="+strings.Join(w.Needs, " "), "PORT="+w.Port, "ZONE="+w.Zone)
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := server.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = server.Wait(); close(ended) }() // its log records how it ended
	err = within(func() error {
		select {
		case <-ended:
			return over{fmt.Errorf("%s does not start: %s", w.Service, lastLine(file(w.Service, ".log")))}
		default:
		}
		now, err := healthOf(w.Service)
		if err == nil && !w.same(now.wish) {
			err = errors.New("another one answers")
		}
		return err
	})
	if err != nil {
		_ = server.Process.Kill() // half a server is worse than none
		return tryLater{err}
	}
	fmt.Printf("%s runs %s as process %d\n", w.Service, w.Version, server.Process.Pid)
	return nil
}

// over is an error that a retry does not fix.
type over struct{ error }

// within retries a function.
func within(try func() error) error {
	for until := time.Now().Add(patience); ; time.Sleep(lookEvery) {
		err := try()
		var o over
		if err == nil || errors.As(err, &o) || time.Now().After(until) {
			return err
		}
	}
}

// end stops a server and returns when it no longer answers. A server that does not run counts as stopped.
func end(service string) error {
	if _, err := ask(service, http.MethodPost, "/-/quit", ""); err != nil {
		return nil //nolint:nilerr // nobody is there
	}
	return within(func() error {
		if _, err := healthOf(service); err == nil {
			return fmt.Errorf("%s does not end", service)
		}
		return nil
	})
}

func remove() error {
	w, err := wished()
	if err != nil {
		return err
	}
	return end(w.Service)
}

// stop ends all servers. Converge, while it runs, starts them again.
func stop() error {
	sockets, err := filepath.Glob(file("*", ".sock"))
	if err != nil {
		return err
	}
	for _, socket := range sockets {
		err = errors.Join(err, end(strings.TrimSuffix(filepath.Base(socket), ".sock")))
	}
	return err
}

// fetch reports a server as a structured fetch document.
func fetch() error {
	w, err := wished()
	if err != nil {
		return err
	}
	type version struct {
		Version           string `json:"version"`
		Active            bool   `json:"active"`
		Replicas          int    `json:"replicas"`
		AvailableReplicas int    `json:"availableReplicas"`
		TargetReplicas    int    `json:"targetReplicas"`
	}
	object := map[string]any{"name": w.Service, "objectType": "process", "status": "PENDING", "message": "does not run"}
	if now, err := healthOf(w.Service); err == nil {
		object["status"], object["message"] = "SUCCEEDED", "since "+now.Started.Format(time.RFC3339)
		object["versions"] = []version{{Version: now.Version, Active: true, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1}}
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"objects": []any{object}})
}

func lastLine(path string) string {
	b, _ := os.ReadFile(path) // without a log there is no last line
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return strings.TrimSpace(string(lines[len(lines)-1]))
}
