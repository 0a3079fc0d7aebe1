package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// The structured fetch document, which Converge reads from stdout.
type (
	document struct {
		Objects []object `json:"objects"`
	}
	object struct {
		Name     string    `json:"name"`
		Type     string    `json:"objectType"`
		Versions []version `json:"versions,omitempty"`
		Status   string    `json:"status"`
		Links    []link    `json:"externalLinks,omitempty"`
		Events   []event   `json:"debugEvents,omitempty"`
		Message  string    `json:"message,omitempty"`
	}
	version struct {
		Version           string `json:"version"`
		Active            bool   `json:"active"`
		Replicas          int    `json:"replicas"`
		AvailableReplicas int    `json:"availableReplicas"`
		TargetReplicas    int    `json:"targetReplicas"`
	}
	link struct {
		Type string `json:"type"`
		URL  string `json:"url"`
		Name string `json:"name"`
	}
)

// fetch reports the server of one channel. It changes nothing and needs no port: the state contains the address.
func fetch() error {
	w, err := wished()
	if err != nil {
		return err
	}
	s, err := load(w.file(".json"))
	if err != nil {
		return err
	}
	o, err := report(w, s)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(document{[]object{o}})
}

// report describes the current server. A server that is gone has no version, so it is not converged and is applied again. A server that
// was started for a service with another id has an unknown version.
func report(w wish, s state) (object, error) {
	o := object{Name: w.Service, Type: "process", Status: "PENDING", Events: s.Events}
	if s.PID == 0 {
		o.Message = "was never started"
		return o, nil
	}
	log, err := filepath.Abs(s.file(".log"))
	if err != nil {
		return o, err
	}
	o.Links = []link{
		{"DETAIL", s.url(), "page"},
		{"LOG", (&url.URL{Scheme: "file", Path: filepath.ToSlash(log)}).String(), "log"},
	}
	if !s.alive() {
		o.Message = fmt.Sprintf("process %d is gone", s.PID)
		if !s.Exited {
			o.Events = append(o.Events, event{time.Now().UTC(), fmt.Sprintf("process %d was found gone", s.PID)})
		}
		return o, nil
	}
	o.Message = fmt.Sprintf("process %d serves %s", s.PID, s.url())
	v := version{Version: s.Version, Active: true, Replicas: 1, AvailableReplicas: 1, TargetReplicas: 1}
	if s.ServiceID != w.ServiceID {
		v.Version = ""
		o.Message = fmt.Sprintf("started for the service with id %q, not for %q", s.ServiceID, w.ServiceID)
	}
	if err := s.healthy(); err != nil {
		v.AvailableReplicas = 0
		o.Message = fmt.Sprintf("process %d does not answer: %v", s.PID, err)
	} else {
		o.Status = "SUCCEEDED"
	}
	o.Versions = []version{v}
	return o, nil
}

// health is a server's answer at /healthz. It identifies the server.
type health struct {
	Service, Channel, Version string
	PID                       int
}

// healthy queries the server itself. Another program that answers on the port is not healthy.
func (s state) healthy() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+"healthz", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // read to its end, or not needed
	body, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	if err != nil {
		return err
	}
	var got health
	want := health{s.Service, s.Channel, s.Version, s.PID}
	if err := json.Unmarshal(body, &got); err != nil || got != want {
		return fmt.Errorf("another program answers on port %s", s.Port)
	}
	return nil
}
