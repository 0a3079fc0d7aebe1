// Command daemon runs a command with Docker: with the daemon that runs on the machine, or else with one of its own, as root, whose files are
// in .cache/docker and which ends with the command. `docker compose` is the one of .cache/docker (make docker).
//
//	go run ./tests/compose/daemon COMMAND [ARGUMENT...]
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	err := run(context.Background(), os.Args[1:])
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: daemon COMMAND [ARGUMENT...]")
	}
	dir, err := filepath.Abs(filepath.Join(".cache", "docker"))
	if err != nil {
		return err
	}
	if err := os.Setenv("DOCKER_CONFIG", dir); err != nil {
		return err
	}
	if exec.CommandContext(ctx, "docker", "info").Run() != nil {
		stop, err := start(ctx, dir)
		if err != nil {
			return err
		}
		defer stop()
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// patience is how long a daemon may take to start.
const patience = time.Minute

// start starts a daemon, and names it to programs that this one starts.
func start(ctx context.Context, dir string) (stop func(), err error) {
	socket := "unix://" + filepath.Join(dir, "docker.sock")
	log, err := os.Create(filepath.Join(dir, "dockerd.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("dockerd", "--host", socket, "--data-root", filepath.Join(dir, "data"), //nolint:noctx // it is stopped below
		"--exec-root", filepath.Join(dir, "run"), "--pidfile", filepath.Join(dir, "dockerd.pid"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("no daemon of Docker runs, and none can be started: %w", err)
	}
	ended := make(chan struct{})
	var result error
	go func() {
		result = cmd.Wait()
		close(ended)
	}()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		<-ended
	}
	if err := os.Setenv("DOCKER_HOST", socket); err != nil {
		stop()
		return nil, err
	}
	for until := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if exec.CommandContext(ctx, "docker", "info").Run() == nil {
			return stop, nil
		}
		select {
		case <-ended:
			return nil, errors.Join(fmt.Errorf("dockerd ended; it says why in %s", log.Name()), result)
		default:
		}
		if time.Now().After(until) {
			stop()
			return nil, fmt.Errorf("dockerd does not answer after %s; see %s", patience, log.Name())
		}
	}
}
