package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// Up is a cluster as a team has one: Temporal on PostgreSQL, two workers, and the board with its API.
type Up struct {
	Program string    // converge
	Store   string    // a directory
	Port    int       // of Temporal; 0: a free one
	Board   int       // port of the board
	Out     io.Writer // what its processes say, and how to use it
}

// Run runs it until ctx ends, or one of its processes does.
func (c *Up) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	database, err := StartPostgres()
	if err != nil {
		return err
	}
	defer database.Remove()
	server, err := StartServer(c.Port, database.Port)
	if err != nil {
		return err
	}
	defer server.Kill()
	if err := server.Register(ctx); err != nil {
		return err
	}
	store, err := filepath.Abs(c.Store)
	if err != nil {
		return err
	}
	board := net.JoinHostPort(Host, strconv.Itoa(c.Board))
	var running sync.WaitGroup
	for _, args := range [][]string{{"worker"}, {"worker"}, {"serve", "--listen", board}} {
		cmd := exec.CommandContext(ctx, c.Program, append(args, "--address", server.Address(), "--store", store)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = time.Minute
		cmd.Stdout, cmd.Stderr = c.Out, c.Out
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL} // Ctrl-C ends them in order
		if err := cmd.Start(); err != nil {
			return err
		}
		running.Go(func() { stop(fmt.Errorf("%s ended: %w", args[0], cmd.Wait())) })
	}
	fmt.Fprintf(c.Out, "In another terminal:\n  export TEMPORAL_ADDRESS=%s CONVERGE_STORE=%s\nThe board: http://%s\nCtrl-C ends all of it.\n", server.Address(), store, board)
	<-ctx.Done()
	running.Wait()
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}
