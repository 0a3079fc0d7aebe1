package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	startPatience = 15 * time.Second // for a new server to answer
	stopPatience  = 5 * time.Second  // for an old one to end, before it is killed
	lookEvery     = 20 * time.Millisecond
)

// apply makes the channel's server serve the desired version. It does nothing if the server already does, so that an apply is
// idempotent.
func apply() error {
	w, err := wished()
	if err != nil {
		return err
	}
	if w.Version == "" || w.Port == "" || w.Greeting == "" {
		return fmt.Errorf("nothing to serve: version %q, port %q, greeting %q; none may be empty", w.Version, w.Port, w.Greeting)
	}
	old, err := load(w.file(".json"))
	if err != nil {
		return err
	}
	if old.alive() {
		if old.wish == w && old.healthy() == nil {
			fmt.Printf("%s already serves %s\n", old.url(), w.Version)
			return nil
		}
		if err := old.end(); err != nil {
			return err
		}
	}
	return start(w)
}

// start runs `serve` in its own session, so that neither a Ctrl-C in the terminal nor the end of this command and its process group
// reaches it. The server inherits the open port, so a port that is already in use is detected here.
func start(w wish) error {
	listener, err := net.Listen("tcp", "127.0.0.1:"+w.Port)
	if errors.Is(err, syscall.EADDRINUSE) {
		return tryLater{fmt.Errorf("port %s is taken by another program: stop it, or change constants.port of release channel %s", w.Port, w.Channel)}
	}
	if err != nil {
		return fmt.Errorf("port %s: %w", w.Port, err)
	}
	defer func() { _ = listener.Close() }() // the server has its own copy
	port, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer func() { _ = port.Close() }()

	if err := os.MkdirAll(filepath.Dir(w.file(".log")), 0o700); err != nil {
		return err
	}
	log, err := os.OpenFile(w.file(".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	server := exec.Command(self, "serve")
	server.Stdout, server.Stderr = log, log
	server.ExtraFiles = []*os.File{port} // file descriptor 3 in the server
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := server.Start(); err != nil {
		return err
	}
	return answered(server, w)
}

var errStarting = errors.New("it is still starting")

// answered waits until the new server answers with its version, or has ended.
func answered(server *exec.Cmd, w wish) error {
	ended := make(chan struct{})
	go func() {
		_ = server.Wait() // its ProcessState records how it ended
		close(ended)
	}()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	patience := time.After(startPatience)
	for {
		err := errStarting
		if s, _ := load(w.file(".json")); s.PID == server.Process.Pid { // an unreadable state is about to be replaced
			err = s.healthy()
		}
		if err == nil {
			fmt.Printf("http://127.0.0.1:%s/ serves %s as process %d\n", w.Port, w.Version, server.Process.Pid)
			return nil
		}
		select {
		case <-look.C:
		case <-ended:
			return tryLater{fmt.Errorf("the server ended at once, %s: %s", server.ProcessState, lastLine(w.file(".log")))}
		case <-patience:
			_ = server.Process.Kill() // half a server is worse than none; do not wait for its end
			return tryLater{fmt.Errorf("the server does not answer: %w", err)}
		}
	}
}

// end stops a server and returns when it is gone. It opens the process before it compares the mark, so that on Linux it never kills a
// process that gets the same id in between.
func (s state) end() error {
	p, err := os.FindProcess(s.PID)
	if !s.alive() {
		return nil
	}
	if err != nil {
		return err
	}
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop process %d: %w", s.PID, err)
		}
		if s.goneWithin(stopPatience) {
			return nil
		}
	}
	return tryLater{fmt.Errorf("process %d does not end", s.PID)}
}

func (s state) goneWithin(patience time.Duration) bool {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	deadline := time.After(patience)
	for s.alive() {
		select {
		case <-look.C:
		case <-deadline:
			return false
		}
	}
	return true
}

func lastLine(path string) string {
	b, _ := os.ReadFile(path) // without a log there is no last line
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return strings.TrimSpace(string(lines[len(lines)-1]))
}
