package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html/template"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var page = template.Must(template.New("page").Parse(`<!doctype html>
<meta charset="utf-8">
<title>{{.Service}} {{.Version}} in {{.Channel}}</title>
<h1>{{.Greeting}}</h1>
<p>This is {{.Service}} {{.Version}} in {{.Channel}}.</p>
`))

// serve answers on the port that it inherits as file descriptor 3 until SIGTERM.
func serve() error {
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP) // it outlives the terminal; only apply and stop end it
	asked, done := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer done()

	w, err := wished()
	if err != nil {
		return err
	}
	port := os.NewFile(3, "port")
	listener, err := net.FileListener(port)
	if err != nil {
		return fmt.Errorf("no port is open: `serve` is started by `apply`: %w", err)
	}
	if err := port.Close(); err != nil { // the listener has its own copy, and must be the only one
		return err
	}
	s, err := load(w.file(".json"))
	if err != nil {
		return err
	}
	if s.PID != 0 && !s.Exited {
		s.tell("process %d was found gone", s.PID)
	}
	s = state{wish: w, PID: os.Getpid(), Mark: processMark(os.Getpid()), Started: time.Now().UTC(), Events: s.Events}
	s.tell("%s started as process %d on port %s", s.Version, s.PID, s.Port)
	log.Print(s.Events[len(s.Events)-1].Message)
	if err := s.save(); err != nil {
		return err
	}

	server := &http.Server{Handler: s.pages(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-asked.Done():
	}
	bounded, cancel := context.WithTimeout(context.Background(), stopPatience/2)
	defer cancel()
	_ = server.Shutdown(bounded) // longer requests are cut off
	s.Exited = true
	s.tell("%s ended: process %d was asked to stop", s.Version, s.PID)
	log.Print(s.Events[len(s.Events)-1].Message)
	return s.save()
}

func (s state) pages() http.Handler {
	mux := http.NewServeMux()
	requests := newTraffic(s.Faults)
	mux.HandleFunc("GET /{$}", requests.count(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if err := page.Execute(w, s.wish); err != nil {
			log.Print(err)
		}
	}))
	mux.HandleFunc("GET /metrics", requests.metrics(s))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(health{s.Service, s.Channel, s.Version, s.PID}); err != nil {
			log.Print(err)
		}
	})
	return mux
}
