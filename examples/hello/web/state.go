package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// wish is the desired state that Converge passes in a command's environment.
type wish struct {
	Service   string
	Channel   string
	ServiceID string
	Version   string
	Port      string
	Greeting  string
	Faults    string // percent of the requests that fail
}

func wished() (wish, error) {
	w := wish{
		Service: os.Getenv("PVN_SERVICE"), Channel: os.Getenv("PVN_RELEASE_CHANNEL"),
		ServiceID: os.Getenv("PVN_SERVICE_ID"), Version: os.Getenv("PVN_SERVICE_VERSION"),
		Port: os.Getenv("PORT"), Greeting: os.Getenv("GREETING"), Faults: os.Getenv("FAULTS"),
	}
	if w.Service == "" || w.Channel == "" {
		return w, errors.New("PVN_SERVICE and PVN_RELEASE_CHANNEL are not set: this is run by Converge")
	}
	return w, nil
}

// state is what the server of one channel records about itself when it starts. The server writes it, not the process that starts the
// server, so that no server runs unrecorded.
type state struct {
	wish
	PID     int
	Mark    string // distinguishes this process from a later one with the same id
	Started time.Time
	Exited  bool // it ended on request
	Events  []event
}

type event struct {
	Timestamp time.Time `json:"timestamp"`
	Message   string    `json:"message"`
}

func (s *state) tell(format string, args ...any) {
	s.Events = append(s.Events, event{time.Now().UTC(), fmt.Sprintf(format, args...)})
	s.Events = s.Events[max(0, len(s.Events)-10):]
}

func (s state) url() string { return "http://127.0.0.1:" + s.Port + "/" }

func (s state) alive() bool { return s.PID > 0 && s.Mark != "" && processMark(s.PID) == s.Mark }

// file returns the path of a channel's state, next to its log.
func (w wish) file(kind string) string {
	return filepath.Join(defaultFolder, w.Service+"-"+w.Channel+kind)
}

// load returns the zero state if nothing was ever started.
func load(path string) (s state, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		return state{}, fmt.Errorf("state file %s: %w", path, err)
	}
	return s, nil
}

// save replaces the file atomically: a reader sees the old state or the new one.
func (s state) save() error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	path := s.file(".json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	written := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(written, b, 0o600); err != nil {
		return err
	}
	return os.Rename(written, path)
}
