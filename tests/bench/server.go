package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/converge-engine/converge/worker"
	"github.com/converge-engine/converge/worker/embedded"
)

// serverRole as the first argument makes this program the Temporal server of another one.
const serverRole = "temporal-server"

// serve runs a server as `converge dev` does, on a file. It prints its address, answers each line on
// standard input with what it has used and counted so far, and ends when standard input does: then whoever
// started it is gone.
func serve(file string) int {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches both; the other one ends this one when it is ready to
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	taken := newActions()
	server, err := embedded.Start(context.Background(), embedded.Options{
		DBFile: file, SearchAttributes: worker.SearchAttributes(), Log: log, Metrics: taken,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(server.Address())
	answers := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		so := used()
		so.Actions = taken.soFar()
		if err := answers.Encode(so); err != nil {
			break
		}
	}
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// server is a Temporal server in a process of its own.
type server struct {
	address string
	process *exec.Cmd
	stdin   io.WriteCloser
	stdout  *bufio.Reader
}

func startServer(dir string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &server{process: exec.Command(self, serverRole, filepath.Join(dir, "temporal.db"))}
	s.process.Stderr = os.Stderr
	if s.stdin, err = s.process.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.stdout = bufio.NewReader(out)
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	line, err := s.stdout.ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the Temporal server did not start: %w", err), s.stop())
	}
	s.address = line[:len(line)-1]
	return s, nil
}

// used is what the server has used since it started.
func (s *server) used() (usage, error) {
	var u usage
	if _, err := s.stdin.Write([]byte("\n")); err != nil {
		return u, err
	}
	line, err := s.stdout.ReadBytes('\n')
	if err != nil {
		return u, fmt.Errorf("the Temporal server is gone: %w", err)
	}
	return u, json.Unmarshal(line, &u)
}

// stop ends the server, and kills it when it takes too long.
func (s *server) stop() error {
	late := time.AfterFunc(30*time.Second, func() { _ = s.process.Process.Kill() })
	defer late.Stop()
	return errors.Join(s.stdin.Close(), s.process.Wait())
}
