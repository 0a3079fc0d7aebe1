// Package controller runs controllers of others as they are released, each built once from a module of its own
// (tests/kubetest/program), and makes the kinds known that they look after.
package controller

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"
)

// Controller is a running one.
type Controller struct {
	process *exec.Cmd
	ended   chan struct{}
}

// Start starts a command that logs to log. It is killed when this process is.
func Start(process *exec.Cmd, log io.Writer) (*Controller, error) {
	c := &Controller{process: process, ended: make(chan struct{})}
	c.process.Stdout, c.process.Stderr = log, log
	c.process.SysProcAttr = withUs()
	if err := c.process.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", process.Path, err)
	}
	go func() {
		_ = c.process.Wait() // why it ended is in its log
		close(c.ended)
	}()
	return c, nil
}

// ID is that of its process.
func (c *Controller) ID() int { return c.process.Process.Pid }

// Ended is closed when it has ended, by itself or by Stop.
func (c *Controller) Ended() <-chan struct{} { return c.ended }

// Stop ends it, and kills it where it takes longer than patience.
func (c *Controller) Stop(patience time.Duration) {
	_ = c.process.Process.Signal(syscall.SIGTERM) // it may have ended
	late := time.AfterFunc(patience, func() { _ = c.process.Process.Kill() })
	defer late.Stop()
	<-c.ended
}
